//! What people write in {{ version }}. It is stored as {{ api.stored }}: [`super::conversion`] goes between the two.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::api::{{ api.kind }}Status;

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
    /// The namespace that they run in.
    #[serde(default = "default_namespace")]
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
