//! What is looked at before a CronJob is let in. What CEL can say is in `api.rs`: it needs no server.
//!
//! The API server shows us v1, whichever version somebody wrote: it has it converted first.

use wheelhouse::webhooks::Request;

use super::{api::CronJob, schedule::Schedule};

/// Whether a request may be let in; if not, what its sender is told.
///
/// # Errors
/// What is wrong with it, in words for people.
pub fn validate(request: &Request<CronJob>) -> Result<(), String> {
    let Some(new) = &request.object else { return Ok(()) };
    // One that got in before this was looked at can still be changed otherwise, and deleted.
    let is_known = request.old_object.as_ref().is_some_and(|old| old.spec.schedule == new.spec.schedule);
    match Schedule::parse(&new.spec.schedule) {
        Err(complaint) if !is_known => Err(format!("spec.{complaint}")),
        _ => Ok(()),
    }
}

/// Fills in what people left out, so that they can read what will be done.
pub fn fill_in(resource: &mut CronJob) {
    let spec = &mut resource.spec;
    spec.concurrency_policy = Some(spec.concurrency_policy());
    spec.suspend = Some(spec.is_suspended());
    spec.successful_jobs_history_limit = Some(spec.successful_jobs_history_limit());
    spec.failed_jobs_history_limit = Some(spec.failed_jobs_history_limit());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cron_job::api::{ConcurrencyPolicy, CronJobSpec};

    fn spec(content: Value) -> CronJobSpec {
        serde_json::from_value(content).unwrap()
    }

    fn with_schedule(schedule: &str) -> CronJob {
        CronJob::new("one", spec(json!({"schedule": schedule, "jobTemplate": {}})))
    }

    #[test]
    fn what_is_no_schedule_is_refused_in_words() {
        assert_eq!(validate(&Request::creating(with_schedule("*/5 * * * *"))), Ok(()));
        let refused = validate(&Request::creating(with_schedule("every night"))).unwrap_err();
        assert!(refused.starts_with("spec.schedule \"every night\" is none that cron knows"), "{refused}");
    }

    #[test]
    fn one_that_got_in_before_can_be_changed_otherwise() {
        let update = |old: &str, new: &str| Request {
            operation: "UPDATE".to_owned(),
            old_object: Some(with_schedule(old)),
            ..Request::creating(with_schedule(new))
        };
        assert!(validate(&update("every night", "every night")).is_ok());
        assert!(validate(&update("every night", "every day")).is_err());
        let deleting = Request { object: None, ..update("every night", "") };
        assert!(validate(&deleting).is_ok());
    }

    #[test]
    fn what_was_left_out_is_filled_in_and_what_was_said_stays() {
        let mut silent = with_schedule("@daily");
        fill_in(&mut silent);
        assert_eq!(
            silent.spec,
            spec(json!({
                "schedule": "@daily", "jobTemplate": {}, "concurrencyPolicy": "Allow", "suspend": false,
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            }))
        );
        let mut outspoken = with_schedule("@daily");
        outspoken.spec.concurrency_policy = Some(ConcurrencyPolicy::Forbid);
        outspoken.spec.suspend = Some(true);
        outspoken.spec.successful_jobs_history_limit = Some(0);
        outspoken.spec.failed_jobs_history_limit = Some(7);
        let said = outspoken.spec.clone();
        fill_in(&mut outspoken);
        assert_eq!(outspoken.spec, said);
    }
}
