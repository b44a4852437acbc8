//! Both versions, on an API server that has them converted.

use cronjob_operator::cron_job::{api, v2};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::{at_work, spec};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_one_version_is_read_in_the_other() {
    let (place, operating) = at_work("versions").await;
    let (first, second) = (place.api::<api::CronJob>(), place.api::<v2::CronJob>());
    place.apply::<api::CronJob>("old", spec(json!({"schedule": "*/5 3 * * 1-5"}))).await.unwrap();
    place
        .apply::<v2::CronJob>("new", spec(json!({"schedule": {"minute": "*/5", "hour": "3"}})))
        .await
        .unwrap();

    let old = second.get("old").await.unwrap().spec;
    let fields = json!({"minute": "*/5", "hour": "3", "dayOfMonth": "*", "month": "*", "dayOfWeek": "1-5"});
    assert_eq!(json!(old.schedule), fields);
    assert_eq!(json!(old.job_template), spec(json!({}))["jobTemplate"], "and the rest is as it was");
    assert_eq!(first.get("new").await.unwrap().spec.schedule, "*/5 3 * * *");
    let listed = second.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 2);

    // Back, through an edit in v2.
    let edit = Patch::Merge(json!({"spec": {"schedule": {"hour": "4"}}}));
    second.patch("old", &PatchParams::default(), &edit).await.unwrap();
    assert_eq!(first.get("old").await.unwrap().spec.schedule, "*/5 4 * * 1-5");
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_v2_cannot_say_survives_an_edit_in_v2() {
    let (place, operating) = at_work("survives").await;
    let (first, second) = (place.api::<api::CronJob>(), place.api::<v2::CronJob>());
    let written = place.apply::<api::CronJob>("named", spec(json!({"schedule": "@daily"}))).await.unwrap();
    let edit = async |change| {
        second.patch("named", &PatchParams::default(), &Patch::Merge(json!({"spec": change}))).await.unwrap();
        first.get("named").await.unwrap()
    };
    let suspended = edit(json!({"suspend": true})).await;
    assert_eq!((suspended.spec.schedule.as_str(), suspended.spec.suspend), ("@daily", Some(true)));
    assert_eq!(suspended.metadata.annotations, written.metadata.annotations);
    let moved = edit(json!({"schedule": {"hour": "4"}})).await;
    assert_eq!(moved.spec.schedule, "0 4 * * *", "who changed the fields means these");
    assert_eq!(moved.metadata.annotations, written.metadata.annotations);
    operating.stop().await.unwrap();
}
