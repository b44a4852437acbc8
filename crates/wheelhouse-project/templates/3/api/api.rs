//! What people write, and what they read back: `{{ api.full_group }}/{{ version }}`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A {{ api.kind }}: so many pods of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "{{ api.full_group }}",
    version = "{{ version }}",
    kind = "{{ api.kind }}",
    plural = "{{ api.plural }}",
{%- if not api.cluster_scoped %}
    namespaced,
{%- endif %}
    derive = "PartialEq",
    status = "{{ api.kind }}Status",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas"),
    validation = ("self.metadata.name.size() <= 50", "the name must have at most 50 characters: a Deployment is named after it"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct {{ api.kind }}Spec {
    /// How many pods are to run.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// The image that they run.
    #[schemars(length(min = 1))]
    pub image: String,
{%- if api.cluster_scoped %}
    /// The namespace that they run in, for good: in another one they would be others.
    #[serde(default = "default_namespace")]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "self == oldSelf", "message": "they cannot move to another namespace: make another {{ api.kind }} there"},
    ]))]
    pub namespace: String,
{%- endif %}
}

fn one() -> i32 {
    1
}
{%- if api.cluster_scoped %}

fn default_namespace() -> String {
    "default".to_owned()
}
{%- endif %}

/// What became of a {{ api.kind }}.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct {{ api.kind }}Status {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Whether all is well (`Ready`), and if not, why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
