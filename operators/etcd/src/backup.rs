//! What takes, verifies, fetches and removes backups: verbs of this program, each in a pod of its own.
//!
//! Invariants:
//! - Nothing is said to be a backup before it was read where it is stored, and is a whole snapshot of etcd's.
//! - A file is written over or removed only if its note names the same EtcdBackup: see [`note`].
//! - Wherever a pod is killed, the next one recognises what is there, and goes on or begins anew.
//! - Secrets are files that are mounted. They are no arguments, and nobody is told what is in them.

mod bolt;
mod fetch;
pub mod note;
pub mod pods;
mod progress;
mod remove;
mod save;
pub mod snapshot;
mod store;

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::SignalKind;
use wheelhouse::jiff::Timestamp;

pub use self::{
    fetch::{check, fetch},
    remove::remove,
    save::{Saving, Source, save},
    store::Mounts,
};
use crate::api::backup::{Content, Kept, Place};

/// In which a pod is told where the backup is.
pub(crate) const PLACE_VARIABLE: &str = "PLACE";
/// The longest message that is kept: kubelet cuts off at 4096 bytes.
const LONGEST: usize = 2000;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It was looked at, and the answer is no: trying again changes nothing.
    #[error("{0}")]
    Refused(String),
    /// It did not work; it may the next time.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }

    fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// What a pod says when it ends, in its termination message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum Outcome {
    /// The backup is there, and is what it is said to be.
    Good {
        /// Its path.
        path: String,
        /// The time for which it was taken, if a note says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheduled: Option<Timestamp>,
        /// Since when.
        at: Timestamp,
        /// What is in it.
        #[serde(flatten)]
        content: Content,
    },
    /// These are gone.
    Removed {
        /// Their paths.
        paths: Vec<String>,
        /// And those of files that are somebody else's, and were left alone.
        left: Vec<String>,
        /// Those that were taken for unfinished, and are whole.
        whole: Vec<Kept>,
    },
    /// It was looked at, and the answer is no.
    Refused {
        /// Why.
        message: String,
    },
    /// It did not work; it may the next time.
    Failed {
        /// Why.
        message: String,
    },
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        let short = |message: String| message.chars().take(LONGEST).collect();
        match error {
            Error::Refused(message) => Self::Refused { message: short(message) },
            Error::Failed(message) => Self::Failed { message: short(message) },
        }
    }
}

/// What runs in the pods of an EtcdBackup or an EtcdRestore; people have no need to call it
#[derive(Parser)]
#[command(name = "backup", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Where the backup is, or is to be, as JSON
    #[arg(long, env = PLACE_VARIABLE, global = true, default_value = "")]
    place: String,
}

#[derive(Subcommand)]
enum Verb {
    /// Take a backup of an etcd, store it and verify what was stored
    Save(save::Arguments),
    /// Verify a backup, and change nothing
    Check,
    /// Copy a backup to a local file, and verify it
    Fetch {
        /// The file
        #[arg(long)]
        to: PathBuf,
        /// What the SHA-256 of the backup has to be
        #[arg(long)]
        sha256: Option<String>,
        /// Do nothing if one of these is there
        #[arg(long)]
        unless: Vec<PathBuf>,
    },
    /// Remove files that this EtcdBackup wrote
    Remove {
        /// The UID of the EtcdBackup
        #[arg(long, env = "BACKUP_UID")]
        backup_uid: String,
        /// Files that were begun and given up; one that is whole stays
        #[arg(long)]
        unfinished: Vec<String>,
        /// Files of backups
        paths: Vec<String>,
    },
}

/// Runs what `arguments` say.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = Arguments::parse_from(arguments);
    tracing_subscriber::fmt().with_target(false).with_writer(std::io::stderr).init();
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(unless_told_to_end(run(arguments))),
        Err(error) => Err(Error::failed(error.to_string())),
    };
    let is_well = outcome.is_ok();
    let outcome = outcome.unwrap_or_else(Outcome::from);
    let text = serde_json::to_string(&outcome).unwrap_or_default();
    println!("{text}");
    // The operator reads it in the pod's status.
    if let Err(error) = fs::write("/dev/termination-log", &text) {
        tracing::debug!("no termination message: {error}");
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first process of a container is not ended by what ends others: it has to listen.
async fn unless_told_to_end(work: impl Future<Output = Result<Outcome>>) -> Result<Outcome> {
    let told = tokio::signal::unix::signal(SignalKind::terminate());
    let mut told = told.map_err(|error| Error::failed(format!("cannot hear signals: {error}")))?;
    tokio::select! {
        outcome = work => outcome,
        _ = told.recv() => Err(Error::failed("the pod was told to end")),
    }
}

async fn run(arguments: Arguments) -> Result<Outcome> {
    let place: Place = serde_json::from_str(&arguments.place)
        .map_err(|error| Error::refused(format!("{PLACE_VARIABLE} is no place: {error}")))?;
    let mounts = Mounts::default();
    match arguments.verb {
        Verb::Save(arguments) => save::run(&place, &mounts, arguments).await,
        Verb::Check => check(&place, &mounts).await,
        Verb::Fetch { to, sha256, unless } => match unless.iter().find(|file| file.exists()) {
            Some(file) => {
                tracing::info!("{} is there: nothing has to be fetched", file.display());
                Ok(Outcome::Removed { paths: Vec::new(), left: Vec::new(), whole: Vec::new() })
            }
            None => fetch(&place, &mounts, &to, sha256.as_deref()).await,
        },
        Verb::Remove { backup_uid, unfinished, paths } => {
            remove(&place, &mounts, &backup_uid, paths, unfinished).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fetched(folder: &std::path::Path) -> Result<Outcome> {
        let path = |name: &str| folder.join(name).display().to_string();
        let place = r#"{"volume": {"claim": "backups", "path": "db"}}"#;
        let (to, mark, prepared) = (path("snapshot.db"), path("member.json"), path("prepared"));
        let arguments =
            ["backup", "fetch", "--place", place, "--to", &to, "--unless", &mark, "--unless", &prepared];
        run(Arguments::parse_from(arguments)).await
    }

    #[tokio::test]
    async fn nothing_is_fetched_where_it_was_made_ready_or_begun_with() {
        for name in ["member.json", "prepared"] {
            let folder = tempfile::tempdir().unwrap();
            // There is no such backup.
            assert!(fetched(folder.path()).await.is_err());
            fs::create_dir(folder.path().join(name)).unwrap();
            assert!(matches!(fetched(folder.path()).await, Ok(Outcome::Removed { .. })));
        }
    }
}
