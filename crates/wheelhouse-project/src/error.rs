//! What can go wrong, in words that say what to do.

use std::path::{Path, PathBuf};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name cannot be used.
    #[error("{what} `{name}` cannot be used: {why}")]
    Name {
        /// What it is the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// Why not.
        why: String,
    },
    /// Something is there already.
    #[error("{0}")]
    Taken(String),
    /// This is no project, or a damaged one.
    #[error("{0}")]
    NoProject(String),
    /// There are changes that nobody has committed.
    #[error(
        "there are changes in {folder} that are not committed ({example}): commit or stash them first, so that you can see and \
         undo what this does; or say --allow-dirty"
    )]
    Dirty {
        /// The tree.
        folder: PathBuf,
        /// One of the files.
        example: String,
    },
    /// Nobody knows whether there are.
    #[error(
        "git cannot say whether all is committed in {folder} ({why}): mend that first, so that you can see and undo what this \
         does; or say --allow-dirty"
    )]
    Git {
        /// The tree.
        folder: PathBuf,
        /// What git says instead.
        why: String,
    },
    /// What people changed and what is to change cannot both be.
    #[error(
        "{path} was changed where this has to change it, too: nothing was changed. Say --mark-conflicts to have all the rest, and \
         both between marks where they meet. What is to be added here:\n{wanted}"
    )]
    Conflict {
        /// The file.
        path: PathBuf,
        /// What the verb wanted to do to it, as a diff.
        wanted: String,
    },
    /// A file of somebody else's is where one is to be.
    #[error(
        "{0} is there already, and was not made by this command: nothing was changed. Move it away, or say --mark-conflicts to \
         have both in it, between marks"
    )]
    InTheWay(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was being done to it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A template is wrong, which is a bug.
    #[error("the template {template} is wrong: {problem}. That is a mistake of ours")]
    Template {
        /// Which.
        template: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What is to be written cannot be formatted.
    #[error(
        "rustfmt cannot format what is to be written ({0}): nothing was changed. `rustup component add rustfmt` installs it"
    )]
    Formatting(String),
    /// The operator's program printed what is no manifest.
    #[error("what the operator prints is no manifest: {0}")]
    Manifest(String),
}

impl Error {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }

    pub(crate) fn name(what: &'static str, name: &str, why: impl Into<String>) -> Self {
        Self::Name { what, name: name.to_owned(), why: why.into() }
    }
}

/// What a verb returns.
pub type Result<T> = std::result::Result<T, Error>;
