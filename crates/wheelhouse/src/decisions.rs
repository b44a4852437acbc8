//! Decisions: what was seen, what was decided, and what became of it; to be
//! shown, recorded and replayed. See `docs/decisions/0012-decisions-are-kept-shown-and-replayed.md`.

mod log;
mod recording;
mod secrets;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use log::{DecisionLog, Entry, What, json_bytes};
pub use recording::{Recording, replay};
pub(crate) use secrets::without_secrets;

use crate::{error::Category, key::Key};

/// One decision about one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The controller that decided.
    pub controller: String,
    /// The resource.
    pub key: Key,
    /// When it was observed.
    pub at: Timestamp,
    /// How long it all took, in milliseconds.
    pub took_milliseconds: f64,
    /// What was seen; nothing if that failed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub observation: Value,
    /// What was decided; nothing if it did not come to that.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub plan: Value,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "result")]
pub enum Outcome {
    /// Everything was as it should be.
    Unchanged,
    /// This was done.
    Done {
        /// The steps that changed something, in words.
        steps: Vec<String>,
    },
    /// This would have been done, were the resource not in the mode `plan`.
    Planned {
        /// The steps that would change something, in words.
        steps: Vec<String>,
    },
    /// It went wrong.
    Failed {
        /// The steps that changed something before that, in words.
        steps: Vec<String>,
        /// What kind of trouble it was.
        category: Category,
        /// What it was.
        message: String,
    },
}

impl Outcome {
    /// Whether nothing happened, and nothing should have.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::Unchanged)
    }
}
