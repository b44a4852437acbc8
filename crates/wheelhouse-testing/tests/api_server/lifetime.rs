//! A control plane is shared, and gone when its process is.
//!
//! Some tests here need a process of their own, with an environment of its own
//! and an end of its own: they run this very program again, which then does
//! nothing but `in_a_process_of_its_own`.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use wheelhouse_local::{binaries::Binaries, progress::Progress};
use wheelhouse_testing::ControlPlane;

/// What to do in a process of its own.
const TASK: &str = "WHEELHOUSE_TESTING_TASK";

fn again(task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "lifetime::in_a_process_of_its_own", "--nocapture"])
        .env(TASK, task)
        .env_remove("KUBEBUILDER_ASSETS");
    command
}

/// Starts a control plane, says where, and does what the task is; nothing in an ordinary run.
#[tokio::test]
async fn in_a_process_of_its_own() {
    let Ok(task) = std::env::var(TASK) else { return };
    let control_plane = ControlPlane::start().await.unwrap();
    let [etcd, api_server] = control_plane.pids();
    println!("\nstarted {etcd} {api_server} {}", control_plane.folder().display());
    match task.as_str() {
        // Not for ever, should the test that is to kill this process be killed itself.
        "hang" => tokio::time::sleep(Duration::from_secs(60)).await,
        "panic" => panic!("as asked"),
        "exit" => std::process::exit(0),
        _ => {}
    }
}

/// Where a control plane is.
#[derive(Debug)]
struct Place {
    pids: Vec<u32>,
    folder: PathBuf,
}

impl Place {
    fn of(control_plane: &ControlPlane) -> Self {
        Self { pids: control_plane.pids().to_vec(), folder: control_plane.folder().to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.strip_prefix("started ")?.split(' ').collect();
        let pids = words[..2].iter().map(|pid| pid.parse().unwrap()).collect();
        Some(Self { pids, folder: PathBuf::from(words[2]) })
    }

    fn is_there(&self) -> bool {
        self.folder.exists() && self.pids.iter().all(|pid| is_alive(*pid))
    }

    fn is_gone(&self) -> bool {
        !self.folder.exists() && !self.pids.iter().any(|pid| is_alive(*pid))
    }

    fn assert_gone_soon(&self) {
        let begun = Instant::now();
        while !self.is_gone() {
            assert!(begun.elapsed() < Duration::from_secs(5), "{self:?} is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A zombie, which has no `exe`, is dead; who reaps it depends on where we run.
fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// A process that has started a control plane.
fn started(task: &str) -> (Child, Place) {
    let mut child = again(task).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let place = lines.map_while(Result::ok).find_map(|line| Place::parse(&line));
    (child, place.expect("it starts a control plane"))
}

#[test]
fn a_control_plane_is_gone_after_its_process_was_killed() {
    let (mut child, place) = started("hang");
    assert!(place.is_there(), "{place:?}");
    child.kill().unwrap();
    assert_eq!(Some(9), child.wait().unwrap().signal());
    place.assert_gone_soon();
}

#[test]
fn a_control_plane_is_gone_after_a_panic() {
    let (mut child, place) = started("panic");
    assert!(!child.wait().unwrap().success());
    place.assert_gone_soon();
}

#[test]
fn a_control_plane_is_gone_after_an_exit_that_drops_nothing() {
    let (mut child, place) = started("exit");
    assert!(child.wait().unwrap().success());
    place.assert_gone_soon();
}

#[tokio::test]
async fn a_control_plane_that_was_stopped_is_gone_at_once() {
    let control_plane = ControlPlane::start().await.unwrap();
    let place = Place::of(&control_plane);
    assert!(place.is_there());
    control_plane.stop();
    assert!(place.is_gone(), "{place:?}");
}

/// Two tests in one, each in a thread and a runtime of its own as tests are,
/// since which of two tests comes first is not known.
#[test]
fn tests_share_one_control_plane_and_no_connection_of_a_runtime_that_is_gone() {
    let test = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let control_plane = ControlPlane::shared().await.unwrap();
            let namespace = control_plane.namespace("shared").await.unwrap();
            write_and_read(namespace.client().unwrap()).await;
            (control_plane.pids(), namespace.name().to_owned())
        })
    };
    let [first, second] = [test, test].map(|test| std::thread::spawn(test).join().unwrap());
    assert_eq!(first.0, second.0);
    assert_ne!(first.1, second.1);
}

async fn write_and_read(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let object = serde_json::from_value(json!({"metadata": {"name": "same-name"}})).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    api.get("same-name").await.unwrap();
}

fn run_with_assets(folder: &Path) -> Output {
    again("nothing more").env("KUBEBUILDER_ASSETS", folder).output().unwrap()
}

/// etcd, and the API server if wanted, as links in a folder.
async fn assets(programs: &[&str]) -> tempfile::TempDir {
    let binaries = Binaries::for_tests(&Progress::silent()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for program in programs {
        std::os::unix::fs::symlink(binaries.program(program), folder.path().join(program)).unwrap();
    }
    folder
}

#[tokio::test]
async fn the_programs_of_kubebuilder_assets_are_used_where_it_is_set() {
    let folder = assets(&["kube-apiserver"]).await;
    // It says that it was called, and then is what it should be.
    let etcd = assets(&["etcd"]).await;
    let called = folder.path().join("called");
    let script = format!(
        "#!/bin/sh\ntouch {}\nexec {} \"$@\"\n",
        called.display(),
        etcd.path().join("etcd").display()
    );
    let path = folder.path().join("etcd");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    let output = run_with_assets(folder.path());
    assert!(output.status.success(), "{output:?}");
    assert!(called.exists());
}

#[tokio::test]
async fn kubebuilder_assets_without_an_api_server_are_refused_by_name() {
    let folder = assets(&["etcd"]).await;
    let output = run_with_assets(folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("has no kube-apiserver"), "{said}");
}
