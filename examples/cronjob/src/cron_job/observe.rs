//! Observe: a CronJob, its Jobs and the time. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use wheelhouse::{Reference, Result, World, jiff::Timestamp, world::Failure};

use super::{
    api::CronJob,
    schedule::{Schedule, job_name, run_of},
};

wheelhouse::projection! {
    /// The fields of a Job that are read. The cache holds nothing else of Jobs.
    pub struct JobView of Job {
        status: JobState,
    }
}

/// How a Job is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobState {
    #[serde(default)]
    conditions: Vec<JobCondition>,
}

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: CronJob,
    /// Its Jobs, by the runs that they are for: the oldest first.
    pub jobs: Vec<JobSeen>,
    /// Whether the name that the next Job would have is taken by one of somebody else.
    #[serde(default)]
    pub is_name_taken: bool,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSeen {
    /// The run that it is for; none if somebody made it by hand.
    pub run: Option<Timestamp>,
    /// This very one.
    pub reference: Reference,
    /// How it ended, if it has.
    #[serde(default)]
    pub ended: Option<Ended>,
}

/// How a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    /// It did what it was to do.
    Succeeded,
    /// It did not, and will not be tried again.
    Failed,
}

impl Seen {
    /// The last run that the status remembers.
    pub fn remembered_run(&self) -> Option<Timestamp> {
        self.resource.status.as_ref()?.last_schedule_time.as_ref().map(|time| time.0)
    }

    /// The last run that began: the status remembers it, or its Job is there.
    pub fn last_run(&self) -> Option<Timestamp> {
        self.jobs.iter().filter_map(|job| job.run).chain(self.remembered_run()).max()
    }

    /// The run that has come and has not begun. Of several that were missed it is the last. What was before the CronJob
    /// was made is none.
    pub fn due(&self, schedule: &Schedule) -> Option<Timestamp> {
        let made = self.resource.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0);
        let since = self.last_run().unwrap_or(made);
        schedule.latest(self.now).filter(|run| *run > since)
    }

    /// The Jobs that have not ended.
    pub fn active(&self) -> impl Iterator<Item = &JobSeen> {
        self.jobs.iter().filter(|job| job.ended.is_none())
    }
}

pub(super) async fn observe(resource: Arc<CronJob>, world: &World<'_>) -> Result<Seen> {
    let name = resource.name_any();
    let jobs = world.owned::<JobView>().await?;
    let mut jobs: Vec<_> = jobs.iter().map(|job| see(&name, job)).collect();
    jobs.sort_by(|one, other| (one.run, &one.reference.name).cmp(&(other.run, &other.reference.name)));
    let mut seen = Seen {
        resource: (*resource).clone(),
        jobs,
        is_name_taken: false,
        last_failure: world.last_failure(),
        now: world.now(),
    };
    let due = Schedule::parse(&resource.spec.schedule).ok().and_then(|schedule| seen.due(&schedule));
    if let Some(run) = due {
        // If it were its own, the run would not be due.
        seen.is_name_taken = world.get::<JobView>(&job_name(&name, run)).await?.is_some();
    }
    Ok(seen)
}

fn see(cron_job: &str, job: &JobView) -> JobSeen {
    let is = |condition: &JobCondition, kind| condition.type_ == kind && condition.status == "True";
    let ended = job.status.conditions.iter().find_map(|condition| match condition {
        condition if is(condition, "Complete") => Some(Ended::Succeeded),
        condition if is(condition, "Failed") => Some(Ended::Failed),
        _ => None,
    });
    JobSeen { run: run_of(cron_job, &job.name_any()), reference: Reference::of(job), ended }
}
