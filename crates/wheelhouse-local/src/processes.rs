//! The processes of a cluster: started so that they outlive us, found again by
//! a mark in their environment.
//!
//! Nothing about a process is written down: a pid file can be stale, and a pid
//! can be somebody else's by now. Instead every process is started with its
//! cluster's folder and its own name in the environment, which the kernel keeps
//! for as long as it lives, also when we were killed a moment after starting it.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::error::{Error, Result};

/// The environment variables that mark a process as one of a cluster's.
const CLUSTER: &str = "WHEELHOUSE_CLUSTER_FOLDER";
const COMPONENT: &str = "WHEELHOUSE_COMPONENT";

/// A living process of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number on this host.
    pub pid: i32,
    /// Which part of the cluster it is, as in `node-1/kubelet`.
    pub component: String,
    /// The program's short name, as the kernel knows it.
    pub program: String,
}

/// A component to start, in its own session, with its output in a log file.
pub struct Daemon {
    log: PathBuf,
    command: Command,
}

impl Daemon {
    /// `component` of the cluster in `folder`; its log goes to `log`.
    pub fn new(folder: &Path, component: &str, log: PathBuf, program: impl AsRef<std::ffi::OsStr>) -> Self {
        // `setsid` does not fork here: a child that we just started leads no group.
        let mut command = Command::new("setsid");
        command
            .arg(program)
            .current_dir("/")
            .stdin(Stdio::null())
            .env("PATH", crate::command::search_path())
            .env(CLUSTER, folder)
            .env(COMPONENT, component);
        // No proxy can reach what is on this host only.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_ascii_lowercase());
        }
        Self { log, command }
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Starts it; its pid.
    pub fn start(mut self) -> Result<i32> {
        if let Some(folder) = self.log.parent() {
            crate::folders::create_folder(folder)?;
        }
        let log = File::options()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(&self.log)
            .map_err(Error::file("open the log", &self.log))?;
        let second = log.try_clone().map_err(Error::file("open the log", &self.log))?;
        let child = self.command.stdout(log).stderr(second).spawn().map_err(|error| Error::Command {
            doing: "start a component".to_owned(),
            command: format!("{:?}", self.command),
            outcome: format!("did not start: {error}"),
        })?;
        Ok(child.id().cast_signed())
    }
}

/// All living processes of the cluster in `folder`.
pub fn of_cluster(folder: &Path) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| marked(pid, folder))
        .collect()
}

/// The process of this number, if it carries the cluster's mark and is alive.
fn marked(pid: i32, folder: &Path) -> Option<Process> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|variable| {
            variable
                .strip_prefix(name.as_bytes())?
                .strip_prefix(b"=")
                .map(|value| String::from_utf8_lossy(value))
        })
    };
    if value(CLUSTER)? != folder.to_string_lossy() {
        return None;
    }
    let component = value(COMPONENT)?.into_owned();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // "PID (PROGRAM) STATE ...", and a program's name may itself hold brackets.
    let (head, tail) = stat.rsplit_once(')')?;
    let program = head.split_once('(')?.1.to_owned();
    (!matches!(tail.trim_start().chars().next(), Some('Z' | 'X'))).then_some(Process {
        pid,
        component,
        program,
    })
}

/// The direct children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map(|text| text.split_whitespace().filter_map(|child| child.parse().ok()).collect())
        .unwrap_or_default()
}

/// Sends a signal; a process that is gone is fine.
pub fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Ends all processes for which `which` holds: politely at first, then without asking.
///
/// Looks again after every round, so that what was just being started ends too.
pub async fn end(folder: &Path, patience: Duration, which: impl Fn(&Process) -> bool) -> Result<()> {
    let begun = Instant::now();
    let (mut asked, mut empty_looks) = (false, 0);
    loop {
        let left: Vec<_> = of_cluster(folder).into_iter().filter(&which).collect();
        if left.is_empty() {
            // A process that is just becoming another program shows no mark for an instant.
            empty_looks += 1;
            if empty_looks == 3 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        empty_looks = 0;
        let waited = begun.elapsed();
        if !asked && !patience.is_zero() {
            left.iter().for_each(|process| signal(process.pid, Signal::SIGTERM));
            asked = true;
        } else if waited >= patience {
            left.iter().for_each(|process| signal(process.pid, Signal::SIGKILL));
        }
        if waited > patience + Duration::from_secs(30) {
            let names: Vec<_> = left
                .iter()
                .map(|process| format!("{} (process {})", process.component, process.pid))
                .collect();
            return Err(Error::Refused(format!(
                "these processes did not end even when killed: {}; they may hang in the kernel: run `wheelhouse local down` again later",
                names.join(", ")
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The last lines of a log, for an error message.
pub fn log_end(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(8))
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
