//! PostgresCluster: a PostgreSQL is kept for each of them.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a PostgresCluster and its StatefulSet into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else; `children` says what a PostgreSQL is made of.

pub mod analyse;
pub mod api;
mod children;
pub mod observe;

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt as _;
use wheelhouse::{Controller, NoAction, Operator, Plan, Result, World};

use self::{api::PostgresCluster, observe::Seen};

/// The operator.
pub struct PostgresClusterOperator;

impl Operator for PostgresClusterOperator {
    type Resource = PostgresCluster;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<PostgresCluster>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    PostgresCluster::crd()
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<PostgresClusterOperator> {
    Controller::new(PostgresClusterOperator)
        .owns::<StatefulSet>()
        .owns::<Service>()
        .owns::<PersistentVolumeClaim>()
        .owns::<Secret>()
}
