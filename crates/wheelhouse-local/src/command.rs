//! Calling other programs: what they were called for is part of every error.

use std::{
    ffi::{OsStr, OsString},
    process::Stdio,
};

use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::error::{Error, Result};

/// A program to call once, and why.
pub(crate) struct Call {
    doing: String,
    line: Vec<String>,
    command: Command,
    input: Option<String>,
    impossible: Option<String>,
}

impl Call {
    /// `doing` completes the sentence "cannot ...".
    pub(crate) fn new(doing: impl Into<String>, program: impl AsRef<OsStr>) -> Self {
        let line = vec![program.as_ref().to_string_lossy().into_owned()];
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).env("PATH", search_path()).kill_on_drop(true);
        Self { doing: doing.into(), line, command, input: None, impossible: None }
    }

    /// One that fails when it is called, for the reason given.
    pub(crate) fn impossible(doing: impl Into<String>, reason: String) -> Self {
        Self { impossible: Some(reason), ..Self::new(doing, "false") }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.line.push(arg.as_ref().to_string_lossy().into_owned());
        self.command.arg(arg);
        self
    }

    pub(crate) fn args(self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn folder(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Runs it as this user, with their home folder.
    pub(crate) fn user(mut self, user: &nix::unistd::User) -> Self {
        self.command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).env("HOME", &user.dir);
        self
    }

    /// Feeds it a file.
    pub(crate) fn input_file(mut self, file: std::fs::File) -> Self {
        self.command.stdin(file);
        self
    }

    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Runs it to its end; what it printed to standard output.
    pub(crate) async fn output(mut self) -> Result<String> {
        if let Some(reason) = self.impossible {
            return Err(Error::Refused(format!("cannot {}: {reason}", self.doing)));
        }
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            self.command.spawn().map_err(|error| self.failed(format!("did not start: {error}")))?;
        if let (Some(text), Some(mut stdin)) = (self.input.take(), child.stdin.take()) {
            // A program that ends without reading says why on standard error.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(|error| self.failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        let tail = said.len().saturating_sub(2000);
        let tail = said.char_indices().map(|(at, _)| at).find(|at| *at >= tail).unwrap_or(0);
        Err(self.failed(format!("ended with {}: {}", output.status, said.get(tail..).unwrap_or(said))))
    }

    /// Runs it to its end for its effect.
    pub(crate) async fn run(self) -> Result<()> {
        self.output().await.map(drop)
    }

    /// The prepared command, for who follows its output while it runs.
    pub(crate) fn spawn_piped(mut self) -> Result<(tokio::process::Child, impl FnOnce(String) -> Error)> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        match self.command.spawn() {
            Ok(child) => Ok((child, move |outcome| self.failed(outcome))),
            Err(error) => Err(self.failed(format!("did not start: {error}"))),
        }
    }

    fn failed(&self, outcome: String) -> Error {
        Error::Command { doing: self.doing.clone(), command: self.line.join(" "), outcome }
    }
}

/// The user's PATH, and the folders of system programs that it often lacks.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

/// Whether a program can be called.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file())
}
