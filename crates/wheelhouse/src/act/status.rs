//! The resource's status: written only when it says something else.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Actor, Done, apply::without_nulls, built, requests};
use crate::{cache::Cause, error::Result};

impl Actor<'_> {
    pub(crate) async fn write_status(&self, status: &Value) -> Result<Done> {
        let mut wanted = status.clone();
        without_nulls(&mut wanted);
        let mut known = self.owner.status.clone().unwrap_or_default();
        without_nulls(&mut known);
        if known == wanted {
            return Ok(Done::AlreadySo);
        }
        let owner = &self.owner.reference;
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
        Ok(Done::Changed)
    }
}
