//! CronJob: a Job for every time that a schedule says.
//!
//! - [`api`]: what people write, and what they read back; [`v2`] is the same with another schedule.
//! - [`observe`]: reads a CronJob and its Jobs into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else; [`schedule`] says when runs are, and `job` what they are.
//! - [`admission`]: what is looked at before a CronJob is let in.
//! - [`conversion`]: between v1 and v2.

pub mod admission;
pub mod analyse;
pub mod api;
pub mod conversion;
mod job;
pub mod observe;
pub mod schedule;
pub mod v2;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt as _, ResourceExt as _};
use wheelhouse::{Controller, Key, NoAction, Operator, Plan, Result, World};

use self::{
    api::CronJob,
    observe::{JobView, Seen},
};

/// The operator.
pub struct CronJobOperator;

impl Operator for CronJobOperator {
    type Resource = CronJob;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<CronJob>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    wheelhouse::manager::with_version(CronJob::crd(), v2::CronJob::crd())
}

/// What the API server asks about this kind.
pub fn webhooks(webhooks: wheelhouse::Webhooks) -> wheelhouse::Webhooks {
    webhooks
        .validates::<CronJob>(admission::validate)
        .defaults::<CronJob>(admission::fill_in)
        .converts("cronjobs.batch.tutorial.kubebuilder.io", conversion::convert)
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<CronJobOperator> {
    Controller::new(CronJobOperator).owns::<JobView>().watches::<JobView, _>(named_after)
}

/// Somebody else's Job can have the name that a run's would have: when it goes, the run can begin.
fn named_after(job: &JobView) -> Vec<Key> {
    let (name, namespace) = (job.name_any(), job.namespace());
    let cron_job = name.rsplit_once('-').map(|(cron_job, _)| Key::new(namespace.as_deref(), cron_job));
    cron_job.into_iter().collect()
}
