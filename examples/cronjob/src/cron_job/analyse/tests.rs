//! Every policy, and what happens around it. A CronJob that was made at 8, and runs at every full hour.

use kube::api::ObjectMeta;
use serde_json::{Value, json};
use wheelhouse::{Kind, Reference, overrides};

use super::*;
use crate::cron_job::{
    api::{CronJob, CronJobSpec},
    observe::JobView,
};

fn at(time: &str) -> Timestamp {
    format!("2026-05-02T{time}Z").parse().unwrap()
}

/// What is seen at that time, with this in the spec and with these Jobs, all of which the status remembers.
fn seen(time: &str, spec: Value, jobs: Vec<JobSeen>) -> Seen {
    let mut content = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": {}}}});
    overrides::merge(&mut content, &spec);
    let spec: CronJobSpec = serde_json::from_value(content).unwrap();
    let mut resource = CronJob::new("report", spec);
    resource.metadata.creation_timestamp = Some(Time(at("08:00:00")));
    let last_schedule_time = jobs.iter().filter_map(|job| job.run).max().map(Time);
    resource.status = Some(CronJobStatus { last_schedule_time, ..CronJobStatus::default() });
    Seen { resource, jobs, is_name_taken: false, last_failure: None, now: at(time) }
}

/// The Job of the run at that time.
fn job(time: &str, ended: Option<Ended>) -> JobSeen {
    let name = job_name("report", at(time));
    let metadata = ObjectMeta { name: Some(name), uid: Some(time.to_owned()), ..ObjectMeta::default() };
    let view = JobView { metadata, ..JobView::default() };
    JobSeen { run: Some(at(time)), reference: Reference::to(&Kind::of::<JobView>(&()), &view), ended }
}

fn going(time: &str, ended: Option<Ended>) -> JobSeen {
    let mut job = job(time, ended);
    job.reference.terminating = true;
    job
}

fn steps(seen: &Seen) -> Vec<String> {
    analyse(seen).steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn create(time: &str) -> String {
    format!("create Job {}", job_name("report", at(time)))
}

fn delete(time: &str) -> String {
    format!("delete Job {}", job_name("report", at(time)))
}

fn status_of(seen: &Seen) -> CronJobStatus {
    serde_json::from_value(analyse(seen).status.unwrap()).unwrap()
}

/// The reason of the condition `Ready`, and what it says.
fn ready(seen: &Seen) -> (String, String, String) {
    let condition = status_of(seen).conditions.remove(0);
    (condition.status, condition.reason, condition.message)
}

fn looks_again_after(seen: &Seen) -> Option<u64> {
    analyse(seen).look_again_after.map(|delay| delay.as_secs())
}

const SUCCEEDED: Option<Ended> = Some(Ended::Succeeded);
const FAILED: Option<Ended> = Some(Ended::Failed);

#[test]
fn a_run_begins_when_its_time_has_come() {
    assert_eq!(steps(&seen("08:59:59", json!({}), vec![])), [""; 0]);
    let seen = seen("09:00:00", json!({}), vec![]);
    assert_eq!(steps(&seen), [create("09:00:00")]);
    let plan = analyse(&seen);
    assert_eq!(
        plan.events[0].note,
        format!("Created Job {} for the run of 2026-05-02T09:00:00Z", job_name("report", at("09:00:00")))
    );
    assert_eq!(ready(&seen).1, "Scheduled");
}

#[test]
fn nothing_that_was_before_it_was_made_is_a_run() {
    assert_eq!(steps(&seen("08:00:00", json!({}), vec![])), [""; 0]);
    assert_eq!(steps(&seen("08:30:00", json!({}), vec![])), [""; 0]);
}

#[test]
fn it_is_looked_at_again_when_the_next_run_comes() {
    let waiting = seen("08:59:00", json!({}), vec![]);
    assert_eq!(looks_again_after(&waiting), Some(60));
    assert_eq!(ready(&waiting).2, "The next run begins at 2026-05-02T09:00:00Z");
    assert_eq!(looks_again_after(&seen("09:00:00", json!({}), vec![])), Some(3600));
}

#[test]
fn a_run_begins_once_whether_its_job_is_there_or_only_remembered() {
    let mut seen = seen("09:10:00", json!({}), vec![job("09:00:00", None)]);
    assert_eq!(steps(&seen), [""; 0]);
    let remembered = seen.resource.status.take();
    assert_eq!(steps(&seen), [""; 0], "the operator died before it wrote the status");
    assert_eq!(status_of(&seen).last_schedule_time, Some(Time(at("09:00:00"))));
    seen.jobs.clear();
    seen.resource.status = remembered;
    assert_eq!(steps(&seen), [""; 0], "somebody deleted the Job");
    assert_eq!(status_of(&seen).last_schedule_time, Some(Time(at("09:00:00"))));
}

#[test]
fn the_status_does_not_tell_of_a_run_before_its_job_is_seen() {
    let status = status_of(&seen("09:00:00", json!({}), vec![]));
    assert_eq!((status.active.len(), status.last_schedule_time), (0, None));
    let status = status_of(&seen("09:00:01", json!({}), vec![job("09:00:00", None)]));
    assert_eq!(status.active, [job_name("report", at("09:00:00"))]);
}

#[test]
fn of_several_runs_that_were_missed_the_last_one_begins() {
    let seen = seen("12:30:00", json!({}), vec![job("09:00:00", SUCCEEDED)]);
    assert_eq!(steps(&seen), [create("12:00:00")]);
}

#[test]
fn a_run_that_is_too_late_is_left_out_and_that_is_told() {
    let deadline = json!({"startingDeadlineSeconds": 60});
    assert_eq!(steps(&seen("09:01:00", deadline.clone(), vec![])), [create("09:00:00")]);
    let late = seen("09:01:01", deadline, vec![]);
    assert_eq!(steps(&late), [""; 0]);
    let message = "The run of 2026-05-02T09:00:00Z is left out: it did not begin within 60 seconds";
    assert_eq!(ready(&late), ("False".to_owned(), "MissedRun".to_owned(), message.to_owned()));
    assert_eq!(analyse(&late).events[0].note, message);
    assert_eq!(looks_again_after(&late), Some(59 * 60 - 1), "the next one may be in time");
}

#[test]
fn nothing_begins_while_it_is_suspended_and_the_past_is_still_cleaned_up() {
    let jobs = vec![job("08:00:00", FAILED), job("09:00:00", FAILED)];
    let seen = seen("10:00:00", json!({"suspend": true}), jobs);
    assert_eq!(steps(&seen), [delete("08:00:00")]);
    assert_eq!(ready(&seen).1, "Suspended");
    assert_eq!(looks_again_after(&seen), None);
}

#[test]
fn allow_lets_runs_overlap() {
    let seen = seen("10:00:00", json!({"concurrencyPolicy": "Allow"}), vec![job("09:00:00", None)]);
    assert_eq!(steps(&seen), [create("10:00:00")]);
}

#[test]
fn forbid_lets_a_run_wait_until_the_earlier_one_has_ended() {
    let forbid = |job| seen("10:00:00", json!({"concurrencyPolicy": "Forbid"}), vec![job]);
    let waiting = forbid(job("09:00:00", None));
    assert_eq!(steps(&waiting), [""; 0]);
    let (status, reason, message) = ready(&waiting);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Waiting"));
    let name = job_name("report", at("09:00:00"));
    assert_eq!(message, format!("The run of 2026-05-02T10:00:00Z waits until Job {name} has ended"));
    assert_eq!(analyse(&waiting).events[0].note, message);
    assert_eq!(steps(&forbid(going("09:00:00", None))), [""; 0], "it has not ended while it goes");
    assert_eq!(steps(&forbid(job("09:00:00", SUCCEEDED))), [create("10:00:00")]);
}

#[test]
fn a_run_that_waits_is_looked_at_again_when_it_is_too_late() {
    let spec = json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 100});
    assert_eq!(looks_again_after(&seen("10:00:30", spec, vec![job("09:00:00", None)])), Some(71));
}

#[test]
fn replace_deletes_what_runs_one_by_one_and_then_begins() {
    let replace = |jobs| seen("11:00:00", json!({"concurrencyPolicy": "Replace"}), jobs);
    let both = replace(vec![job("09:00:00", None), job("10:00:00", None)]);
    assert_eq!(steps(&both), [delete("09:00:00")]);
    let Step::Delete { guard, .. } = &analyse(&both).steps[0].step else { panic!("that is a deletion") };
    assert_eq!(*guard, Guard::Unchanged, "it may have ended meanwhile");
    assert_eq!(ready(&both).1, "Replacing");
    let one_goes = replace(vec![going("09:00:00", None), job("10:00:00", None)]);
    assert_eq!(steps(&one_goes), [delete("10:00:00")]);
    assert_eq!(steps(&replace(vec![going("10:00:00", None)])), [""; 0]);
    assert_eq!(steps(&replace(vec![job("10:00:00", FAILED)])), [create("11:00:00")]);
}

#[test]
fn as_many_jobs_of_the_past_are_kept_as_the_limits_say() {
    let past = || {
        let hours = ["04:00:00", "05:00:00", "06:00:00", "07:00:00"];
        let mut jobs: Vec<_> = hours.iter().map(|hour| job(hour, SUCCEEDED)).collect();
        jobs.push(job("08:00:00", FAILED));
        jobs
    };
    assert_eq!(steps(&seen("08:30:00", json!({}), past())), [delete("04:00:00")], "three are kept");
    let more = json!({"successfulJobsHistoryLimit": 4});
    assert_eq!(steps(&seen("08:30:00", more, past())), [""; 0]);
    let none = json!({"successfulJobsHistoryLimit": 4, "failedJobsHistoryLimit": 0});
    assert_eq!(steps(&seen("08:30:00", none, past())), [delete("08:00:00")]);
    let mut one_goes = past();
    one_goes[0].reference.terminating = true;
    assert_eq!(steps(&seen("08:30:00", json!({}), one_goes)), [""; 0], "that one goes already");
}

#[test]
fn a_deletion_is_the_last_step_and_there_is_one() {
    let jobs = ["01", "02", "03", "04", "05"].map(|hour| job(&format!("{hour}:00:00"), FAILED));
    let seen = seen("09:00:00", json!({}), jobs.to_vec());
    assert_eq!(steps(&seen), [create("09:00:00"), delete("01:00:00")]);
}

#[test]
fn a_job_is_not_deleted_before_the_status_remembers_its_run() {
    let mut seen =
        seen("09:00:30", json!({"successfulJobsHistoryLimit": 0}), vec![job("09:00:00", SUCCEEDED)]);
    let remembered = seen.resource.status.take();
    assert_eq!(steps(&seen), [""; 0], "without the Job and the status the run would begin again");
    assert_eq!(status_of(&seen).last_schedule_time, remembered.clone().unwrap().last_schedule_time);
    assert_eq!(looks_again_after(&seen), Some(1));
    seen.resource.status = remembered;
    assert_eq!(steps(&seen), [delete("09:00:00")]);
}

#[test]
fn a_schedule_that_is_none_is_told() {
    let seen = seen("09:00:00", json!({"schedule": "every night"}), vec![]);
    assert_eq!(steps(&seen), [""; 0]);
    let (status, reason, message) = ready(&seen);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidSchedule"));
    assert!(message.contains("none that cron knows"), "{message}");
    assert_eq!(analyse(&seen).events[0].note, message);
    assert_eq!(looks_again_after(&seen), None);
}

#[test]
fn a_name_that_is_somebody_elses_is_told_and_not_tried() {
    let mut seen = seen("09:00:00", json!({}), vec![]);
    seen.is_name_taken = true;
    assert_eq!(steps(&seen), [""; 0]);
    let (_, reason, message) = ready(&seen);
    assert_eq!(reason, "NameTaken");
    assert!(message.contains(&job_name("report", at("09:00:00"))), "{message}");
}

#[test]
fn nothing_is_done_about_one_that_goes() {
    let mut seen = seen("09:00:00", json!({}), vec![]);
    seen.resource.metadata.deletion_timestamp = Some(Time(at("08:59:00")));
    assert_eq!(analyse(&seen), Plan::new());
}

#[test]
fn a_job_is_what_the_template_says_and_tells_its_run() {
    let template = json!({
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {"backoffLimit": 2, "template": {"metadata": {"labels": {"pod": "c"}}}},
    });
    let seen = seen("09:00:00", json!({"jobTemplate": template}), vec![]);
    let Step::Create(object) = &analyse(&seen).steps[0].step else { panic!("that is a creation") };
    let metadata = &object.content["metadata"];
    assert_eq!(metadata["labels"], json!({"team": "a"}));
    let annotations =
        json!({"batch.tutorial.kubebuilder.io/scheduled-at": "2026-05-02T09:00:00Z", "note": "b"});
    assert_eq!(metadata["annotations"], annotations);
    assert_eq!(object.content["spec"]["backoffLimit"], 2);
    assert_eq!(object.content["spec"]["template"]["metadata"]["labels"], json!({"pod": "c"}));
}
