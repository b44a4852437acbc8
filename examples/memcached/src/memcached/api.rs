//! What people write, and what they read back: `cache.example.com/v1alpha1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Memcached: so many memcacheds, none of which knows of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    derive = "PartialEq",
    status = "MemcachedStatus",
    validation = ("self.metadata.name.size() <= 63", "the name must have at most 63 characters: it is a label of the pods"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Available", type_ = "string", json_path = r#".status.conditions[?(@.type=="Available")].status"#),
    printcolumn(name = "Degraded", type_ = "string", json_path = r#".status.conditions[?(@.type=="Degraded")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// How many memcacheds are to run.
    #[schemars(range(min = 0, max = 5))]
    pub size: i32,
}

/// What became of a Memcached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The names of its pods, sorted.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Whether any of them answers (`Available`), and whether something is not as it is to be (`Degraded`).
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
