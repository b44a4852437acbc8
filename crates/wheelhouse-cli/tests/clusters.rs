//! Whole clusters coming and going: side by side, interrupted, killed, and on
//! hosts that lack something. Everything here needs root.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    fs,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Said, Wheelhouse, eventually, host::Host};
use wheelhouse_local::processes::Process;

/// What is left on the host can be compared by one test at a time only.
static HOST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn processes_of(wheelhouse: &Wheelhouse, cluster: &str) -> Vec<Process> {
    wheelhouse_local::processes::of_cluster(&wheelhouse.state().join(cluster))
}

#[test]
fn two_clusters_live_side_by_side() {
    let _alone = alone();
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    let first = wheelhouse.start_up("first", &[]);
    wheelhouse.up("second", &[]).ok();
    Said::from(first.wait_with_output().unwrap()).ok();
    let (first, second) = (wheelhouse.status("first"), wheelhouse.status("second"));
    assert_eq!(
        ("Running", "Running"),
        (first["health"].as_str().unwrap(), second["health"].as_str().unwrap())
    );
    assert_ne!(first["server"], second["server"]);
    for cluster in ["first", "second"] {
        wheelhouse.kubectl(cluster, &["create", "configmap", cluster]).ok();
    }
    let seen = wheelhouse.kubectl("first", &["get", "configmap", "second"]);
    assert_eq!(Some(1), seen.code, "each has objects of its own: {seen:?}");
    wheelhouse.local(&["kubectl", "get", "nodes"]).ok();

    wheelhouse.local(&["down", "second"]).ok();
    assert_eq!("Running", wheelhouse.status("first")["health"], "the other one is not touched");
    wheelhouse.up("first", &["--nodes", "2"]).ok();
    assert_eq!(2, wheelhouse.status("first")["nodes"].as_array().unwrap().len(), "a cluster can grow");
    a_volume_can_be_used_on(&wheelhouse, "first", "node-2");
    wheelhouse.local(&["down", "first"]).ok();
    assert_eq!("", Host::left_since(&before));
}

fn a_volume_can_be_used_on(wheelhouse: &Wheelhouse, cluster: &str, node: &str) {
    let image = support::image("nginx");
    wheelhouse.local(&["load", "--cluster", cluster, &image]).ok();
    wheelhouse.apply(
        cluster,
        &format!(
            r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: user}}
spec:
  restartPolicy: Never
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers:
  - {{name: main, image: "wheelhouse.dev/nginx:0.1.0", command: [touch, /data/x], volumeMounts: [{{name: data, mountPath: /data}}]}}
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
"#
        ),
    );
    wheelhouse
        .kubectl(cluster, &["wait", "pod/user", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"])
        .ok();
}

#[test]
fn the_same_name_in_another_state_folder_is_another_cluster() {
    let _alone = alone();
    let (mut one, mut other) = (Wheelhouse::new(), Wheelhouse::new());
    one.up("twin", &[]).ok();
    other.up("twin", &[]).ok();
    other.local(&["down", "twin"]).ok();
    assert_eq!("Running", one.status("twin")["health"]);
}

#[test]
fn an_interrupted_up_leaves_nothing_behind() {
    let _alone = alone();
    let before = Host::now();
    for after in [200, 600, 1500, 3000, 5000] {
        let mut wheelhouse = Wheelhouse::new();
        let child = wheelhouse.start_up("interrupted", &["--nodes", "2"]);
        std::thread::sleep(Duration::from_millis(after));
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let said = Said::from(child.wait_with_output().unwrap());
        said.refused("interrupted");
        assert_eq!("", Host::left_since(&before), "interrupted after {after} ms");
        assert!(!wheelhouse.state().exists(), "interrupted after {after} ms");
        let kubeconfig = fs::read_to_string(wheelhouse.kubeconfig()).unwrap_or_default();
        assert!(!kubeconfig.contains("wheelhouse"), "{kubeconfig}");
    }
}

#[test]
fn a_killed_up_is_told_by_status_and_cleared_by_the_next_up_or_down() {
    let _alone = alone();
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    for (after, with) in [(300, "down"), (1000, "up"), (2500, "down"), (4500, "up")] {
        let mut child = wheelhouse.start_up("killed", &["--nodes", "2"]);
        std::thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!("Unfinished", wheelhouse.status("killed")["health"], "killed after {after} ms");
        match with {
            "up" => {
                wheelhouse.up("killed", &["--nodes", "1"]).ok();
                assert_eq!("Running", wheelhouse.status("killed")["health"]);
                wheelhouse.local(&["down", "killed"]).ok();
            }
            _ => drop(wheelhouse.local(&["down", "killed"]).ok()),
        }
        assert_eq!("", Host::left_since(&before), "killed after {after} ms, then {with}");
    }
}

#[test]
fn a_node_that_was_left_half_made_is_made_anew() {
    let _alone = alone();
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("grown", &[]).ok();
    for after in [60, 120, 180, 240, 300, 400, 600, 1200] {
        let mut child = wheelhouse.start_up("grown", &["--nodes", "3"]);
        std::thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();
        // containerd runs in machines that were set up to the end, and in no other: its socket would
        // be the host's there.
        let is_containerd = |each: &Process| each.program == "containerd";
        for process in processes_of(&wheelhouse, "grown").into_iter().filter(is_containerd) {
            let mark = format!("/proc/{}/root/run/wheelhouse-complete", process.pid);
            assert!(fs::exists(mark).unwrap(), "{} after {after} ms", process.component);
        }
    }
    wheelhouse.up("grown", &["--nodes", "3"]).ok();
    let status = wheelhouse.status("grown");
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["ready"] == true), "{status}");
    wheelhouse.local(&["down", "grown"]).ok();
    assert_eq!("", Host::left_since(&before));
}

#[test]
fn a_folder_whose_path_would_confuse_configuration_files_is_refused() {
    let _alone = alone();
    let wheelhouse = Wheelhouse::new();
    let odd = wheelhouse.state().join("with a space");
    let said = wheelhouse.command(&["local", "up", "odd"]).env("WHEELHOUSE_STATE_DIR", odd).output().unwrap();
    Said::from(said).refused("has characters other than letters, digits and /._- in its path");
}

#[test]
fn two_ups_of_one_name_are_both_right() {
    let _alone = alone();
    let mut wheelhouse = Wheelhouse::new();
    let first = wheelhouse.start_up("both", &[]);
    std::thread::sleep(Duration::from_millis(500));
    let second = wheelhouse.up("both", &[]);
    assert!(second.stderr.contains("is working on cluster both; waiting for it"), "{second:?}");
    second.ok();
    Said::from(first.wait_with_output().unwrap()).ok();
    assert_eq!("Running", wheelhouse.status("both")["health"]);
}

#[test]
fn a_cluster_that_lost_everything_comes_back_with_its_data() {
    let _alone = alone();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("reboot", &[]).ok();
    wheelhouse.kubectl("reboot", &["create", "configmap", "kept"]).ok();
    // What a reboot does to it: no process is left, the files are.
    for process in processes_of(&wheelhouse, "reboot") {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    eventually(Duration::from_secs(10), || wheelhouse.status("reboot"), |status| status["health"] == "Dead");
    wheelhouse.up("reboot", &[]).ok();
    wheelhouse.kubectl("reboot", &["get", "configmap", "kept"]).ok();
    assert_eq!("Running", wheelhouse.status("reboot")["health"]);

    // And when only the host's link to it was taken away.
    let link = fs::read_dir("/sys/class/net").unwrap().flatten().map(|entry| entry.path()).find(|path| {
        fs::read_to_string(path.join("ifalias")).is_ok_and(|alias| alias.starts_with("reboot-"))
    });
    let link = link.unwrap().file_name().unwrap().to_owned();
    assert!(Command::new("ip").args(["link", "delete"]).arg(link).status().unwrap().success());
    wheelhouse.up("reboot", &[]).ok();
    wheelhouse.kubectl("reboot", &["get", "configmap", "kept"]).ok();
}

#[test]
fn somebody_who_is_not_root_is_told_what_to_do() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("wheelhouse");
    fs::copy(env!("CARGO_BIN_EXE_wheelhouse"), &binary).unwrap();
    Command::new("chmod").args(["-R", "a+rwX"]).arg(folder.path()).status().unwrap();
    let said = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["local", "up", "nobody"])
        .env("HOME", folder.path())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let sentence =
        Said::from(said).refused("nodes need root: run it with sudo, or ask for `--control-plane-only`");
    assert!(sentence.starts_with("error: this machine is not ready for a cluster with nodes"), "{sentence}");
}

#[test]
fn a_host_without_a_memory_controller_is_told_what_to_do() {
    let _alone = alone();
    let wheelhouse = Wheelhouse::new();
    let binary = env!("CARGO_BIN_EXE_wheelhouse");
    let script = format!(
        "umount -l /sys/fs/cgroup/memory 2>/dev/null || mount -t tmpfs none /sys/fs/cgroup; exec {binary} local up nogroups"
    );
    let mut command = Command::new("unshare");
    wheelhouse.in_this_world(&mut command).args(["--mount", "sh", "-c", &script]);
    let said = Said::from(command.output().unwrap());
    said.refused("the control group controllers");
    assert!(!wheelhouse.state().exists());
}

#[test]
fn a_disk_that_is_nearly_full_is_told_before_anything_is_started() {
    let _alone = alone();
    let wheelhouse = Wheelhouse::new();
    let binary = env!("CARGO_BIN_EXE_wheelhouse");
    fs::create_dir(wheelhouse.state()).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64m none {}; exec {binary} local up full",
        wheelhouse.state().display()
    );
    let mut command = Command::new("unshare");
    wheelhouse.in_this_world(&mut command).args(["--mount", "sh", "-c", &script]);
    Said::from(command.output().unwrap()).refused("64 MiB of free disk and 1536 are needed: make room");
    assert_eq!(0, fs::read_dir(wheelhouse.state()).unwrap().count());

    let small_cache = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64m none {}; exec {binary} local up full --control-plane-only",
        small_cache.path().display()
    );
    let mut command = Command::new("unshare");
    wheelhouse.in_this_world(&mut command).env("WHEELHOUSE_CACHE_DIR", small_cache.path());
    let said = Said::from(command.args(["--mount", "sh", "-c", &script]).output().unwrap());
    said.refused("building Kubernetes needs 6 GiB of free disk");
}

#[test]
fn missing_programs_are_named_all_at_once_with_the_command_that_installs_them() {
    let _alone = alone();
    let wheelhouse = Wheelhouse::new();
    let binary = env!("CARGO_BIN_EXE_wheelhouse");
    // In a mount namespace of the test's own, where a device lies over each program.
    let script = format!(
        "for program in containerd runc; do mount --bind /dev/null $(command -v $program); done; \
         mount -t tmpfs none /usr/lib/cni; exec {binary} local up lacking"
    );
    let mut command = Command::new("unshare");
    wheelhouse.in_this_world(&mut command).args(["--mount", "sh", "-c", &script]);
    let sentence = Said::from(command.output().unwrap()).refused("apt-get install -y");
    assert!(
        sentence.contains("`apt-get install -y containerd containernetworking-plugins runc`"),
        "{sentence}"
    );
}

/// With the Go cache warm this takes half a minute: Kubernetes is really built.
#[test]
fn a_damaged_cache_is_built_anew_and_by_only_one_of_two_callers() {
    let _alone = alone();
    let mut wheelhouse = Wheelhouse::new();
    // Beside the build: the folder for temporary files may be in memory.
    let cache = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let entry = cache.path().join("kubernetes").join(cache_entry());
    fs::create_dir_all(&entry).unwrap();
    fs::write(entry.join("kubernetes"), "half of a binary").unwrap();
    fs::write(entry.join("checksums.json"), "{\"files\": [[\"kubernetes\", \"00\"").unwrap();

    let start = |name: &str| {
        let mut command = wheelhouse.command(&["local", "up", name, "--control-plane-only"]);
        command.env("WHEELHOUSE_CACHE_DIR", cache.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (one, other) = (start("one"), start("other"));
    let said = [one, other].map(|child| Said::from(child.wait_with_output().unwrap()));
    for name in ["one", "other"] {
        wheelhouse.up(name, &["--control-plane-only"]).ok();
    }
    let all = format!("{}{}", said[0].stderr, said[1].stderr);
    assert_eq!((Some(0), Some(0)), (said[0].code, said[1].code), "{all}");
    assert_eq!(1, all.matches("is incomplete or damaged: building it anew").count(), "{all}");
    assert_eq!(1, all.matches("... compiling kubernetes").count(), "{all}");
    assert_eq!(1, all.matches("Kubernetes is being built by process").count(), "{all}");
}

/// The name of the cache entry of Kubernetes, from the cache that exists.
fn cache_entry() -> String {
    let wheelhouse = Wheelhouse::new();
    let folder = wheelhouse.local(&["prepare"]).ok();
    std::path::Path::new(folder.trim()).file_name().unwrap().to_string_lossy().into_owned()
}
