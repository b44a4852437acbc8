//! What people write, and what they read back: `samplecontroller.example.com/v1alpha1`, with the original's fields.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Foo: a Deployment of nginx under a name that one chooses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "samplecontroller.example.com",
    version = "v1alpha1",
    kind = "Foo",
    plural = "foos",
    namespaced,
    derive = "PartialEq",
    status = "FooStatus",
    validation = ("self.metadata.name.size() <= 63", "the name must have at most 63 characters: it is a label of the pods"),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".spec.deploymentName"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment. It can be changed: then the Deployment of the name before goes.
    #[schemars(
        length(max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub deployment_name: String,
    /// How many pods it has. Without a number it begins with one, and whoever wants to may scale it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// What became of a Foo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many pods of its Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,
}
