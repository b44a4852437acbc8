//! [`Mode`]: whether a resource is acted on, only planned for, or left alone.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde_json::{Value, json};

/// The annotation by which people choose a mode.
pub const MODE: &str = "wheelhouse.dev/mode";

/// The type of the condition that says in which mode a resource is.
pub const MODE_CONDITION: &str = "wheelhouse.dev/Mode";

/// What is done about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What has to be done is done.
    Act,
    /// What would be done is said, and nothing else is done.
    Plan,
    /// Nothing is done.
    Paused,
    /// There is no such mode: nothing is done.
    Unknown(String),
}

impl Mode {
    /// The mode of a resource with these annotations.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        match annotations.get(MODE).map(String::as_str) {
            None | Some("" | "act") => Self::Act,
            Some("plan") => Self::Plan,
            Some("paused") => Self::Paused,
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }

    /// One word, for conditions and events.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Act => "Acting",
            Self::Plan => "Planned",
            Self::Paused => "Paused",
            Self::Unknown(_) => "UnknownMode",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act => formatter.write_str("act"),
            Self::Plan => formatter.write_str("plan"),
            Self::Paused => formatter.write_str("paused"),
            Self::Unknown(mode) => formatter.write_str(mode),
        }
    }
}

/// This status with a condition that says in which mode the resource is.
pub(crate) fn with_condition(
    status: Option<Value>,
    mode: &Mode,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Value {
    let last = status.as_ref().and_then(condition);
    let is_as_before = last.is_some_and(|last| last.get("reason") == Some(&mode.reason().into()));
    let since = last.filter(|_| is_as_before).and_then(|last| last.get("lastTransitionTime")).cloned();
    let mut new = json!({
        "type": MODE_CONDITION,
        "status": "True",
        "reason": mode.reason(),
        "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())),
    });
    if let (Some(generation), Some(fields)) = (generation, new.as_object_mut()) {
        fields.insert("observedGeneration".to_owned(), generation.into());
    }
    let mut status = without_condition(status.unwrap_or_default());
    if !status.is_object() {
        status = json!({});
    }
    if let Some(fields) = status.as_object_mut()
        && let Some(conditions) = fields.entry("conditions").or_insert_with(|| json!([])).as_array_mut()
    {
        conditions.push(new);
    }
    status
}

/// This status without that condition. An empty list of conditions says as much as none.
pub(crate) fn without_condition(mut status: Value) -> Value {
    if let Some(fields) = status.as_object_mut()
        && let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut)
    {
        conditions.retain(|condition| condition.get("type") != Some(&MODE_CONDITION.into()));
        if conditions.is_empty() {
            fields.remove("conditions");
        }
    }
    status
}

/// That condition of a status, if it has it.
pub(crate) fn condition(status: &Value) -> Option<&Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type") == Some(&MODE_CONDITION.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_misspells_a_mode_did_not_mean_to_go_on() {
        let mode = |text: &str| Mode::of(&BTreeMap::from([(MODE.to_owned(), text.to_owned())]));
        assert_eq!(Mode::of(&BTreeMap::new()), Mode::Act);
        assert_eq!(mode("plan"), Mode::Plan);
        assert_eq!(mode("pause"), Mode::Unknown("pause".to_owned()));
    }

    #[test]
    fn the_condition_is_put_beside_others_and_taken_away_again() {
        let others = json!({"ready": 1, "conditions": [{"type": "Ready", "status": "True"}]});
        let at = |second| Timestamp::from_second(second).unwrap();
        let planned = with_condition(Some(others.clone()), &Mode::Plan, "would do a", Some(3), at(100));
        assert_eq!(planned["conditions"].as_array().unwrap().len(), 2);
        let still = with_condition(Some(planned.clone()), &Mode::Plan, "would do b", Some(3), at(200));
        let [was, is] = [&planned, &still].map(|status| condition(status).unwrap().clone());
        assert_eq!(is["message"], "would do b");
        assert_eq!(is["lastTransitionTime"], was["lastTransitionTime"], "it is still the same mode");
        let paused = with_condition(Some(still), &Mode::Paused, "paused", Some(3), at(300));
        assert_eq!(condition(&paused).unwrap()["lastTransitionTime"], "1970-01-01T00:05:00Z");
        assert_eq!(without_condition(paused), others);
    }

    #[test]
    fn a_status_is_as_before_when_its_only_condition_was_the_mode() {
        let before = json!({"ready": 1});
        let planned = with_condition(Some(before.clone()), &Mode::Plan, "", None, Timestamp::UNIX_EPOCH);
        assert_eq!(without_condition(planned), before);
        assert_eq!(without_condition(json!({"ready": 1, "conditions": []})), before);
    }

    #[test]
    fn a_resource_without_a_status_gets_one() {
        let status = with_condition(None, &Mode::Paused, "paused", None, Timestamp::UNIX_EPOCH);
        assert_eq!(condition(&status).unwrap()["reason"], "Paused");
    }
}
