//! Act: an action of the operator's own, which is to say something.

use std::fmt;

use serde::{Deserialize, Serialize};
use wheelhouse::Action;

/// What happened to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum What {
    /// It is new.
    Added,
    /// Its spec is another one.
    Modified,
    /// It is to go.
    Deleted,
}

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Say {
    /// What happened.
    pub what: What,
    /// How many servers are wanted.
    pub size: i32,
    /// Of which version.
    pub version: String,
}

impl Say {
    /// The line of the log.
    pub fn line(&self) -> String {
        format!("Postgres cluster event: {}, size {}, version {}", self.what, self.size, self.version)
    }
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        })
    }
}

impl fmt::Display for Say {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "say {}", self.what)
    }
}

impl Action for Say {
    fn name(&self) -> &'static str {
        "say"
    }

    fn is_destructive(&self) -> bool {
        false
    }
}
