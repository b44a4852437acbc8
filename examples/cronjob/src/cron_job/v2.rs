//! What people write in v2: the schedule field by field. It is stored as v1: [`super::conversion`] goes between the two.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::api::{ConcurrencyPolicy, CronJobStatus, job_template};

/// A CronJob: a Job for every time that a schedule says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v2",
    kind = "CronJob",
    plural = "cronjobs",
    namespaced,
    derive = "PartialEq",
    status = "CronJobStatus",
    validation = ("self.metadata.name.size() <= 52", "the name must have at most 52 characters: Jobs are named after it"),
    validation = ("has(self.spec.jobTemplate.spec)", "spec.jobTemplate.spec must say what a Job is to do"),
    printcolumn(name = "Minute", type_ = "string", json_path = ".spec.schedule.minute"),
    printcolumn(name = "Hour", type_ = "string", json_path = ".spec.schedule.hour"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Last schedule", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// When to run, in UTC.
    pub schedule: CronSchedule,
    /// How many seconds late a run may begin; one that is later is left out. Default: however late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// What becomes of a run that is due while an earlier one has not ended. Default: `Allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,
    /// Whether no more runs are to begin. Those that have begun go on. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The Job that a run is.
    #[schemars(schema_with = "job_template")]
    pub job_template: JobTemplateSpec,
    /// How many Jobs that succeeded are kept. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: Option<i32>,
    /// How many Jobs that failed are kept. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: Option<i32>,
}

/// A schedule, as cron has it. Who leaves a field out means every value: the API server writes `*`, so that every object
/// has all five and none is lost on the way through v1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronSchedule {
    /// The minutes, 0 to 59.
    #[serde(default = "every")]
    #[schemars(regex(pattern = r"^\S+$"))]
    pub minute: String,
    /// The hours, 0 to 23.
    #[serde(default = "every")]
    #[schemars(regex(pattern = r"^\S+$"))]
    pub hour: String,
    /// The days of the month, 1 to 31.
    #[serde(default = "every")]
    #[schemars(regex(pattern = r"^\S+$"))]
    pub day_of_month: String,
    /// The months, 1 to 12, or their names.
    #[serde(default = "every")]
    #[schemars(regex(pattern = r"^\S+$"))]
    pub month: String,
    /// The days of the week, 0 (Sunday) to 6, or their names.
    #[serde(default = "every")]
    #[schemars(regex(pattern = r"^\S+$"))]
    pub day_of_week: String,
}

fn every() -> String {
    "*".to_owned()
}
