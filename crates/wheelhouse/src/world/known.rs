//! [`Known`]: what could not be learned is part of an observation too.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why nobody knows, where the first answer is still to come.
const NOT_ASKED_YET: &str = "not asked yet";

/// A value, its absence, or that nobody knows.
///
/// An application that does not answer is unknown, never absent: that difference
/// is what keeps data alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Known<T> {
    /// It is so, or was at that time.
    Value {
        /// What it is.
        value: T,
        /// When it was learned.
        at: Timestamp,
    },
    /// It is known not to be there.
    Absent,
    /// Nobody knows.
    Unknown {
        /// Why not.
        why: String,
        /// Since when.
        since: Timestamp,
    },
}

impl<T> Known<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value { value, .. } => Some(value),
            Self::Absent | Self::Unknown { .. } => None,
        }
    }

    /// Whether it is known not to be there; unknown is not absent.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether nobody knows.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// What a target is that has never answered: the first answer is still to come.
    pub(super) fn not_asked_yet() -> Self {
        Self::Unknown { why: NOT_ASKED_YET.to_owned(), since: Timestamp::now() }
    }

    /// Whether nobody knows because the first answer is still to come. That is no news: who
    /// reports what is known says what was said before.
    pub fn is_not_asked_yet(&self) -> bool {
        matches!(self, Self::Unknown { why, .. } if why == NOT_ASKED_YET)
    }

    /// The same about something that is computed from the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Value { value, at } => Known::Value { value: change(value), at },
            Self::Absent => Known::Absent,
            Self::Unknown { why, since } => Known::Unknown { why, since },
        }
    }
}
