//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.
//!
//! Invariants:
//! - A run begins at most once: its Job is named after its time, and counts as begun if the Job is there or the status
//!   remembers it.
//! - So a Job is deleted only after the status remembers its run. If the operator dies in between, nothing begins twice.
//! - Under `Forbid` and `Replace` no run begins while a Job of an earlier one has not ended, not even while it goes.
//! - One deletion a plan, and it is the last step.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use wheelhouse::{
    Event, Plan, Step,
    jiff::{SignedDuration, Timestamp},
    plan::{Condition, Conditions, Guard},
};

use super::{
    api::{ConcurrencyPolicy, CronJobStatus},
    job,
    observe::{Ended, JobSeen, Seen},
    schedule::{Schedule, job_name},
};

/// When to look again at what waits for nothing but the status that this plan writes.
const SOON: Duration = Duration::from_secs(1);

/// How it stands with the runs of a CronJob.
enum Standing<'a> {
    /// Its schedule is none, and why.
    Invalid(String),
    /// Nothing begins.
    Suspended,
    /// Every run that has come has begun.
    UpToDate,
    /// This run begins now.
    Due(Timestamp),
    /// This run has come, and it is too late to begin it.
    Missed(Timestamp),
    /// This run has come, and waits until that Job has ended.
    Waits(Timestamp, &'a JobSeen),
    /// This run has come, and that Job goes first.
    Replaces(Timestamp, &'a JobSeen),
    /// This run has come, and its Job would have a name that is somebody else's.
    NameTaken(Timestamp),
}

/// What is to be done about one CronJob.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let schedule = Schedule::parse(&seen.resource.spec.schedule);
    let standing = standing(seen, &schedule);
    let next = schedule.ok().and_then(|schedule| schedule.next(seen.now));
    begin(&mut plan, seen, &standing);
    tell(&mut plan, seen, &standing);
    remove_one(&mut plan, seen, &standing);
    look_again(&mut plan, seen, &standing, next);
    plan.set_status(&status(seen, &standing, next));
    plan
}

fn standing<'a>(seen: &'a Seen, schedule: &Result<Schedule, String>) -> Standing<'a> {
    let schedule = match schedule {
        Ok(schedule) => schedule,
        Err(complaint) => return Standing::Invalid(complaint.clone()),
    };
    let spec = &seen.resource.spec;
    if spec.is_suspended() {
        return Standing::Suspended;
    }
    let Some(run) = seen.due(schedule) else { return Standing::UpToDate };
    if seen.deadline(run).is_some_and(|deadline| deadline < seen.now) {
        return Standing::Missed(run);
    }
    match (spec.concurrency_policy(), seen.active().next()) {
        (ConcurrencyPolicy::Forbid, Some(job)) => Standing::Waits(run, job),
        (ConcurrencyPolicy::Replace, Some(job)) => Standing::Replaces(run, job),
        _ if seen.is_name_taken => Standing::NameTaken(run),
        _ => Standing::Due(run),
    }
}

impl Seen {
    /// Until when a run may begin.
    fn deadline(&self, run: Timestamp) -> Option<Timestamp> {
        let seconds = self.resource.spec.starting_deadline_seconds?;
        run.checked_add(SignedDuration::from_secs(seconds)).ok()
    }
}

fn begin(plan: &mut Plan, seen: &Seen, standing: &Standing<'_>) {
    if let Standing::Due(run) = standing {
        let job = job::render(&seen.resource, *run);
        plan.tell(Event::normal("Created", format!("Created Job {} for the run of {run}", job.name_any())));
        plan.create(&job, format!("the run of {run} has come"));
    }
}

fn tell(plan: &mut Plan, seen: &Seen, standing: &Standing<'_>) {
    let (_, reason, message) = words(seen, standing, None);
    match standing {
        Standing::Invalid(_) | Standing::Missed(_) | Standing::NameTaken(_) => {
            plan.tell(Event::warning(reason, message));
        }
        Standing::Waits(..) | Standing::Replaces(..) => plan.tell(Event::normal(reason, message)),
        Standing::Suspended | Standing::UpToDate | Standing::Due(_) => {}
    }
}

/// The most urgent removal, if there is one.
fn remove_one(plan: &mut Plan, seen: &Seen, standing: &Standing<'_>) {
    if let Standing::Replaces(run, _) = standing {
        if let Some(job) = seen.active().find(|job| !job.reference.terminating) {
            // It may have ended by now, and then it is history.
            let step = Step::Delete { target: job.reference.clone(), guard: Guard::Unchanged };
            plan.step(step, format!("the run of {run} replaces it"));
        }
        return;
    }
    let spec = &seen.resource.spec;
    let limits = [
        (Ended::Succeeded, spec.successful_jobs_history_limit(), "succeeded"),
        (Ended::Failed, spec.failed_jobs_history_limit(), "failed"),
    ];
    for (ended, limit, word) in limits {
        let past = || seen.jobs.iter().filter(|job| job.ended == Some(ended) && !job.reference.terminating);
        let surplus = past().count().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let Some(oldest) = past().next().filter(|_| surplus > 0) else { continue };
        if oldest.run > seen.remembered_run() {
            plan.look_again_after(SOON);
        } else {
            return plan
                .delete(oldest.reference.clone(), format!("of the Jobs that {word}, {limit} are kept"));
        }
    }
}

fn look_again(plan: &mut Plan, seen: &Seen, standing: &Standing<'_>, next: Option<Timestamp>) {
    let until = |time: Timestamp| time.duration_since(seen.now).try_into().unwrap_or(SOON);
    if let Standing::Invalid(_) | Standing::Suspended = standing {
        return;
    }
    if let Some(next) = next {
        plan.look_again_after(until(next));
    }
    if let Standing::Waits(run, _) | Standing::Replaces(run, _) = standing
        && let Some(deadline) = seen.deadline(*run)
    {
        // Then it does not wait any more.
        plan.look_again_after(until(deadline) + SOON);
    }
}

fn status(seen: &Seen, standing: &Standing<'_>, next: Option<Timestamp>) -> CronJobStatus {
    let generation = seen.resource.metadata.generation;
    let last = seen.resource.status.clone().unwrap_or_default();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(readiness(seen, standing, next));
    CronJobStatus {
        observed_generation: generation,
        active: seen.active().map(|job| job.reference.name.clone()).collect(),
        last_schedule_time: seen.last_run().map(Time),
        conditions: conditions.into_vec(),
    }
}

fn readiness(seen: &Seen, standing: &Standing<'_>, next: Option<Timestamp>) -> Condition {
    let (is_ready, reason, message) = match &seen.last_failure {
        Some(failure) => (false, failure.category.as_str(), failure.message.clone()),
        None => words(seen, standing, next),
    };
    Condition { kind: "Ready", status: is_ready.into(), reason: reason.to_owned(), message }
}

/// Whether runs begin as the schedule says, and why not: one word, and a sentence.
fn words(seen: &Seen, standing: &Standing<'_>, next: Option<Timestamp>) -> (bool, &'static str, String) {
    match standing {
        Standing::Invalid(complaint) => (false, "InvalidSchedule", complaint.clone()),
        Standing::Suspended => (false, "Suspended", "No run begins while spec.suspend is true".to_owned()),
        Standing::UpToDate | Standing::Due(_) => {
            let next = next.map_or_else(|| "never".to_owned(), |next| format!("at {next}"));
            (true, "Scheduled", format!("The next run begins {next}"))
        }
        Standing::Missed(run) => {
            let seconds = seen.resource.spec.starting_deadline_seconds.unwrap_or_default();
            let why = format!("it did not begin within {seconds} seconds");
            (false, "MissedRun", format!("The run of {run} is left out: {why}"))
        }
        Standing::Waits(run, job) => {
            (false, "Waiting", format!("The run of {run} waits until Job {} has ended", job.reference.name))
        }
        Standing::Replaces(run, job) => {
            (false, "Replacing", format!("The run of {run} replaces Job {}", job.reference.name))
        }
        Standing::NameTaken(run) => {
            let name = job_name(&seen.resource.name_any(), *run);
            let advice = "rename this CronJob or remove that Job";
            (false, "NameTaken", format!("Job {name} belongs to somebody else: {advice}"))
        }
    }
}

#[cfg(test)]
mod tests;
