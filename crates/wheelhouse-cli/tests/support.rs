//! What the tests of the command share: calling it as a user would, with a
//! state folder and a kubeconfig of the test's own.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod page;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Once,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The `wheelhouse` command in a world of its own; its clusters end with it.
pub(crate) struct Wheelhouse {
    folder: TempDir,
    clusters: Vec<String>,
}

/// What a call printed.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// The call succeeded; what it printed to standard output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(Some(0), self.code, "{}\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The call ended in one sentence that begins with `error: ` and contains `words`; that sentence.
    #[track_caller]
    pub(crate) fn refused(self, words: &str) -> String {
        assert_eq!(Some(1), self.code, "{}\n{}", self.stdout, self.stderr);
        let errors: Vec<_> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(1, errors.len(), "{}", self.stderr);
        assert!(self.stderr.contains(words), "expected `{words}` in: {}", self.stderr);
        errors[0].to_owned()
    }
}

impl Wheelhouse {
    /// A world without clusters.
    pub(crate) fn new() -> Self {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        Self { folder: tempfile::Builder::new().prefix(&prefix).tempdir().unwrap(), clusters: Vec::new() }
    }

    /// The clusters' folder.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The user's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A folder of the test's own.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A file of the test's own.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The command, not yet called.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wheelhouse"));
        self.in_this_world(&mut command).args(args);
        command
    }

    /// Any command, with this world's environment.
    pub(crate) fn in_this_world<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .stdin(Stdio::null())
            .env("WHEELHOUSE_STATE_DIR", self.state())
            .env("KUBECONFIG", self.kubeconfig())
            .env_remove("SUDO_USER")
    }

    /// Calls `wheelhouse ARGS`.
    pub(crate) fn call(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// Calls `wheelhouse local ARGS`.
    pub(crate) fn local(&self, args: &[&str]) -> Said {
        self.call(&[&["local"], args].concat())
    }

    /// Calls `wheelhouse local up NAME ARGS`; the cluster ends with this world.
    pub(crate) fn up(&mut self, name: &str, args: &[&str]) -> Said {
        self.clusters.push(name.to_owned());
        self.local(&[&["up", name], args].concat())
    }

    /// Starts `wheelhouse local up NAME ARGS` without waiting for it.
    pub(crate) fn start_up(&mut self, name: &str, args: &[&str]) -> std::process::Child {
        self.clusters.push(name.to_owned());
        self.command(&[&["local", "up", name], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Calls kubectl through the command.
    pub(crate) fn kubectl(&self, cluster: &str, args: &[&str]) -> Said {
        self.local(&[&["kubectl", "--cluster", cluster], args].concat())
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, cluster: &str, manifest: &str) {
        let path = self.file("manifest.yaml", manifest);
        self.kubectl(cluster, &["apply", "-f", &path.to_string_lossy()]).ok();
    }

    /// Kills a node with everything on it.
    pub(crate) fn kill_node(&self, cluster: &str, node: &str) {
        let processes = wheelhouse_local::processes::of_cluster(&self.state().join(cluster));
        let init = format!("{node}/init");
        let is_it = |each: &&wheelhouse_local::processes::Process| {
            each.program == "catatonit" && each.component == init
        };
        let pid = processes.iter().find(is_it).unwrap().pid.to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    }

    /// The health of a cluster, as `status --output json` tells it.
    pub(crate) fn status(&self, cluster: &str) -> serde_json::Value {
        let text = self.local(&["status", cluster, "--output", "json"]).ok();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].take()
    }
}

impl Drop for Wheelhouse {
    fn drop(&mut self) {
        for cluster in &self.clusters {
            let said = self.local(&["down", cluster, "--if-exists"]);
            if said.code != Some(0) && !std::thread::panicking() {
                panic!("{cluster} did not go down: {}", said.stderr);
            }
        }
    }
}

/// The folder of a world is named by the process whose it is.
const PREFIX: &str = "wh-";

/// Takes down the clusters of test runs that were killed.
fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.filter(|owner| owner.parse::<u32>().is_ok()) else { continue };
        if Path::new("/proc").join(owner).exists() {
            continue;
        }
        let state = entry.path().join("state");
        for cluster in std::fs::read_dir(&state).into_iter().flatten().flatten() {
            let down = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
                .args(["local", "down"])
                .arg(cluster.file_name())
                .env("WHEELHOUSE_STATE_DIR", &state)
                .env("KUBECONFIG", entry.path().join("kubeconfig"))
                .output();
            eprintln!("took down what a killed test run left: {down:?}");
        }
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// A program that stands in for another one: a script of the shell.
pub(crate) fn program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// The root of the repository.
pub(crate) fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The archive of an image of this tree.
pub(crate) fn image(name: &str) -> String {
    let said = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
        .args(["image", "build", name, "--tree"])
        .arg(tree())
        .output()
        .unwrap();
    Said::from(said).ok().trim().to_owned()
}

/// Waits until `what` holds; the panic says what was seen last.
#[track_caller]
pub(crate) fn eventually<T: std::fmt::Debug>(
    within: Duration,
    mut look: impl FnMut() -> T,
    holds: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let seen = look();
        if holds(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < within, "not within {within:?}; last seen: {seen:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
