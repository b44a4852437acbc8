//! Create, update and adopt; and the finalizers of the resource itself.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Actor, Done, built, conflict, requests};
use crate::{
    cache::Cause,
    error::{Category, Error, Result},
    plan::{Object, Reference},
};

impl Actor<'_> {
    pub(super) async fn create(&self, object: &Object) -> Result<Done> {
        let (intended, key) = self.intended(object, true)?;
        let doing = format!("create {} {key}", object.kind);
        let params = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        let body = serde_json::to_vec(&intended)
            .map_err(|error| Error::new(Category::Bug, format!("cannot {doing}: {error}")))?;
        let request = requests(&object.kind, key.namespace()).create(&params, body).map_err(built(&doing))?;
        // 409: there is one already, perhaps of ours, made by a create whose
        // answer was lost. The next observation tells.
        self.send(&doing, &object.kind, request, Cause::Answer).await?;
        Ok(Done::Changed)
    }

    pub(super) async fn update(&self, target: &Reference, fields: &Value) -> Result<Done> {
        let mut patch = fields.clone();
        lock(&mut patch, &target.uid, &target.resource_version);
        self.merge(&format!("update {} {}", target.kind, target.key()), target, &patch).await?;
        Ok(Done::Changed)
    }

    pub(super) async fn adopt(&self, target: &Reference) -> Result<Done> {
        let doing = format!("adopt {} {}", target.kind, target.key());
        let Some(live) = self.read(&target.kind, &target.key()).await? else {
            return Err(conflict(format!("cannot {doing}: it is gone")));
        };
        let mut owners =
            live.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
        if owners
            .iter()
            .any(|owner| owner.get("uid").and_then(Value::as_str) == Some(&self.owner.reference.uid))
        {
            return Ok(Done::AlreadySo);
        }
        if owners.iter().any(|owner| owner.get("controller") == Some(&Value::Bool(true))) {
            let message = format!("cannot {doing}: it belongs to another resource");
            return Err(Error::new(Category::NotOurs, message));
        }
        owners.push(self.owner_reference());
        let mut patch = json!({"metadata": {"ownerReferences": owners}});
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        lock(&mut patch, &target.uid, version);
        self.merge(&doing, target, &patch).await?;
        Ok(Done::Changed)
    }

    pub(super) async fn add_finalizer(&self, name: &str) -> Result<Done> {
        if self.owner.finalizers.iter().any(|known| known == name) {
            return Ok(Done::AlreadySo);
        }
        let finalizers = self.owner.finalizers.iter().map(String::as_str).chain([name]);
        self.set_finalizers("add", name, &finalizers.collect::<Vec<_>>()).await
    }

    pub(super) async fn remove_finalizer(&self, name: &str) -> Result<Done> {
        if !self.owner.finalizers.iter().any(|known| known == name) {
            return Ok(Done::AlreadySo);
        }
        let others = self.owner.finalizers.iter().map(String::as_str).filter(|known| *known != name);
        self.set_finalizers("remove", name, &others.collect::<Vec<_>>()).await
    }

    async fn set_finalizers(&self, verb: &str, name: &str, finalizers: &[&str]) -> Result<Done> {
        let owner = &self.owner.reference;
        let doing = format!("{verb} finalizer {name} of {} {}", owner.kind, owner.key());
        let mut patch = json!({"metadata": {"finalizers": finalizers}});
        lock(&mut patch, &owner.uid, &owner.resource_version);
        let answer = self.merge(&doing, owner, &patch).await?;
        if answer.pointer("/metadata/deletionTimestamp").is_some() && finalizers.is_empty() {
            self.cache.answered_gone(&owner.kind, &owner.key(), Some(&owner.uid));
        }
        Ok(Done::Changed)
    }

    async fn merge(&self, doing: &str, target: &Reference, patch: &Value) -> Result<Value> {
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let request = requests(&target.kind, target.namespace.as_deref())
            .patch(&target.name, &params, &Patch::Merge(patch))
            .map_err(built(doing))?;
        self.send(doing, &target.kind, request, Cause::Answer).await
    }
}

/// The patch holds for this very object in this very version.
fn lock(patch: &mut Value, uid: &str, version: &str) {
    if !patch.is_object() {
        *patch = json!({});
    }
    if let Some(patch) = patch.as_object_mut() {
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".to_owned(), uid.into());
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
    }
}
