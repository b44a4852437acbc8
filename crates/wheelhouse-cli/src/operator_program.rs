//! An operator's own program: the one of the project, compiled if it changed, or one that is there.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

/// How an operator's program is called.
#[derive(Clone, Debug)]
pub(crate) enum OperatorProgram {
    /// Cargo compiles it, and runs it.
    Project(PathBuf),
    /// It is there.
    Binary(PathBuf),
}

impl OperatorProgram {
    /// That of the project in a folder.
    pub(crate) fn of_project(folder: &Path) -> Self {
        Self::Project(folder.to_owned())
    }

    /// The program, not yet called, with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        match self {
            Self::Project(folder) => {
                let mut command = Command::new("cargo");
                command.args(["run", "--quiet", "--manifest-path"]).arg(folder.join("Cargo.toml")).arg("--");
                command.args(arguments);
                command
            }
            Self::Binary(path) => {
                let mut command = Command::new(path);
                command.args(arguments);
                command
            }
        }
    }

    /// What it prints. What it has to say to people, and the compiler, too, goes to the terminal.
    pub(crate) async fn prints(&self, arguments: &[&str]) -> Result<String> {
        let cannot = || format!("cannot run {}", self.name());
        let mut command = self.command(arguments);
        // Not `output()`: that takes what is for the terminal, too.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let child = command.spawn().with_context(cannot)?;
        let output = child.wait_with_output().await.with_context(cannot)?;
        if !output.status.success() {
            bail!("{} {} failed", self.name(), arguments.join(" "));
        }
        String::from_utf8(output.stdout).context("what the operator prints is no text")
    }

    fn name(&self) -> String {
        match self {
            Self::Project(_) => "cargo run".to_owned(),
            Self::Binary(path) => path.display().to_string(),
        }
    }
}
