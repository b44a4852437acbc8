//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.

use k8s_openapi::api::{
    batch::v1::{CronJob, CronJobSpec, JobSpec, JobTemplateSpec},
    core::v1::{
        Capabilities, Container, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile,
        SecurityContext,
    },
};
use kube::{ResourceExt as _, core::ObjectMeta};
use wheelhouse::{
    Event, Plan,
    plan::{Condition, Conditions},
};

use super::{
    api::{CronTab, CronTabStatus},
    observe::Seen,
};

/// What is to be done about one CronTab.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    if seen.cron_job.is_none() {
        plan.tell(Event::normal("Creating", format!("Creating CronJob {}", seen.resource.name_any())));
    }
    plan.apply(&cron_job(&seen.resource), "every CronTab has a CronJob");
    plan.set_status(&status(seen));
    plan
}

/// The CronJob as it is to be. What is not said here is left as it is.
fn cron_job(cron_tab: &CronTab) -> CronJob {
    let CronTab { spec, .. } = cron_tab;
    let container = Container {
        name: "main".to_owned(),
        image: Some(spec.image.clone()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let pod = PodSpec {
        containers: vec![container],
        restart_policy: Some("OnFailure".to_owned()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let job = JobSpec {
        parallelism: Some(spec.replicas),
        // Without this, the first pod that succeeds would be taken for all of them.
        completions: Some(spec.replicas),
        template: PodTemplateSpec { spec: Some(pod), ..Default::default() },
        ..Default::default()
    };
    CronJob {
        metadata: ObjectMeta { name: Some(cron_tab.name_any()), ..Default::default() },
        spec: CronJobSpec {
            schedule: spec.cron_spec.clone(),
            job_template: JobTemplateSpec { spec: Some(job), ..Default::default() },
            ..Default::default()
        },
        ..Default::default()
    }
}

fn status(seen: &Seen) -> CronTabStatus {
    let generation = seen.resource.metadata.generation;
    let last = seen.resource.status.clone().unwrap_or_default();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(readiness(seen));
    CronTabStatus {
        observed_generation: generation,
        last_schedule_time: seen.cron_job.as_ref().and_then(|cron_job| cron_job.last_schedule_time.clone()),
        conditions: conditions.into_vec(),
    }
}

fn readiness(seen: &Seen) -> Condition {
    let (is_ready, reason, message) = match (&seen.last_failure, &seen.cron_job) {
        (Some(failure), _) => (false, failure.category.as_str(), failure.message.clone()),
        (None, None) => (false, "Creating", "its CronJob is being made".to_owned()),
        (None, Some(_)) => (true, "Scheduled", format!("it runs at {}", seen.resource.spec.cron_spec)),
    };
    Condition { kind: "Ready", status: is_ready.into(), reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use wheelhouse::{error::Category, jiff::Timestamp, world::Failure};

    use super::*;
    use crate::cron_tab::{api::CronTabSpec, observe::CronJobSeen};

    fn seen(cron_job: Option<CronJobSeen>) -> Seen {
        let spec =
            CronTabSpec { cron_spec: "* * * * */5".to_owned(), image: "image".to_owned(), replicas: 3 };
        Seen { resource: CronTab::new("one", spec), cron_job, last_failure: None, now: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn a_cron_job_says_what_the_cron_tab_says() {
        let spec = cron_job(&seen(None).resource).spec;
        assert_eq!(spec.schedule, "* * * * */5");
        let job = spec.job_template.spec.unwrap();
        assert_eq!((job.parallelism, job.completions), (Some(3), Some(3)));
        assert_eq!(job.template.spec.unwrap().containers[0].image.as_deref(), Some("image"));
    }

    #[test]
    fn it_is_ready_when_its_cron_job_is_there_and_nothing_went_wrong() {
        let said = |seen: &Seen| readiness(seen).reason;
        assert_eq!(said(&seen(None)), "Creating");
        let mut seen = seen(Some(CronJobSeen::default()));
        assert_eq!(readiness(&seen).status, true.into());
        assert_eq!(readiness(&seen).message, "it runs at * * * * */5");
        seen.last_failure = Some(Failure { category: Category::Invalid, message: "no".to_owned() });
        assert_eq!(said(&seen), "Invalid", "the CronJob that is there is an old one");
        assert_eq!(readiness(&seen).status, false.into());
    }

    #[test]
    fn a_cron_job_is_announced_when_there_is_none() {
        assert_eq!(analyse(&seen(None)).events, [Event::normal("Creating", "Creating CronJob one")]);
        assert!(analyse(&seen(Some(CronJobSeen::default()))).events.is_empty());
    }

    #[test]
    fn the_status_says_when_it_was_run_last() {
        let last = Some(Time(Timestamp::UNIX_EPOCH));
        let seen = seen(Some(CronJobSeen { last_schedule_time: last.clone() }));
        assert_eq!(status(&seen).last_schedule_time, last);
    }

    #[test]
    fn a_cron_tab_that_goes_is_left_to_it() {
        let mut seen = seen(None);
        seen.resource.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(analyse(&seen), Plan::new());
    }
}
