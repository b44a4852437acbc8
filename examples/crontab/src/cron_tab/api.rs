//! What people write, and what they read back: `stable.example.com/v1`, as in the Kubernetes documentation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A CronTab: an image that is run at times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "stable.example.com",
    version = "v1",
    kind = "CronTab",
    plural = "crontabs",
    singular = "crontab",
    shortname = "ct",
    namespaced,
    derive = "PartialEq",
    status = "CronTabStatus",
    validation = ("self.metadata.name.size() <= 52", "the name must have at most 52 characters: a CronJob is named after it"),
    printcolumn(name = "Spec", type_ = "string", json_path = ".spec.cronSpec"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CronTabSpec {
    /// When it runs: minute, hour, day of the month, month, day of the week.
    // The documentation's pattern. That there is no minute 99 it does not know: then the CronJob is refused, and the
    // status says so.
    #[schemars(regex(pattern = r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"))]
    pub cron_spec: String,
    /// What runs.
    #[schemars(length(min = 1))]
    pub image: String,
    /// How many pods of it run each time.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
}

fn one() -> i32 {
    1
}

/// What became of a CronTab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronTabStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it was run last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// Whether it will be run (`Ready`), and if not, why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt as _;

    #[test]
    fn the_names_are_those_of_the_talk() {
        let crd = CronTab::crd();
        assert_eq!(crd.metadata.name.as_deref(), Some("crontabs.stable.example.com"));
        assert_eq!(crd.spec.group, "stable.example.com");
        assert_eq!(crd.spec.scope, "Namespaced");
        let versions = crd.spec.versions.iter();
        let versions: Vec<_> = versions.map(|it| (it.name.as_str(), it.served, it.storage)).collect();
        assert_eq!(versions, [("v1", true, true)]);
        let names = serde_json::to_value(crd.spec.names).unwrap();
        let talk =
            r#"{"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]}"#;
        assert_eq!(names, serde_json::from_str::<serde_json::Value>(talk).unwrap());
    }
}
