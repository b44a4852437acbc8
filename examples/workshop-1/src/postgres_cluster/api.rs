//! What people write: `lukeb0nd.com/v1`.

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
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterSpec {
    /// How many servers there are to be.
    #[schemars(range(min = 1, max = 7))]
    pub size: i32,
    /// The version of PostgreSQL.
    #[schemars(regex(pattern = r"^[0-9]+([.][0-9]+)*$"))]
    pub version: String,
}
