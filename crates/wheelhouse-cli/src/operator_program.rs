//! An operator's own program: the one of the project, compiled if it changed, or one that is there.

use std::{
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::unistd::{Uid, User, geteuid};
use tokio::process::{Child, Command};
use wheelhouse_project::Project;

use crate::current_cluster;

/// How an operator's program is called.
#[derive(Clone, Debug)]
pub(crate) enum OperatorProgram {
    /// Cargo compiles it, and runs it: of the package in a folder the binary of this name, beside which there may be others.
    Project { folder: PathBuf, binary: String },
    /// It is there.
    Binary(PathBuf),
}

impl OperatorProgram {
    /// That of the project in a folder.
    pub(crate) fn of_project(folder: &Path, project: &Project) -> Self {
        Self::Project { folder: folder.to_owned(), binary: project.operator() }
    }

    /// Starts it. What cannot be run is told as it is called, and what to do about it.
    pub(crate) fn start(&self, command: &mut Command) -> Result<Child> {
        match self {
            Self::Project { folder, .. } => start_cargo(command, folder),
            Self::Binary(_) => command.spawn().with_context(|| format!("cannot run {}", self.name())),
        }
    }

    /// The program, not yet called, with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match self {
            Self::Project { folder, binary } => {
                let mut command = Command::new("cargo");
                command.args(["run", "--quiet", "--bin", binary, "--manifest-path"]);
                command.arg(folder.join("Cargo.toml")).arg("--");
                command
            }
            Self::Binary(path) => Command::new(path),
        };
        current_cluster::tell(&mut command);
        command.args(arguments);
        command
    }

    /// What it prints. What it has to say to people, and the compiler, too, goes to the terminal.
    pub(crate) async fn prints(&self, arguments: &[&str]) -> Result<String> {
        let cannot = || format!("cannot run {}", self.name());
        let mut command = self.command(arguments);
        // Not `output()`: that takes what is for the terminal, too.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let child = self.start(&mut command)?;
        let output = child.wait_with_output().await.with_context(cannot)?;
        if !output.status.success() {
            bail!("{} {} failed", self.name(), arguments.join(" "));
        }
        String::from_utf8(output.stdout).context("what the operator prints is no text")
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Project { .. } => "cargo run".to_owned(),
            Self::Binary(path) => path.display().to_string(),
        }
    }
}

/// Starts cargo for the project in a folder. It is not on every machine that has this command.
pub(crate) fn start_cargo(command: &mut Command, folder: &Path) -> Result<Child> {
    if let Some(user) = whose(folder)? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).env("HOME", &user.dir);
    }
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("cannot run cargo: it is not there. Rust brings it: https://rustup.rs")
        }
        _ => anyhow!(error).context("cannot run cargo"),
    })
}

/// Whether cargo can be started at all.
pub(crate) async fn check_cargo(folder: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    start_cargo(&mut cargo, folder)?.wait().await.context("cannot wait for cargo to end").map(drop)
}

/// Whose a project is, where somebody calls sudo in it, as `deploy` needs: what root compiles there, they could not replace.
fn whose(folder: &Path) -> Result<Option<User>> {
    if !geteuid().is_root() || std::env::var_os("SUDO_USER").is_none() {
        return Ok(None);
    }
    let cannot = || format!("cannot tell whose {} is", folder.display());
    let owner = Uid::from_raw(std::fs::metadata(folder).with_context(cannot)?.uid());
    if owner.is_root() { Ok(None) } else { User::from_uid(owner).with_context(cannot) }
}
