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

#[cfg(test)]
mod tests {
    /// The workshop's are `postgres-cluster.lukeb0nd.com` and "Semi-automatic PostgreSQL cluster".
    #[test]
    fn the_name_and_the_description_are_those_of_the_workshop_as_a_crd_has_them() {
        let crd = crate::manager().crds().remove(0);
        assert_eq!(crd.metadata.name.as_deref(), Some("postgresclusters.lukeb0nd.com"));
        let schema =
            crd.spec.versions[0].schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let description = schema.and_then(|schema| schema.description.as_deref());
        assert_eq!(description, Some("A semi-automatic PostgreSQL cluster."));
    }
}
