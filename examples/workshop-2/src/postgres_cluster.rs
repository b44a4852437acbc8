//! PostgresCluster: what happens to each of them is said.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a PostgresCluster into [`observe::Seen`].
//! - [`analyse`]: decides what is to be said, and does nothing else.
//! - [`act`]: says it.

pub mod act;
pub mod analyse;
pub mod api;
pub mod observe;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use wheelhouse::{Acting, Controller, Operator, Plan, Result, World};

use self::{act::Say, api::PostgresCluster, observe::Seen};

/// The operator.
pub struct PostgresClusterOperator;

impl Operator for PostgresClusterOperator {
    type Resource = PostgresCluster;
    type Observation = Seen;
    type Action = Say;

    async fn observe(&self, resource: Arc<PostgresCluster>, _: &World<'_>) -> Result<Seen> {
        Ok(Seen { resource: (*resource).clone() })
    }

    fn analyse(&self, seen: &Seen) -> Plan<Say> {
        analyse::analyse(seen)
    }

    async fn act(&self, say: Say, _: &Acting<'_>) -> Result<()> {
        tracing::info!("{}", say.line());
        Ok(())
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    PostgresCluster::crd()
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<PostgresClusterOperator> {
    Controller::new(PostgresClusterOperator)
}
