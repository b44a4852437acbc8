//! PostgresCluster: a kind that Kubernetes learns from this program.

pub mod api;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use self::api::PostgresCluster;

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    PostgresCluster::crd()
}
