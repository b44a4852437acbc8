//! [`State`]: what there is on a stage, less what differs from run to run.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject},
    discovery::{Discovery, Scope, verbs},
};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Kinds that say nothing about what an operator did.
const ASIDE: [&str; 5] = ["Event", "Lease", "ServiceAccount", "Role", "RoleBinding"];
/// Fields of the metadata that differ from run to run.
const METADATA_ASIDE: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "generation"];

/// Hashes of what the SDK applied, which may have a UID in it.
const APPLIED: &str = "wheelhouse.dev/applied";

/// The objects of a namespace, by kind and name, normalised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(crate) objects: BTreeMap<String, Value>,
}

/// How an object differs from what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It should be there.
    Missing(String),
    /// It should not.
    Surplus(String),
    /// This is another value than it should be: where, what, and what it should be.
    Changed(String, String, String),
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(object) => write!(formatter, "{object} is missing"),
            Self::Surplus(object) => write!(formatter, "{object} should not be there"),
            Self::Changed(path, is, should) => write!(formatter, "{path} is {is}, and should be {should}"),
        }
    }
}

impl State {
    /// What there is in a namespace, of these kinds.
    pub(crate) async fn of(client: &Client, namespace: &str, kinds: &[ApiResource]) -> Result<Self> {
        let mut found = Vec::new();
        for kind in kinds {
            let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
            let list = objects.list(&ListParams::default()).await;
            let list = list.map_err(Error::api(format!("see what there is in {namespace}")))?;
            found.extend(list.items.into_iter().map(|object| (kind.kind.clone(), object)));
        }
        Ok(Self::normalised(found, namespace))
    }

    fn normalised(found: Vec<(String, DynamicObject)>, namespace: &str) -> Self {
        let mut replaced = HashMap::from([(namespace.to_owned(), "NAMESPACE".to_owned())]);
        for (kind, object) in &found {
            let name = object.metadata.name.clone().unwrap_or_default();
            if let Some(uid) = &object.metadata.uid {
                replaced.insert(uid.clone(), format!("UID-OF-{kind}/{name}"));
            }
        }
        let objects = found.into_iter().filter_map(|(kind, object)| {
            let name = object.metadata.name.clone().unwrap_or_default();
            let mut value = serde_json::to_value(object).ok()?;
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                METADATA_ASIDE.iter().for_each(|field| {
                    metadata.remove(*field);
                });
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.retain(|name, _| !name.starts_with(APPLIED));
                }
            }
            if kind == "Service" {
                set_aside_addresses(&mut value);
            }
            normalise(&mut value, &replaced);
            Some((format!("{kind} {name}"), value))
        });
        Self { objects: objects.collect() }
    }

    pub(crate) fn contains(&self, kind: &str, name: &str) -> bool {
        self.objects.contains_key(&format!("{kind} {name}"))
    }

    /// How this differs from what it should be.
    pub fn differences(&self, should: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (name, expected) in &should.objects {
            match self.objects.get(name) {
                None => found.push(Difference::Missing(name.clone())),
                Some(value) => compare(name.clone(), value, expected, &mut found),
            }
        }
        let surplus = self.objects.keys().filter(|name| !should.objects.contains_key(*name));
        found.extend(surplus.cloned().map(Difference::Surplus));
        found
    }
}

/// The namespaced kinds that can be listed, and say something about what an operator did.
pub(crate) async fn listed_kinds(client: &Client) -> Result<Vec<ApiResource>> {
    let discovery = Discovery::new(client.clone()).run().await;
    let discovery = discovery.map_err(Error::api("see which kinds there are"))?;
    let kinds = discovery.groups().flat_map(|group| group.recommended_resources());
    let listed = kinds.filter(|(kind, capabilities)| {
        capabilities.scope == Scope::Namespaced
            && capabilities.supports_operation(verbs::LIST)
            && !ASIDE.contains(&kind.kind.as_str())
    });
    Ok(listed.map(|(kind, _)| kind).collect())
}

/// What the API server allots to a Service.
fn set_aside_addresses(service: &mut Value) {
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, _| !matches!(field.as_str(), "clusterIP" | "clusterIPs" | "healthCheckNodePort"));
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
}

/// Times become `TIME`, and what is named by something random by what it is.
fn normalise(value: &mut Value, replaced: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = replaced.get(text.as_str()) {
                name.clone_into(text);
            } else if text.parse::<jiff::Timestamp>().is_ok() {
                "TIME".clone_into(text);
            } else {
                for (random, name) in replaced.iter().filter(|(random, _)| random.len() > 8) {
                    if text.contains(random.as_str()) {
                        *text = text.replace(random.as_str(), name);
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalise(item, replaced)),
        Value::Object(fields) => {
            let observed_generation = "observedGeneration";
            fields.remove(observed_generation);
            fields.values_mut().for_each(|field| normalise(field, replaced));
        }
        _ => {}
    }
}

fn compare(path: String, is: &Value, should: &Value, found: &mut Vec<Difference>) {
    match (is, should) {
        (Value::Object(is), Value::Object(should)) => {
            let empty = Value::Null;
            for name in is.keys().chain(should.keys().filter(|name| !is.contains_key(*name))) {
                let value =
                    |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_else(|| empty.clone());
                compare(format!("{path}/{name}"), &value(is), &value(should), found);
            }
        }
        (Value::Array(is), Value::Array(should)) if is.len() == should.len() => {
            for (index, (is, should)) in is.iter().zip(should).enumerate() {
                compare(format!("{path}/{index}"), is, should, found);
            }
        }
        _ if is == should => {}
        _ => found.push(Difference::Changed(path, is.to_string(), should.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(objects: Vec<(&str, Value)>, namespace: &str) -> State {
        let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
        State::normalised(
            objects.into_iter().map(|(kind, value)| (kind.to_owned(), object(value))).collect(),
            namespace,
        )
    }

    fn run(namespace: &str, uid: &str, version: &str, size: u64) -> State {
        state(
            vec![
                (
                    "Widget",
                    json!({"metadata": {"name": "a", "namespace": namespace, "uid": uid, "resourceVersion": version}}),
                ),
                (
                    "ConfigMap",
                    json!({
                        "metadata": {
                            "name": "child", "namespace": namespace, "uid": format!("{uid}-child"),
                            "creationTimestamp": format!("2026-01-01T00:00:0{size}Z"),
                            "ownerReferences": [{"uid": uid, "name": "a"}],
                            "labels": {"owner": uid},
                        },
                        "data": {"size": 1, "at": "2026-11-16T08:00:00.123Z", "where": format!("http://a.{namespace}-long.svc")},
                    }),
                ),
            ],
            namespace,
        )
    }

    #[test]
    fn two_runs_that_did_the_same_are_the_same() {
        assert_eq!(run("trial-abcde", "11111111-1111", "7", 1), run("trial-fghij", "22222222-2222", "9", 2));
    }

    #[test]
    fn what_differs_is_told_by_where_it_is() {
        let is = state(
            vec![
                ("ConfigMap", json!({"metadata": {"name": "a"}, "data": {"x": 1}})),
                ("Pod", json!({"metadata": {"name": "p"}})),
            ],
            "n",
        );
        let should = state(
            vec![
                ("ConfigMap", json!({"metadata": {"name": "a"}, "data": {"x": 2}})),
                ("Pod", json!({"metadata": {"name": "q"}})),
            ],
            "n",
        );
        let told: Vec<_> = is.differences(&should).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["ConfigMap a/data/x is 1, and should be 2", "Pod q is missing", "Pod p should not be there"]
        );
    }
}
