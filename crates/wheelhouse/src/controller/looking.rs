//! A look at one resource: what would be decided and done about it. Nothing is done.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Resource as _;
use serde_json::{Map, Value, json};

use super::Running;
use crate::{
    decisions::{What as _, without_secrets},
    error::{Category, Error, Result},
    key::Key,
    operator::Operator,
};

/// How long the application may take to answer what it is asked.
const PROBES_TAKE: Duration = Duration::from_secs(10);
/// One answer may lead to the next question.
const LOOKS: usize = 3;
/// The UID of what is not there yet.
const NOT_THERE_YET: &str = "00000000-0000-0000-0000-000000000000";

/// Which resource is looked at.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// One that is there.
    Existing(Key),
    /// One as it is described, in place of the one that is there, or new.
    Described(Value),
}

/// What would be decided.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    pub(crate) controller: String,
    pub(crate) key: Key,
    pub(crate) observation: Value,
    pub(crate) plan: Value,
    /// The plan, for people.
    pub(crate) text: String,
    /// Its steps, in words.
    pub(crate) words: Vec<String>,
    /// The steps that would change something, in words.
    pub(crate) would: Vec<String>,
}

impl<O: Operator> Running<O> {
    pub(super) async fn look(&self, subject: Subject) -> Result<Looked> {
        let resource = match subject {
            Subject::Existing(key) => self.lister.get(&key).ok_or_else(|| {
                let why = self.lister.unreadable(&key).unwrap_or_else(|| "there is none".to_owned());
                Error::new(Category::NotFound, format!("no {} {key}: {why}", self.kind))
            })?,
            Subject::Described(described) => Arc::new(self.as_if_applied(described)?),
        };
        let owner = self.owner(&resource);
        let decide = || self.decide(resource.clone(), &owner.reference, Arc::new(|| {}), None);
        let mut decided = decide().await?;
        for _ in 0..LOOKS {
            if !self.surroundings.probes.are_running() {
                break;
            }
            // What the application says comes later than the first look.
            self.surroundings.probes.wait(PROBES_TAKE).await;
            decided = decide().await?;
        }
        let unwritable = |error| Error::new(Category::Bug, format!("the decision is no JSON: {error}"));
        Ok(Looked {
            controller: self.name.to_string(),
            key: owner.reference.key(),
            observation: without_secrets(decided.observation().map_err(unwritable)?),
            plan: without_secrets(decided.plan().map_err(unwritable)?),
            text: decided.plan.to_string(),
            words: decided.plan.steps.iter().map(|planned| planned.step.to_string()).collect(),
            would: self.would_do(&owner, &decided.plan).await,
        })
    }

    /// The resource as the API server would have it if this were applied.
    fn as_if_applied(&self, described: Value) -> Result<O::Resource> {
        let cannot = |error: serde_json::Error| {
            Error::new(Category::Invalid, format!("this is no {}: {error}", self.kind))
        };
        let metadata = described.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        let Some(name) = text("name") else {
            return Err(Error::new(Category::Invalid, format!("a {} without a name", self.kind)));
        };
        let key = Key::new(text("namespace"), name);
        let there = match self.lister.get(&key) {
            Some(there) => serde_json::to_value(&*there).map_err(cannot)?,
            None => json!({"metadata": {
                "uid": NOT_THERE_YET,
                "resourceVersion": "0",
                "generation": 0,
                "creationTimestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }}),
        };
        let mut applied: O::Resource =
            serde_json::from_value(overlaid(there.clone(), described)).map_err(cannot)?;
        let again = serde_json::to_value(&applied).map_err(cannot)?;
        let is_changed = again.get("spec") != there.get("spec");
        if let (true, Some(generation)) = (is_changed, &mut applied.meta_mut().generation) {
            *generation += 1;
        }
        Ok(applied)
    }
}

/// What is there, with what is described in its place; of the metadata only what
/// people write.
fn overlaid(there: Value, described: Value) -> Value {
    let (Value::Object(mut fields), Value::Object(described)) = (there, described) else {
        return Value::Null;
    };
    for (name, value) in described {
        match (name.as_str(), value) {
            ("status", _) => {}
            ("metadata", Value::Object(metadata)) => {
                let known = fields.entry("metadata").or_insert_with(|| json!({}));
                if let Some(known) = known.as_object_mut() {
                    overlay_metadata(known, metadata);
                }
            }
            (_, value) => {
                fields.insert(name, value);
            }
        }
    }
    Value::Object(fields)
}

fn overlay_metadata(known: &mut Map<String, Value>, described: Map<String, Value>) {
    for (name, value) in described {
        match (name.as_str(), value) {
            ("labels" | "annotations", Value::Object(entries)) => {
                let known = known.entry(name).or_insert_with(|| json!({}));
                if let Some(known) = known.as_object_mut() {
                    known.extend(entries);
                }
            }
            ("name" | "namespace" | "finalizers", value) => {
                known.insert(name, value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_described_takes_the_place_of_what_is_there() {
        let there = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"kept": "1", "changed": "1"}},
            "spec": {"size": 1, "gone": true},
            "status": {"ready": 1},
        });
        let described = json!({
            "apiVersion": "v1",
            "metadata": {"name": "a", "uid": "made up", "labels": {"changed": "2"}},
            "spec": {"size": 2},
            "status": {"ready": 9},
        });
        let expected = json!({
            "apiVersion": "v1",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"kept": "1", "changed": "2"}},
            "spec": {"size": 2},
            "status": {"ready": 1},
        });
        assert_eq!(overlaid(there, described), expected);
    }
}
