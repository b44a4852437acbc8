//! Runs that begin, and what becomes of them. The schedule of most of them is the first of January, which was missed:
//! so they begin at once, and only once.

use cronjob_operator::cron_job::{
    api::{CronJob, CronJobStatus},
    schedule::{Schedule, job_name},
};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use wheelhouse::jiff::Timestamp;
use wheelhouse_testing::{EventType, Place, eventually};

use super::{at_work, spec};

/// The last first of January.
fn new_year() -> Timestamp {
    Schedule::parse("@yearly").unwrap().latest(Timestamp::now()).unwrap()
}

/// A CronJob that has last run years ago, and then goes by this spec.
async fn overdue(place: &Place, more: Value) {
    let mut suspended = spec(more.clone());
    suspended["suspend"] = true.into();
    place.apply::<CronJob>("report", suspended).await.unwrap();
    let long_ago = json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}});
    let params = PatchParams::default();
    place.api::<CronJob>().patch_status("report", &params, &Patch::Merge(long_ago)).await.unwrap();
    eventually("it says that it is suspended", async || {
        status(place).await.conditions.iter().any(|condition| condition.reason == "Suspended")
    })
    .await;
    let name = job_name("report", new_year());
    let job = place.api::<Job>().get_opt(&name).await.unwrap();
    assert!(job.is_none_or(|job| job.owner_references().is_empty()), "nothing begins while it is suspended");
    place.apply::<CronJob>("report", spec(more)).await.unwrap();
}

async fn status(place: &Place) -> CronJobStatus {
    place.api::<CronJob>().get("report").await.unwrap().status.unwrap_or_default()
}

async fn jobs(place: &Place) -> Vec<String> {
    let jobs = place.api::<Job>().list(&ListParams::default()).await.unwrap();
    jobs.iter().map(|job| job.name_any()).collect()
}

/// What Kubernetes does when a Job has done what it was to do.
async fn succeed(place: &Place, job: &str) {
    let condition =
        |kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-05-02T00:00:00Z"});
    let times = ("2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z");
    let status = json!({"status": {
        "startTime": times.0, "completionTime": times.1, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let params = PatchParams::default();
    place.api::<Job>().patch_status(job, &params, &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_begins_once_and_its_job_goes_when_it_is_not_to_be_kept() {
    let (place, operating) = at_work("begins").await;
    let events = place.namespace().events().await.unwrap();
    overdue(&place, json!({"successfulJobsHistoryLimit": 0})).await;

    let name = job_name("report", new_year());
    eventually("the Job is there", async || jobs(&place).await == [name.clone()]).await;
    let message = format!("Created Job {name} for the run of {}", new_year());
    events.expect(EventType::Normal, "Created", &message).await.unwrap();
    let job = place.api::<Job>().get(&name).await.unwrap();
    assert_eq!(job.owner_references()[0].kind, "CronJob", "so it goes with it");
    eventually("the status tells of it", async || {
        let status = status(&place).await;
        status.active == [name.clone()] && status.last_schedule_time.is_some_and(|time| time.0 == new_year())
    })
    .await;

    succeed(&place, &name).await;
    eventually("it is gone", async || jobs(&place).await.is_empty()).await;
    eventually("nothing is active", async || status(&place).await.active.is_empty()).await;
    let again = json!({"successfulJobsHistoryLimit": 0, "startingDeadlineSeconds": 1_000_000_000});
    let changed = place.apply::<CronJob>("report", spec(again)).await.unwrap();
    eventually("it was looked at again", async || {
        status(&place).await.observed_generation == changed.metadata.generation
    })
    .await;
    assert!(jobs(&place).await.is_empty(), "a run begins once, also when its Job is gone");
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_replaces_or_waits_as_the_policy_says() {
    let (place, operating) = at_work("policies").await;
    overdue(&place, json!({"concurrencyPolicy": "Forbid"})).await;
    let first = job_name("report", new_year());
    eventually("the Job is there", async || jobs(&place).await == [first.clone()]).await;

    // Every minute there is another run: the last one is due at once.
    let every_minute = |policy: &str| spec(json!({"schedule": "* * * * *", "concurrencyPolicy": policy}));
    place.apply::<CronJob>("report", every_minute("Forbid")).await.unwrap();
    eventually("it says what it waits for", async || {
        let waits = format!("waits until Job {first} has ended");
        status(&place).await.conditions.iter().any(|condition| condition.message.ends_with(&waits))
    })
    .await;
    assert_eq!(jobs(&place).await, std::slice::from_ref(&first));

    place.apply::<CronJob>("report", every_minute("Replace")).await.unwrap();
    eventually("another one is in its place", async || {
        let jobs = jobs(&place).await;
        jobs.len() == 1 && jobs[0] != first
    })
    .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_run_from_beginning_is_told() {
    let (place, operating) = at_work("told").await;
    let events = place.namespace().events().await.unwrap();
    let name = job_name("report", new_year());
    let taken = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec(json!({}))["jobTemplate"]["spec"],
    });
    let taken: Job = serde_json::from_value(taken).unwrap();
    place.api::<Job>().create(&PostParams::default(), &taken).await.unwrap();
    overdue(&place, json!({})).await;
    let message = format!("Job {name} belongs to somebody else: rename this CronJob or remove that Job");
    events.expect(EventType::Warning, "NameTaken", &message).await.unwrap();

    // A pod that always starts again makes no Job, which no schema says.
    let always = json!({"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}});
    let changed = place.apply::<CronJob>("report", spec(always)).await.unwrap();
    eventually("it was looked at, and is still in the way", async || {
        let status = status(&place).await;
        status.observed_generation == changed.metadata.generation
            && status.conditions[0].reason == "NameTaken"
    })
    .await;
    place.api::<Job>().delete(&name, &DeleteParams::background()).await.unwrap();
    let said = "spec.template.spec.restartPolicy";
    eventually("a condition says why", async || {
        let conditions = status(&place).await.conditions;
        conditions.iter().any(|condition| condition.reason == "Invalid" && condition.message.contains(said))
    })
    .await;
    eventually("an event says why", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.reason == "Invalid" && event.message.contains(said))
    })
    .await;

    place.apply::<CronJob>("report", spec(json!({}))).await.unwrap();
    eventually("it begins after all", async || jobs(&place).await == [name.clone()]).await;
    eventually("and all is well", async || {
        status(&place).await.conditions.iter().any(|condition| condition.reason == "Scheduled")
    })
    .await;
    operating.stop().await.unwrap();
}
