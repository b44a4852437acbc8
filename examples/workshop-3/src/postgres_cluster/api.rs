//! What people write, and what they read back: `lukeb0nd.com/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A semi-automatic PostgreSQL cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "lukeb0nd.com",
    version = "v1",
    kind = "PostgresCluster",
    plural = "postgresclusters",
    namespaced,
    derive = "PartialEq",
    status = "PostgresClusterStatus",
    validation = ("self.metadata.name.size() <= 50", "the name must have at most 50 characters: a pod is named after it"),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "the name becomes that of a Service: it must begin with a letter and have only letters, digits and -"),
    validation = ("self.spec.version == oldSelf.spec.version", "the version cannot be changed: a newer server does not read the data of an older one, and nobody converts it here"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterSpec {
    /// How many servers there are to be.
    #[schemars(range(min = 1, max = 7))]
    pub size: i32,
    /// The version of PostgreSQL, which stays what it was at first. A condition says whether it is to be had.
    #[schemars(regex(pattern = r"^[0-9]+([.][0-9]+)*$"))]
    pub version: String,
}

/// What became of a PostgresCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether as many servers run as are wanted (`Ready`), and if not, why not; and whether it is the version that is
    /// wanted (`WantedVersion`).
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
