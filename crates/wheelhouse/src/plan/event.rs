//! [`Event`]: what people are told.

use serde::{Deserialize, Serialize};

/// Whether somebody has to worry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Nobody.
    Normal,
    /// Somebody may.
    Warning,
}

/// A Kubernetes event about the resource. The same one again is counted, not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Whether somebody has to worry.
    pub kind: EventType,
    /// One word in CamelCase.
    pub reason: String,
    /// The sentence.
    pub note: String,
}

impl Event {
    /// Nobody has to worry.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: EventType::Normal, reason: reason.into(), note: note.into() }
    }

    /// Somebody may have to worry.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { kind: EventType::Warning, reason: reason.into(), note: note.into() }
    }
}
