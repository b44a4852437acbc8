//! What can go wrong in a test's surroundings, in words that say what to do about it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The outcome of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in a test's surroundings.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The programs or the certificates of the control plane are not to be had.
    #[error(transparent)]
    Local(#[from] wheelhouse_local::error::Error),

    /// A file or folder of the control plane could not be read, written or removed.
    #[error("cannot {doing} {}: {source}", .path.display())]
    File {
        /// What was being done, as in "cannot DOING PATH".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// A program did not even start.
    #[error("cannot start {program}: {source}; it needs `setpriv` (of util-linux) and `sh` in PATH")]
    Start {
        /// Which program.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },

    /// etcd or the API server ended, or did not become ready.
    #[error("{component} {problem}; the end of its log:\n{log_end}")]
    Component {
        /// Which one.
        component: &'static str,
        /// What it did.
        problem: String,
        /// The last lines that it wrote; the whole log is gone with the control plane.
        log_end: String,
    },

    /// The control plane that all tests of this process share did not start, as an earlier test found.
    #[error("the control plane that the tests of this process share did not start: {0}")]
    Shared(Arc<Error>),

    /// The kubeconfig of the control plane could not be used.
    #[error("cannot use {}: {source}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },

    /// The operator under test did not start, or broke off.
    #[error("the operator does not run: {problem}")]
    Operator {
        /// What it said.
        problem: String,
    },

    /// The API server refused or did not answer.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was asked of it.
        doing: String,
        /// What it said.
        source: Box<kube::Error>,
    },

    /// An operator did not get through a scenario even undisturbed.
    #[error("{subject} cannot be put through trouble: without any, {problem}")]
    Trial {
        /// Which operator.
        subject: String,
        /// What went wrong.
        problem: String,
    },

    /// RBAC rules were accepted but do not hold.
    #[error("the rules for {user} were accepted {} s ago and the API server still does not go by them", .waited.as_secs())]
    RulesNotInEffect {
        /// Whom they are for.
        user: String,
        /// For how long.
        waited: Duration,
    },

    /// A line of the audit log is none.
    #[error("{} has a line that is no audit event ({problem}): {line}", .path.display())]
    AuditLine {
        /// The log.
        path: PathBuf,
        /// What is wrong with the line.
        problem: String,
        /// The line.
        line: String,
    },

    /// The API server answered a request but did not log it.
    #[error("the API server answered a request {} s ago and {} still does not show it", .waited.as_secs(), .path.display())]
    AuditLogBehind {
        /// The log.
        path: PathBuf,
        /// For how long.
        waited: Duration,
    },

    /// An event that a test expects did not come.
    #[error("within {} s there was no event\n    {expected}\nin namespace {namespace}; {seen}", .waited.as_secs_f32())]
    EventNotSeen {
        /// The event that was expected.
        expected: String,
        /// Where.
        namespace: String,
        /// For how long.
        waited: Duration,
        /// Every event that there was instead.
        seen: String,
    },

    /// No reconcile ended in time.
    #[error("no reconcile ended within {} s", .waited.as_secs_f32())]
    NothingReconciled {
        /// For how long.
        waited: Duration,
    },

    /// No reconcile can end any more, since all that could have recorded it is gone.
    #[error(
        "nothing reconciles any more: every recorder of these keys is gone, as after the end of the controller"
    )]
    NobodyReconciles,
}

/// The message itself, since tests show errors by `unwrap`, which asks for this
/// form, and a log in one line with its line ends escaped helps nobody.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err`: an I/O error becomes "cannot DOING PATH: ...".
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }

    /// For `map_err`: what is wrong with a kubeconfig becomes "cannot use PATH: ...".
    pub(crate) fn kubeconfig(path: &Path) -> impl FnOnce(kube::config::KubeconfigError) -> Self {
        let path = path.to_owned();
        move |source| Self::Kubeconfig { path, source: Box::new(source) }
    }

    /// For `map_err`: an API error becomes "cannot DOING: ...".
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source: Box::new(source) }
    }
}
