//! [`Conditions`]: whoever waits says for what.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, Time};

use crate::mode::MODE_CONDITION;

/// One thing that is so, is not so, or is not known to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it is about, such as `Ready`.
    pub kind: &'static str,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// One word in CamelCase.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl ConditionStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The conditions of a status: those of the last one, brought up to date.
///
/// The time of a transition changes only when the status of the condition does,
/// so that a status that says the same is the same.
#[derive(Clone, Debug)]
pub struct Conditions {
    conditions: Vec<meta::Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Conditions {
    /// Begins with the conditions of the last status, but for the SDK's own.
    pub fn from_last(last: &[meta::Condition], generation: Option<i64>, now: Timestamp) -> Self {
        let others = last.iter().filter(|condition| condition.type_ != MODE_CONDITION);
        Self { conditions: others.cloned().collect(), generation, now }
    }

    /// Sets one.
    pub fn set(&mut self, condition: Condition) -> &mut Self {
        let status = condition.status.as_str().to_owned();
        let known = self.conditions.iter_mut().find(|known| known.type_ == condition.kind);
        let unchanged_since = known.as_ref().filter(|known| known.status == status);
        let since = unchanged_since.map_or(Time(self.now), |known| known.last_transition_time.clone());
        let new = meta::Condition {
            type_: condition.kind.to_owned(),
            status,
            reason: condition.reason,
            message: condition.message,
            observed_generation: self.generation,
            last_transition_time: since,
        };
        match known {
            Some(known) => *known = new,
            None => self.conditions.push(new),
        }
        self
    }

    /// The conditions, for the status.
    pub fn into_vec(self) -> Vec<meta::Condition> {
        self.conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: bool, message: &str) -> Condition {
        Condition { kind: "Ready", status: status.into(), reason: "Because".into(), message: message.into() }
    }

    #[test]
    fn the_time_of_a_transition_is_kept_until_the_next() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Conditions::from_last(&[], Some(1), at(100));
        conditions.set(ready(false, "waiting for 2 pods"));
        let first = conditions.into_vec();

        let mut conditions = Conditions::from_last(&first, Some(2), at(200));
        conditions.set(ready(false, "waiting for 1 pod"));
        let second = conditions.into_vec();
        assert_eq!(second[0].last_transition_time, Time(at(100)));
        assert_eq!(
            (second[0].message.as_str(), second[0].observed_generation),
            ("waiting for 1 pod", Some(2))
        );

        let mut conditions = Conditions::from_last(&second, Some(2), at(300));
        conditions.set(ready(true, "all pods are ready"));
        assert_eq!(conditions.into_vec()[0].last_transition_time, Time(at(300)));
    }
}
