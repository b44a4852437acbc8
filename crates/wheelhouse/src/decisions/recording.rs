//! [`Recording`]: a decision as a file, and as a test with one line.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::without_secrets;
use crate::{
    error::{Category, Error, Result},
    operator::Operator,
    plan::Plan,
};

/// A decision, written down to be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// The operator that decided.
    pub operator: String,
    /// Its version.
    pub version: String,
    /// The controller.
    pub controller: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// What was seen.
    pub observation: Value,
    /// What was decided then.
    pub plan: Value,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the text is none.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| Error::new(Category::Invalid, format!("this is no recorded decision: {error}")))
    }

    /// What the operator decides on this observation now; and where that differs
    /// from what was decided then.
    ///
    /// # Errors
    /// When the observation is not one of this operator's.
    pub(crate) fn decide_again<O: Operator>(&self, operator: &O) -> Result<(Plan<O::Action>, Vec<String>)> {
        let seen: O::Observation = serde_json::from_value(self.observation.clone()).map_err(|error| {
            Error::new(
                Category::Invalid,
                format!("the observation does not fit this version of the operator: {error}"),
            )
        })?;
        let plan = operator.analyse(&seen);
        plan.check()?;
        let now = serde_json::to_value(&plan)
            .map_err(|error| Error::new(Category::Bug, format!("the plan is no JSON: {error}")))?;
        Ok((plan, differences(&self.plan, &without_secrets(now))))
    }
}

/// Decides again on what was recorded, and fails if the plan is another one now.
///
/// An incident becomes a regression test with one line:
///
/// ```ignore
/// wheelhouse::decisions::replay(&Gordons::from_environment(), include_str!("recorded/incident.json")).unwrap();
/// ```
///
/// # Errors
/// When the text is no recording of this operator, or the plan differs; the error says where.
pub fn replay<O: Operator>(operator: &O, recording: &str) -> Result<Plan<O::Action>> {
    let (plan, differences) = Recording::parse(recording)?.decide_again(operator)?;
    match differences.is_empty() {
        true => Ok(plan),
        false => Err(Error::new(
            Category::Conflict,
            format!("the plan is not what was recorded:\n  {}", differences.join("\n  ")),
        )),
    }
}

/// Where two values differ, in words, one line each.
fn differences(then: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(String::new(), then, now, &mut found);
    found
}

fn compare(path: String, then: &Value, now: &Value, found: &mut Vec<String>) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (name, value) in then {
                let path = format!("{path}/{name}");
                compare(path, value, now.get(name).unwrap_or(&Value::Null), found);
            }
            for (name, value) in now.iter().filter(|(name, _)| !then.contains_key(*name)) {
                compare(format!("{path}/{name}"), &Value::Null, value, found);
            }
        }
        (Value::Array(then), Value::Array(now)) => {
            for index in 0..then.len().max(now.len()) {
                let (then, now) = (then.get(index), now.get(index));
                let path = format!("{path}/{index}");
                compare(path, then.unwrap_or(&Value::Null), now.unwrap_or(&Value::Null), found);
            }
        }
        (then, now) if then == now => {}
        (then, now) => found.push(format!("{path}: was {then}, is {now}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_by_where_they_are() {
        let then = json!({"steps": [{"a": 1}, {"b": 2}], "status": {"ready": 1}});
        assert_eq!(differences(&then, &then), [""; 0]);
        let now = json!({"steps": [{"a": 1}], "status": {"ready": 2, "note": "x"}});
        let mut found = differences(&then, &now);
        found.sort();
        assert_eq!(
            found,
            [
                "/status/note: was null, is \"x\"",
                "/status/ready: was 1, is 2",
                "/steps/1: was {\"b\":2}, is null",
            ]
        );
    }
}
