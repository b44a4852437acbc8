//! `wheelhouse local` without nodes: a control plane on loopback, and everything that is refused.
//! Needs no root, but a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{net::TcpListener, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Wheelhouse, eventually};

fn processes_of(wheelhouse: &Wheelhouse, cluster: &str) -> Vec<(i32, String)> {
    let processes = wheelhouse_local::processes::of_cluster(&wheelhouse.state().join(cluster));
    processes.into_iter().map(|process| (process.pid, process.component)).collect()
}

#[test]
fn a_control_plane_comes_up_outlives_the_command_and_goes_down() {
    let mut wheelhouse = Wheelhouse::new();
    let theirs = "apiVersion: v1\nkind: Config\ncurrent-context: work\ncontexts: [{name: work, context: {cluster: w, user: u}}]\n";
    std::fs::write(wheelhouse.kubeconfig(), theirs).unwrap();

    let said = wheelhouse.up("plane", &["--control-plane-only"]).ok();
    assert!(said.starts_with("cluster plane is up"), "{said}");
    assert_eq!("Running", wheelhouse.status("plane")["health"]);
    assert!(wheelhouse.local(&["status"]).ok().contains("plane            running"));
    assert_eq!("ok", wheelhouse.kubectl("plane", &["get", "--raw", "/readyz"]).ok());
    let version = wheelhouse.kubectl("plane", &["version"]).ok();
    assert!(version.contains("Server Version: v1.36."), "{version}");

    let merged = std::fs::read_to_string(wheelhouse.kubeconfig()).unwrap();
    assert!(
        merged.contains("current-context: wheelhouse-plane") && merged.contains("name: work"),
        "{merged}"
    );
    let own = wheelhouse.local(&["kubeconfig", "plane"]).ok();
    assert_eq!(wheelhouse.state().join("plane/kubeconfig").to_str(), Some(own.trim()));
    assert!(wheelhouse.local(&["logs", "kube-apiserver"]).ok().contains("Version: v1.36."));

    let before = processes_of(&wheelhouse, "plane");
    wheelhouse.up("plane", &["--control-plane-only"]).ok();
    assert_eq!(before, processes_of(&wheelhouse, "plane"), "`up` again must leave alone what runs");

    wheelhouse.local(&["down", "plane"]).ok();
    assert!(processes_of(&wheelhouse, "plane").is_empty());
    assert!(!wheelhouse.state().exists());
    let after = std::fs::read_to_string(wheelhouse.kubeconfig()).unwrap();
    assert!(after.contains("name: work") && !after.contains("wheelhouse"), "{after}");
    wheelhouse.local(&["down", "plane"]).refused("there is no cluster called `plane`");
    wheelhouse.local(&["down", "plane", "--if-exists"]).ok();
}

#[test]
fn a_half_dead_cluster_is_told_as_such_and_completed_by_up_with_its_data() {
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("half", &["--control-plane-only"]).ok();
    wheelhouse.kubectl("half", &["create", "configmap", "kept", "--from-literal=a=b"]).ok();

    let kill_all = |which: &dyn Fn(&str) -> bool| {
        for (pid, component) in processes_of(&wheelhouse, "half") {
            if which(&component) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
        }
    };
    kill_all(&|component| component.ends_with("/kube-scheduler"));
    let half_dead = eventually(
        Duration::from_secs(5),
        || wheelhouse.status("half"),
        |status| status["health"] != "Running",
    );
    assert_eq!("control-plane/kube-scheduler", half_dead["health"]["HalfDead"]["missing"][0]);
    assert!(wheelhouse.local(&["status"]).ok().contains("not running: control-plane/kube-scheduler"));

    kill_all(&|_| true);
    eventually(Duration::from_secs(5), || wheelhouse.status("half"), |status| status["health"] == "Dead");
    wheelhouse.up("half", &["--control-plane-only"]).ok();
    assert_eq!("Running", wheelhouse.status("half")["health"]);
    wheelhouse.kubectl("half", &["get", "configmap", "kept"]).ok();
}

#[test]
fn a_taken_port_is_named_and_nothing_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse
        .up("taken", &["--control-plane-only", "--port", &port])
        .refused(&format!("port {port} cannot be used"));
    assert!(processes_of(&wheelhouse, "taken").is_empty());
    wheelhouse
        .local(&["status", "taken"])
        .refused("there is no cluster called `taken`; there is none at all");
}

#[test]
fn a_port_that_somebody_took_while_the_cluster_was_dead_is_named() {
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("late", &["--control-plane-only"]).ok();
    for (pid, _) in processes_of(&wheelhouse, "late") {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    eventually(Duration::from_secs(5), || wheelhouse.status("late"), |status| status["health"] == "Dead");
    let server =
        wheelhouse.status("late")["server"].as_str().unwrap().trim_start_matches("https://").to_owned();
    let _taken = eventually(Duration::from_secs(5), || TcpListener::bind(&server), Result::is_ok);
    let port = server.rsplit(':').next().unwrap();
    wheelhouse
        .up("late", &["--control-plane-only"])
        .refused(&format!("port {port} of kube-apiserver is taken"));
}

#[test]
fn names_and_shapes_that_do_not_fit_are_refused() {
    let wheelhouse = Wheelhouse::new();
    for name in ["../escape", "UPPER", "a_b", "-x"] {
        let said = wheelhouse.local(&["up", "--control-plane-only", "--", name]);
        said.refused(&format!("`{name}` cannot be the name of a cluster"));
    }
    wheelhouse.local(&["up", "--nodes", "0"]).refused("a cluster has 1 to 16 nodes, not 0");
    wheelhouse.local(&["up", "--nodes", "17"]).refused("a cluster has 1 to 16 nodes, not 17");
    assert_eq!(Some(2), wheelhouse.local(&["up", "--nodes", "many"]).code);
    assert_eq!(Some(2), wheelhouse.local(&["up", "--nodes", "2", "--control-plane-only"]).code);
    wheelhouse.local(&["kubeconfig", "nowhere"]).refused("there is no cluster called `nowhere`");
    wheelhouse
        .local(&["kubectl", "get", "pods"])
        .refused("there is no cluster: `wheelhouse local up` makes one");
    wheelhouse.local(&["node", "cut", "node-1"]).refused("there is no cluster");
    assert!(wheelhouse.local(&["status"]).ok().contains("no clusters"));
}

#[test]
fn an_unknown_component_or_node_is_refused_with_those_that_exist() {
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("parts", &["--control-plane-only"]).ok();
    wheelhouse
        .local(&["logs", "kubelet"])
        .refused("has no component called `kubelet`; it has: control-plane/etcd");
    wheelhouse.local(&["load", "/dev/null"]).refused("cluster `parts` has no nodes to load images into");
    wheelhouse
        .up("parts", &["--nodes", "1"])
        .refused("is there already and has a control plane only, not nodes");
}

#[test]
fn a_broken_kubeconfig_of_the_user_is_refused_before_anything_is_started() {
    let mut wheelhouse = Wheelhouse::new();
    std::fs::write(wheelhouse.kubeconfig(), "contexts: [broken").unwrap();
    wheelhouse.up("kept", &["--control-plane-only"]).refused("is not a kubeconfig");
    assert_eq!("contexts: [broken", std::fs::read_to_string(wheelhouse.kubeconfig()).unwrap());
    assert!(!wheelhouse.state().exists());
    std::fs::remove_file(wheelhouse.kubeconfig()).unwrap();
}

#[test]
fn a_folder_that_is_not_a_clusters_is_refused_and_not_touched() {
    let mut wheelhouse = Wheelhouse::new();
    let theirs = wheelhouse.state().join("photos");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("cat.jpg"), "a cat").unwrap();
    wheelhouse
        .up("photos", &["--control-plane-only"])
        .refused("is not a cluster's folder: choose another name");
    wheelhouse.local(&["down", "photos"]).refused("there is no cluster called `photos`");
    assert_eq!("a cat", std::fs::read_to_string(theirs.join("cat.jpg")).unwrap());
}

#[test]
fn a_damaged_record_does_not_hide_other_clusters_and_is_cleared_by_down() {
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("whole", &["--control-plane-only"]).ok();
    std::fs::create_dir(wheelhouse.state().join("broken")).unwrap();
    std::fs::write(wheelhouse.state().join("broken/cluster.json"), "{\"name\":").unwrap();
    let said = wheelhouse.local(&["status"]);
    assert!(said.stderr.contains("`wheelhouse local down` clears the cluster away"), "{said:?}");
    assert!(said.ok().contains("whole            running"));
    wheelhouse.local(&["down", "broken"]).ok();
    assert!(!wheelhouse.state().join("broken").exists());
}

#[test]
fn a_state_folder_is_the_same_by_whatever_path() {
    let mut wheelhouse = Wheelhouse::new();
    std::fs::create_dir(wheelhouse.state()).unwrap();
    let link = wheelhouse.state().with_file_name("link");
    std::os::unix::fs::symlink(wheelhouse.state(), &link).unwrap();
    wheelhouse.up("linked", &["--control-plane-only"]).ok();
    let by_link = |args: &[&str]| {
        let output = wheelhouse.command(args).env("WHEELHOUSE_STATE_DIR", &link).output().unwrap();
        support::Said::from(output).ok()
    };
    assert!(by_link(&["local", "status"]).contains("linked           running"));
    by_link(&["local", "down", "linked"]);
    assert!(processes_of(&wheelhouse, "linked").is_empty());
}

#[test]
fn a_kubeconfig_that_cannot_be_changed_does_not_keep_a_cluster_up() {
    let mut wheelhouse = Wheelhouse::new();
    let device = wheelhouse
        .command(&["local", "up", "kept", "--control-plane-only"])
        .env("KUBECONFIG", "/dev/null")
        .output();
    support::Said::from(device.unwrap()).refused("/dev/null is not a file that a context can be added to");
    wheelhouse.up("kept", &["--control-plane-only"]).ok();
    std::fs::write(wheelhouse.kubeconfig(), "contexts: [broken").unwrap();
    wheelhouse.local(&["down", "kept"]).refused("is not a kubeconfig");
    assert!(processes_of(&wheelhouse, "kept").is_empty() && !wheelhouse.state().exists());
    std::fs::remove_file(wheelhouse.kubeconfig()).unwrap();
}

#[test]
fn up_goes_on_when_nobody_reads_what_it_says() {
    let mut wheelhouse = Wheelhouse::new();
    let mut child = wheelhouse.start_up("unread", &["--control-plane-only"]);
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert_eq!("Running", wheelhouse.status("unread")["health"]);
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let wheelhouse = Wheelhouse::new();
    let mut child =
        wheelhouse.command(&["local", "status"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn every_verb_has_help_with_an_example() {
    let wheelhouse = Wheelhouse::new();
    let verbs = [
        vec!["local", "up"],
        vec!["local", "down"],
        vec!["local", "status"],
        vec!["local", "kubeconfig"],
        vec!["local", "load"],
        vec!["local", "logs"],
        vec!["local", "node", "cut"],
        vec!["local", "node", "heal"],
        vec!["local", "kubectl"],
        vec!["local", "prepare"],
        vec!["image", "build"],
        vec!["demo", "up"],
        vec!["demo", "down"],
    ];
    for verb in verbs {
        let help = wheelhouse.call(&[verb.as_slice(), &["--help"]].concat()).ok();
        assert!(help.contains("Example"), "{verb:?}: {help}");
    }
}

#[test]
fn a_demo_elsewhere_without_a_registry_stops_with_one_sentence() {
    let wheelhouse = Wheelhouse::new();
    let tree = support::tree();
    let said = wheelhouse.call(&["demo", "up", "--tree", tree.to_str().unwrap(), "--kubeconfig", "/nowhere"]);
    said.refused("takes its images from a registry: say which");
}
