//! CronTab on a real API server.

use crontab_operator::{cron_tab::api::CronTab, manager};
use k8s_openapi::api::{
    batch::v1::CronJob,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_the_documentation_becomes_a_cron_job() {
    let place = Place::with("documentation", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let sample: DynamicObject =
        serde_saphyr::from_str(include_str!("../../config/samples/stable_v1_crontab.yaml")).unwrap();
    let kind = ApiResource::erase::<CronTab>(&());
    let samples: Api<DynamicObject> = Api::default_namespaced_with(place.client(), &kind);
    samples.create(&PostParams::default(), &sample).await.unwrap();
    let words = "Creating CronJob my-new-cron-object";
    events.expect(EventType::Normal, "Creating", words).await.unwrap();

    let cron_jobs: Api<CronJob> = place.api();
    let cron_job = cron_jobs.get("my-new-cron-object").await.unwrap();
    assert_eq!(cron_job.metadata.owner_references.unwrap()[0].kind, "CronTab", "so it goes with it");
    let spec = cron_job.spec;
    assert_eq!(spec.schedule, "* * * * */5");
    let job = spec.job_template.spec.unwrap();
    assert_eq!(job.parallelism, Some(1), "that is the default");
    let pod_spec = job.template.spec.unwrap();
    assert_eq!(pod_spec.containers[0].image.as_deref(), Some("my-awesome-cron-image"));

    // Its controller says when it ran it.
    let ran = json!({"status": {"lastScheduleTime": "2018-11-02T09:00:00Z"}});
    let params = PatchParams::default();
    cron_jobs.patch_status("my-new-cron-object", &params, &Patch::Merge(&ran)).await.unwrap();
    eventually("the status says so", async || {
        let status =
            place.api::<CronTab>().get("my-new-cron-object").await.unwrap().status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        ready.is_some_and(|ready| ready.status == "True" && ready.message == "it runs at * * * * */5")
            && status.observed_generation == Some(1)
            && status.last_schedule_time.is_some_and(|time| time.0.to_string() == "2018-11-02T09:00:00Z")
    })
    .await;

    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(place.client());
    namespaces.patch(place.namespace().name(), &params, &Patch::Merge(enforce)).await.unwrap();
    let mut pod = Pod { spec: Some(pod_spec), ..Pod::default() };
    pod.metadata.name = Some("as-its-job-would-make-it".to_owned());
    place.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_change_is_done_and_what_somebody_else_changes_is_put_back() {
    let place = Place::with("changed", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let cron_jobs: Api<CronJob> = place.api();
    let is_so = async || {
        let spec = cron_jobs.get_opt("cron").await.unwrap()?.spec;
        Some((spec.schedule, spec.job_template.spec?.parallelism?))
    };
    for (schedule, replicas) in [("5 0 * * *", 1), ("*/10 * * * *", 10)] {
        let spec = json!({"cronSpec": schedule, "image": "image", "replicas": replicas});
        place.apply::<CronTab>("cron", spec).await.unwrap();
        eventually("the CronJob says the same", async || {
            is_so().await == Some((schedule.to_owned(), replicas))
        })
        .await;
    }
    let by = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let never = json!({"spec": {"schedule": "0 0 30 2 *"}});
    cron_jobs.patch("cron", &by, &Patch::Merge(never)).await.unwrap();
    let words = "restored what somebody had changed: apply CronJob cron";
    events.expect(EventType::Normal, "Restored", words).await.unwrap();
    assert_eq!(is_so().await, Some(("*/10 * * * *".to_owned(), 10)));

    cron_jobs.delete("cron", &DeleteParams::default()).await.unwrap();
    eventually("it is there again", async || is_so().await.is_some()).await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_there_is_not_is_told_and_heals() {
    let place = Place::with("no-such-time", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let told = async |status: &str, reason: &str, words: &str| {
        let cron_tab = place.api::<CronTab>().get("cron").await.unwrap();
        let conditions = cron_tab.status.unwrap_or_default().conditions;
        conditions.iter().any(|ready| {
            ready.type_ == "Ready"
                && (ready.status.as_str(), ready.reason.as_str()) == (status, reason)
                && ready.message.contains(words)
                && ready.observed_generation == cron_tab.metadata.generation
        })
    };
    place.apply::<CronTab>("cron", json!({"cronSpec": "99 * * * *", "image": "image"})).await.unwrap();
    let words = "end of range (99) above maximum (59)";
    eventually("the condition says so", async || told("False", "Invalid", words).await).await;
    eventually("an event says so", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.reason == "Invalid" && event.message.contains(words))
    })
    .await;

    place.apply::<CronTab>("cron", json!({"cronSpec": "9 * * * *", "image": "image"})).await.unwrap();
    eventually("it is scheduled", async || told("True", "Scheduled", "it runs at 9 * * * *").await).await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_restarted_writes_nothing_about_what_is_as_it_is_to_be() {
    let place = Place::with("restarted", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let is_scheduled = async |name: &str| {
        let status = place.api::<CronTab>().get(name).await.unwrap().status.unwrap_or_default();
        status.conditions.iter().any(|condition| condition.reason == "Scheduled")
    };
    let spec = json!({"cronSpec": "5 0 * * *", "image": "image"});
    place.apply::<CronTab>("settled", spec.clone()).await.unwrap();
    eventually("it is scheduled", async || is_scheduled("settled").await).await;
    operating.stop().await.unwrap();

    let mark = place.namespace().mark().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    // What comes later is done later: when that is scheduled, the first was looked at.
    place.apply::<CronTab>("later", spec).await.unwrap();
    eventually("the later one is scheduled", async || is_scheduled("later").await).await;
    operating.stop().await.unwrap();
    let requests = place.namespace().requests_since(&mark).await.unwrap();
    let about = |name: &str| requests.writes().filter(|request| request.name.starts_with(name));
    assert!(about("settled").is_empty(), "{}", about("settled"));
    assert_eq!(about("later").count("patch", "cronjobs"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = Place::with("refused", &manager()).await.unwrap();
    let long = "a".repeat(53);
    for (name, spec, complaint) in [
        ("cron", json!({"image": "image"}), "spec.cronSpec: Required value"),
        ("cron", json!({"cronSpec": "* * * * *"}), "spec.image: Required value"),
        (
            "cron",
            json!({"cronSpec": "* * * * *", "image": ""}),
            "spec.image in body should be at least 1 chars",
        ),
        ("cron", json!({"cronSpec": "* * * *", "image": "image"}), "spec.cronSpec in body should match"),
        ("cron", json!({"cronSpec": "every day", "image": "image"}), "spec.cronSpec in body should match"),
        (
            "cron",
            json!({"cronSpec": "* * * * *", "image": "image", "replicas": 0}),
            "greater than or equal to 1",
        ),
        (
            "cron",
            json!({"cronSpec": "* * * * *", "image": "image", "replicas": 11}),
            "less than or equal to 10",
        ),
        (
            "cron",
            json!({"cronSpec": "* * * * *", "image": "image", "size": 1}),
            "field not declared in schema",
        ),
        (
            &*long,
            json!({"cronSpec": "* * * * *", "image": "image"}),
            "the name must have at most 52 characters",
        ),
    ] {
        let refused = place.apply::<CronTab>(name, spec.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(complaint), "{spec}: {refused}");
    }
}
