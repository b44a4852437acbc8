//! What is let in, and what its sender is told.

use cronjob_operator::cron_job::{api, v2};
use serde_json::{Value, json};
use wheelhouse_testing::Place;

use super::{at_work, spec};

/// What somebody is told who writes this.
async fn refusal<K>(place: &Place, name: &str, spec: Value) -> String
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    match place.apply::<K>(name, spec.clone()).await {
        Ok(_) => panic!("{spec} was taken"),
        Err(refused) => refused.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_in_words() {
    let (place, operating) = at_work("refused").await;
    for (more, words) in [
        (json!({"schedule": "every night"}), "spec.schedule \"every night\" is none that cron knows"),
        (json!({"schedule": "0 0 31 2 *"}), "spec.schedule \"0 0 31 2 *\" never comes"),
        (json!({"schedule": ""}), "spec.schedule in body should be at least 1 chars long"),
        (json!({"concurrencyPolicy": "Sometimes"}), "expected one of `Allow`, `Forbid`, `Replace`"),
        (json!({"startingDeadlineSeconds": -1}), "should be greater than or equal to 0"),
        (json!({"successfulJobsHistoryLimit": -1}), "should be greater than or equal to 0"),
        (json!({"failedJobsHistoryLimit": -1}), "should be greater than or equal to 0"),
        (json!({"jobTemplate": {"spec": {"paralelism": 2}}}), "field not declared in schema"),
    ] {
        let told = refusal::<api::CronJob>(&place, "one", spec(more)).await;
        assert!(told.contains(words), "{told}");
    }
    let mut without_a_job = spec(json!({}));
    without_a_job["jobTemplate"] = json!({});
    let told = refusal::<api::CronJob>(&place, "one", without_a_job).await;
    assert!(told.contains("spec.jobTemplate.spec must say what a Job is to do"), "{told}");
    let long = "n".repeat(53);
    let told = refusal::<api::CronJob>(&place, &long, spec(json!({}))).await;
    assert!(told.contains("the name must have at most 52 characters: Jobs are named after it"), "{told}");
    place.apply::<api::CronJob>(&"n".repeat(52), spec(json!({}))).await.unwrap();

    let told = refusal::<v2::CronJob>(&place, "two", spec(json!({"schedule": {"minute": "61"}}))).await;
    assert!(told.contains("spec.schedule \"61 * * * *\" is none that cron knows"), "{told}");
    let told = refusal::<v2::CronJob>(&place, "two", spec(json!({"schedule": {"minute": "0 0"}}))).await;
    assert!(
        told.contains("spec.schedule.minute must be one word, such as 0,30 or */5, and not \"0 0\""),
        "{told}"
    );
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_out_is_filled_in_whichever_version_it_was_left_out_of() {
    let (place, operating) = at_work("filled-in").await;
    let one = place.apply::<api::CronJob>("one", spec(json!({}))).await.unwrap().spec;
    assert_eq!(one.concurrency_policy, Some(api::ConcurrencyPolicy::Allow));
    assert_eq!(one.suspend, Some(false));
    assert_eq!((one.successful_jobs_history_limit, one.failed_jobs_history_limit), (Some(3), Some(1)));
    let two = place.apply::<v2::CronJob>("two", spec(json!({"schedule": {"hour": "3"}}))).await.unwrap().spec;
    assert_eq!(two.concurrency_policy, Some(api::ConcurrencyPolicy::Allow));
    assert_eq!(two.schedule.minute, "*");
    operating.stop().await.unwrap();
}
