//! Create, update and adopt; and the finalizers of the resource itself.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};

use super::{Actor, Done, apply::references_reach, built, conflict, requests};
use crate::{
    cache::Cause,
    error::{Category, Error, Result},
    labels::OWNER_UID,
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
        if self.is_ours(&live) {
            return Ok(Done::AlreadySo);
        }
        let mut references =
            live.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_controlled =
            references.iter().any(|owner| owner.get("controller") == Some(&Value::Bool(true)));
        let is_marked =
            live.pointer("/metadata/labels").is_some_and(|labels| labels.get(OWNER_UID).is_some());
        if is_controlled || is_marked {
            let message = format!("cannot {doing}: it belongs to another resource");
            return Err(Error::new(Category::NotOurs, message));
        }
        let mut metadata = Map::new();
        if references_reach(self.owner.reference.namespace.as_deref(), target.namespace.as_deref()) {
            references.push(self.owner_reference());
            metadata.insert("ownerReferences".to_owned(), references.into());
        } else {
            self.mark_as_owned(&mut metadata);
        }
        let mut patch = json!({"metadata": metadata});
        lock(&mut patch, &target.uid, &target.resource_version);
        self.merge(&doing, target, &patch).await?;
        Ok(Done::Changed)
    }

    /// Whether an object is a child of the resource, by reference or by label.
    pub(super) fn is_ours(&self, live: &Value) -> bool {
        owners_of(live).any(|uid| uid == self.owner.reference.uid)
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

/// The UIDs of an object's owners: by reference, and by label.
fn owners_of(live: &Value) -> impl Iterator<Item = &str> {
    let references = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let by_reference = references.into_iter().flatten().filter_map(|owner| owner.get("uid"));
    let labels = live.pointer("/metadata/labels");
    by_reference.chain(labels.and_then(|labels| labels.get(OWNER_UID))).filter_map(Value::as_str)
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
