//! [`Error`]: what was being done, to which object, and what went wrong.

use std::{fmt, time::Duration};

/// The result of what an operator does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of trouble an error is. It is the log field, the metric label and
/// the event reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Category {
    /// The world was not as observed: it is observed again, live.
    Conflict,
    /// Something that has to be there is not.
    NotFound,
    /// RBAC does not allow it.
    Forbidden,
    /// The API server refuses the object.
    Invalid,
    /// The API server, or the application, is away or overloaded.
    Unavailable,
    /// A write was sent and no answer came: nobody knows whether it took effect.
    LostAnswer,
    /// It took longer than its deadline.
    DeadlineExceeded,
    /// An object of that name belongs to somebody else.
    NotOurs,
    /// The application said no.
    Application,
    /// This process does not lead any more.
    NotLeading,
    /// The operator's code panicked.
    Panic,
    /// The operator is wrong.
    Bug,
}

impl Category {
    /// The name, as it appears in logs, metrics and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "Conflict",
            Self::NotFound => "NotFound",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::Unavailable => "Unavailable",
            Self::LostAnswer => "LostAnswer",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotOurs => "NotOurs",
            Self::Application => "Application",
            Self::NotLeading => "NotLeading",
            Self::Panic => "Panic",
            Self::Bug => "Bug",
        }
    }

    /// After such an error the cache is not to be trusted: the next observation is live.
    pub(crate) fn asks_for_live_reads(self) -> bool {
        matches!(
            self,
            Self::Conflict
                | Self::LostAnswer
                | Self::DeadlineExceeded
                | Self::NotOurs
                | Self::NotLeading
                | Self::Panic
        )
    }
}

impl fmt::Display for Category {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server said no, or did not answer.
    #[error("cannot {doing}: {}", told(source))]
    Api {
        /// What was being done, to which object.
        doing: String,
        /// What the client says.
        #[source]
        source: kube::Error,
    },
    /// A write was sent and not answered.
    #[error("cannot tell whether this took effect: {doing}: {}", told(source))]
    LostAnswer {
        /// What was being done, to which object.
        doing: String,
        /// What the client says.
        #[source]
        source: kube::Error,
    },
    /// It took too long.
    #[error("{doing} took longer than {limit:?}")]
    DeadlineExceeded {
        /// What was being done.
        doing: String,
        /// How long it may take.
        limit: Duration,
    },
    /// Another process leads now, or nobody.
    #[error("this process does not lead any more: nothing is sent")]
    NotLeading,
    /// Anything else.
    #[error("{message}")]
    Other {
        /// What kind of trouble it is.
        category: Category,
        /// What went wrong, and what to do about it.
        message: String,
    },
}

impl Error {
    /// An error of the operator's own making.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self::Other { category, message: message.into() }
    }

    /// What the application said no to, or could not do.
    pub fn application(message: impl Into<String>) -> Self {
        Self::new(Category::Application, message)
    }

    /// A read of the API server that failed.
    pub fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| match not_leading(&source) {
            true => Self::NotLeading,
            false => Self::Api { doing, source },
        }
    }

    /// A write that failed, perhaps after it took effect.
    pub(crate) fn write(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| {
            if not_leading(&source) {
                return Self::NotLeading;
            }
            match &source {
                // From 500 on, something between us and the API server may have
                // answered for it.
                kube::Error::Api(status) if status.code < 500 => Self::Api { doing, source },
                kube::Error::BuildRequest(_) => Self::Api { doing, source },
                _ => Self::LostAnswer { doing, source },
            }
        }
    }

    /// What kind of trouble this is.
    pub fn category(&self) -> Category {
        match self {
            Self::LostAnswer { .. } => Category::LostAnswer,
            Self::DeadlineExceeded { .. } => Category::DeadlineExceeded,
            Self::NotLeading => Category::NotLeading,
            Self::Other { category, .. } => *category,
            Self::Api { source: kube::Error::Api(status), .. } => match status.code {
                404 => Category::NotFound,
                409 => Category::Conflict,
                401 | 403 => Category::Forbidden,
                400 | 405 | 413 | 415 | 422 => Category::Invalid,
                410 => Category::Conflict,
                _ => Category::Unavailable,
            },
            Self::Api { source: kube::Error::BuildRequest(_) | kube::Error::SerdeError(_), .. } => {
                Category::Bug
            }
            Self::Api { .. } => Category::Unavailable,
        }
    }
}

fn told(source: &kube::Error) -> String {
    match source {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn not_leading(source: &kube::Error) -> bool {
    matches!(source, kube::Error::Service(inner) if inner.downcast_ref::<crate::client::NotLeading>().is_some())
}
