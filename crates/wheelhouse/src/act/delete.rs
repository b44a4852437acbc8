//! Delete and evict: always this very object, never just one of that name.

use kube::api::{DeleteParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

use super::{Actor, Done, built, conflict, requests};
use crate::{
    cache::Cause,
    error::{Category, Error, Result},
    plan::{Guard, Reference},
};

impl Actor<'_> {
    pub(super) async fn delete(&self, target: &Reference, guard: &Guard) -> Result<Done> {
        let doing = format!("delete {} {}", target.kind, target.key());
        let resource_version = match guard {
            Guard::Identity => None,
            Guard::Unchanged => Some(target.resource_version.clone()),
            Guard::Still(fields) => match self.read(&target.kind, &target.key()).await? {
                Some(live) => Some(check_still(&doing, &live, target, fields)?),
                None => return Ok(self.gone(target)),
            },
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let request = requests(&target.kind, target.namespace.as_deref())
            .delete(&target.name, &params)
            .map_err(built(&doing))?;
        self.send_deletion(&doing, target, request).await
    }

    pub(super) async fn evict(&self, target: &Reference) -> Result<Done> {
        let doing = format!("evict {} {}", target.kind, target.key());
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "deleteOptions": {"preconditions": {"uid": target.uid}},
        });
        let request = requests(&target.kind, target.namespace.as_deref())
            .create_subresource(
                "eviction",
                &target.name,
                &PostParams::default(),
                body.to_string().into_bytes(),
            )
            .map_err(built(&doing))?;
        match self.send_for_text(&doing, request).await {
            Ok(_) => {
                // The answer does not say what became of the pod.
                let refreshed = self.cache.refresh(&target.kind, target.namespace.as_deref()).await;
                refreshed.map_err(|error| Error::new(Category::LostAnswer, error.to_string()))?;
                Ok(Done::Changed)
            }
            Err(error) if error.category() == Category::NotFound => Ok(self.gone(target)),
            Err(error) => Err(error),
        }
    }

    async fn send_deletion(
        &self,
        doing: &str,
        target: &Reference,
        request: http::Request<Vec<u8>>,
    ) -> Result<Done> {
        let text = match self.send_for_text(doing, request).await {
            Ok(text) => text,
            Err(error) if error.category() == Category::NotFound => return Ok(self.gone(target)),
            Err(error) => return Err(error),
        };
        let answer: Value = serde_json::from_str(&text).map_err(|error| super::unreadable(doing, &error))?;
        // An object that goes on existing for a while comes back as it is now;
        // one that is gone, as a Status or as it last was.
        let goes_on = answer.pointer("/metadata/deletionTimestamp").is_some()
            && (answer.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64) != Some(0)
                || answer
                    .pointer("/metadata/finalizers")
                    .and_then(Value::as_array)
                    .is_some_and(|list| !list.is_empty()));
        if goes_on {
            self.take_in(doing, &target.kind, &text, Cause::Answer)?;
        } else {
            self.gone(target);
        }
        Ok(Done::Changed)
    }

    fn gone(&self, target: &Reference) -> Done {
        self.learned.forget(&target.kind, &target.key());
        self.cache.answered_gone(&target.kind, &target.key(), Some(&target.uid));
        Done::AlreadySo
    }
}

/// The version at which everything is still as it was decided on.
fn check_still(doing: &str, live: &Value, target: &Reference, fields: &[(String, Value)]) -> Result<String> {
    let text = |pointer| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/metadata/uid") != target.uid {
        return Err(conflict(format!("cannot {doing}: another one has its name now")));
    }
    match fields.iter().find(|(pointer, value)| live.pointer(pointer).unwrap_or(&Value::Null) != value) {
        Some((pointer, value)) => {
            Err(Error::new(Category::Conflict, format!("did not {doing}: {pointer} is no longer {value}")))
        }
        None => Ok(text("/metadata/resourceVersion").to_owned()),
    }
}
