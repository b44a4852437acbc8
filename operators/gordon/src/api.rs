//! The CRD: `operator.prgcont.cz/v1`, as in the talk.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cluster of Gordons: so many pods, each of which can say who it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.prgcont.cz",
    version = "v1",
    kind = "Gordon",
    plural = "gordons",
    singular = "gordon",
    shortname = "gn",
    namespaced,
    derive = "PartialEq",
    status = "GordonStatus",
    scale(
        spec_replicas_path = ".spec.gordon.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    validation = ("self.metadata.name.size() <= 56", "the name must have at most 56 characters: pods are named after it"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.gordon.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GordonSpec {
    /// What the Gordons are to be like.
    pub gordon: Gordons,
}

/// What the Gordons of a cluster are to be like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gordons {
    /// How many of them are to run.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// The image that they run; the operator's own Gordon if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// What is to be different about the pods: part of a pod template, with
    /// `metadata` (labels, annotations) and `spec`. The container is called `gordon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub template: Option<Value>,
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// What became of a cluster of Gordons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GordonStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Every one of them.
    #[serde(default)]
    pub pods: Vec<PodStatus>,
    /// How to find them by label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Whether all is well (`Ready`), and if not, why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// One Gordon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The name of the pod.
    pub name: String,
    /// Its phase; `Terminating` while it goes.
    pub phase: String,
    /// Whether it answers.
    pub ready: bool,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}
