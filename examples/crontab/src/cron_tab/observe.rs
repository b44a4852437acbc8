//! Observe: a CronTab and its CronJob, as far as a decision needs them. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::{api::batch::v1::CronJob, apimachinery::pkg::apis::meta::v1::Time};
use serde::{Deserialize, Serialize};
use wheelhouse::{Result, World, jiff::Timestamp, world::Failure};

use super::api::CronTab;

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: CronTab,
    /// Its CronJob, if there is one.
    pub cron_job: Option<CronJobSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// How a CronJob is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSeen {
    /// When it was run last.
    pub last_schedule_time: Option<Time>,
}

pub(super) async fn observe(resource: Arc<CronTab>, world: &World<'_>) -> Result<Seen> {
    let cron_jobs = world.owned::<CronJob>().await?;
    let cron_job = cron_jobs.first().map(|cron_job| CronJobSeen {
        last_schedule_time: cron_job.status.as_ref().and_then(|status| status.last_schedule_time.clone()),
    });
    Ok(Seen { resource: (*resource).clone(), cron_job, last_failure: world.last_failure(), now: world.now() })
}
