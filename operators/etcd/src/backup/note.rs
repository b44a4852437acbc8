//! The note beside a backup: what is in the file, whose it is, and whether it is whole.
//!
//! Invariants:
//! - The note is written before the file, and says so; and again after the file was read where it is. A file
//!   is a backup only by a note that says that it is whole.
//! - Nothing is written over or removed but by the word of a note that names the same EtcdBackup.
//! - What a pod begins can be taken back from its first note on, and then it finishes nothing. A note is written over the
//!   one that was seen, and over no other.

use serde::{Deserialize, Serialize};
use wheelhouse::jiff::Timestamp;

use crate::api::backup::Content;

/// What is beside a backup, as JSON: the file's own name, and this.
pub(crate) const SUFFIX: &str = ".json";

/// What is known about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// The UID of the EtcdBackup whose it is.
    pub backup: String,
    /// Whether it is there.
    pub state: State,
    /// The time for which it was to be taken.
    pub scheduled: Timestamp,
    /// The UID of the pod that writes it, or wrote it.
    #[serde(default)]
    pub pod: String,
    /// What the service calls the upload, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// When it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What is in it.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

/// Whether a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// It is being written, or nobody came to an end with that.
    Writing,
    /// All of it, and it was read where it is.
    Whole,
    /// It is being removed, or nobody came to an end with that.
    Removing,
}
