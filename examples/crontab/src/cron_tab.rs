//! CronTab: a CronJob is kept for each of them.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a CronTab and its CronJob into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else.

pub mod analyse;
pub mod api;
pub mod observe;

use std::sync::Arc;

use k8s_openapi::{
    api::batch::v1::CronJob, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt as _;
use wheelhouse::{Controller, NoAction, Operator, Plan, Result, World};

use self::{api::CronTab, observe::Seen};

/// The operator.
pub struct CronTabOperator;

impl Operator for CronTabOperator {
    type Resource = CronTab;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<CronTab>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    CronTab::crd()
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<CronTabOperator> {
    Controller::new(CronTabOperator).owns::<CronJob>()
}
