//! What can go wrong with a local cluster, in words that say what to do about it.

use std::{io, path::PathBuf};

/// The outcome of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a local cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read, written or removed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    File {
        /// What was being done, as in "cannot DOING PATH".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program that we called could not be started or failed.
    #[error("cannot {doing}: `{command}` {outcome}")]
    Command {
        /// What it was called for.
        doing: String,
        /// The command line.
        command: String,
        /// Its exit status and what it printed to standard error.
        outcome: String,
    },

    /// This machine lacks something; every missing thing is named at once.
    #[error("this machine is not ready for {goal}: {}", .missing.join("; "))]
    Preflight {
        /// What the user asked for.
        goal: String,
        /// Each with the remedy.
        missing: Vec<String>,
    },

    /// A cluster's name does not fit.
    #[error(
        "`{0}` cannot be the name of a cluster: use 1 to 40 lower-case letters, digits and dashes, beginning with a letter and not ending with a dash"
    )]
    BadName(String),

    /// No cluster has this name.
    #[error("there is no cluster called `{name}`; {}", known_clusters(.known))]
    UnknownCluster {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },

    /// Something was asked of a cluster that has no such part.
    #[error("cluster `{cluster}` has no {kind} called `{name}`; it has: {}", .known.join(", "))]
    UnknownPart {
        /// The cluster.
        cluster: String,
        /// "node" or "component".
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },

    /// A request that cannot be granted as it stands; the text says why and what to do.
    #[error("{0}")]
    Refused(String),

    /// A component of the cluster ended or never became ready.
    #[error("{component} {problem}; the end of its log:\n{log_end}")]
    Component {
        /// Which one.
        component: String,
        /// What it did.
        problem: String,
        /// The last lines of its log; the log itself is gone with a failed `up`.
        log_end: String,
    },

    /// The cluster's API server refused or did not answer.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was asked of it.
        doing: String,
        /// What it said.
        source: Box<kube::Error>,
    },

    /// A certificate or key could not be made.
    #[error("cannot make the certificate of {subject}: {source}")]
    Certificate {
        /// Whose certificate.
        subject: String,
        /// What went wrong.
        source: rcgen::Error,
    },

    /// A file exists but does not hold what it should.
    #[error("{} is not {expected}: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

impl Error {
    /// For `map_err`: an I/O error becomes "cannot DOING PATH: ...".
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }

    /// For `map_err`: an API error becomes "cannot DOING: ...".
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source: Box::new(source) }
    }
}

fn known_clusters(known: &[String]) -> String {
    if known.is_empty() {
        "there is none at all: `wheelhouse local up` makes one".to_owned()
    } else {
        format!("there is: {}", known.join(", "))
    }
}
