//! What people write, and what they read back: `batch.tutorial.kubebuilder.io/v1`.

use k8s_openapi::{
    api::batch::v1::JobTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A CronJob: a Job for every time that a schedule says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v1",
    kind = "CronJob",
    plural = "cronjobs",
    namespaced,
    derive = "PartialEq",
    status = "CronJobStatus",
    validation = ("self.metadata.name.size() <= 52", "the name must have at most 52 characters: Jobs are named after it"),
    validation = ("has(self.spec.jobTemplate.spec)", "spec.jobTemplate.spec must say what a Job is to do"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Last schedule", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// When to run, as cron has it and in UTC: minute, hour, day of the month, month and day of the week; or `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`.
    #[schemars(length(min = 1))]
    pub schedule: String,
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

/// What becomes of a run that is due while an earlier one has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// It begins all the same.
    #[default]
    Allow,
    /// It waits until the earlier one has ended.
    Forbid,
    /// The earlier one is deleted first.
    Replace,
}

impl CronJobSpec {
    /// What becomes of a run that is due while an earlier one has not ended.
    pub fn concurrency_policy(&self) -> ConcurrencyPolicy {
        self.concurrency_policy.unwrap_or_default()
    }

    /// Whether no more runs are to begin.
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    /// How many Jobs that succeeded are kept.
    pub fn successful_jobs_history_limit(&self) -> i32 {
        self.successful_jobs_history_limit.unwrap_or(3)
    }

    /// How many Jobs that failed are kept.
    pub fn failed_jobs_history_limit(&self) -> i32 {
        self.failed_jobs_history_limit.unwrap_or(1)
    }
}

/// What became of a CronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Jobs that have not ended.
    #[serde(default)]
    pub active: Vec<String>,
    /// The time of the last run that began: the one that the schedule says, not that of the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// Whether runs begin as the schedule says (`Ready`), and if not, why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What a Job can be, without the explanations of its hundreds of fields: with them, a CRD of two versions is larger
/// than what `kubectl apply` can remember in an annotation.
pub(super) fn job_template(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<JobTemplateSpec>().to_value();
    forget_descriptions(&mut schema);
    Schema::try_from(schema).unwrap_or_default()
}

fn forget_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A field of that name would be a schema, and no text.
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(forget_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_descriptions),
        _ => {}
    }
}
