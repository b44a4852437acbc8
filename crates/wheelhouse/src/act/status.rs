//! The resource's status: written only when it says something else.
//!
//! What comes back need not be what was sent: the API server fills in defaults and
//! drops what the schema does not know, and a type may not hold every field. That
//! is learned from the answer, and counts until one of the two changes. A restart
//! forgets it, and costs such a status one write that changes nothing.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Actor, Done, apply::without_nulls, built, requests};
use crate::{cache::Cause, error::Result};

/// When this was written, that was what could be read.
struct ReadsBackAs {
    uid: String,
    written: Value,
    read: Option<Value>,
}

impl Actor<'_> {
    /// Writes the status; `read` tells what of it can be read afterwards.
    pub(crate) async fn write_status(
        &self,
        status: &Value,
        read: impl FnOnce() -> Option<Value>,
    ) -> Result<Done> {
        let wanted = said(status.clone());
        let known = self.owner.status.clone().map(said);
        let owner = &self.owner.reference;
        let learned = self.learned.get::<ReadsBackAs>(&owner.kind, &owner.key());
        let is_so = match &learned {
            Some(learned) if learned.uid == owner.uid && learned.written == wanted => learned.read == known,
            _ => known.unwrap_or_default() == wanted,
        };
        if is_so {
            return Ok(Done::AlreadySo);
        }
        let doing = format!("write the status of {} {}", owner.kind, owner.key());
        let patch = json!({
            "apiVersion": owner.kind.api_version(),
            "kind": owner.kind.kind,
            "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid},
            "status": wanted,
        });
        let params = PatchParams::apply(self.manager).force();
        let request = requests(&owner.kind, owner.namespace.as_deref())
            .patch_subresource("status", &owner.name, &params, &Patch::Apply(&patch))
            .map_err(built(&doing))?;
        let text = self.send_for_text(&doing, request).await?;
        self.take_in(&doing, &owner.kind, &text, Cause::Status(self.controller))?;
        let read = read().map(said);
        if read.as_ref() != Some(&wanted) {
            let lesson = ReadsBackAs { uid: owner.uid.clone(), written: wanted, read };
            self.learned.insert(self.cache, &owner.kind, &owner.key(), lesson);
        }
        Ok(Done::Changed)
    }
}

/// What a status says; a null says nothing.
fn said(mut status: Value) -> Value {
    without_nulls(&mut status);
    status
}
