//! The Job of a run.

use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use wheelhouse::jiff::Timestamp;

use super::{api::CronJob, schedule::job_name};

/// Tells people which run a Job is for: the minutes in its name are hard to read.
const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The Job of this run, as the template has it.
pub(super) fn render(cron_job: &CronJob, run: Timestamp) -> Job {
    let template = &cron_job.spec.job_template;
    let ObjectMeta { labels, annotations, .. } = template.metadata.clone().unwrap_or_default();
    let mut annotations = annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.to_owned(), run.to_string());
    let metadata = ObjectMeta {
        name: Some(job_name(&cron_job.name_any(), run)),
        labels,
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: template.spec.clone(), status: None }
}
