//! One cluster with one node, from `up` to `down`: what `make test` sees of real nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{process::Command, time::Duration};

use support::{Said, Wheelhouse, eventually, host::Host, image, tree};

#[test]
fn a_cluster_runs_the_stand_in_and_leaves_nothing_behind() {
    let image = image("nginx");
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    // Somebody whose files are for themselves only must still get containers that can read theirs.
    let mut private = Command::new("sh");
    let script = "umask 077; exec \"$0\" local up smoke --nodes 1";
    wheelhouse.in_this_world(&mut private).args(["-c", script, env!("CARGO_BIN_EXE_wheelhouse")]);
    Said::from(private.output().unwrap()).ok();
    wheelhouse.up("smoke", &["--nodes", "1"]).ok();
    assert_eq!("Running", wheelhouse.status("smoke")["health"]);

    let loaded = wheelhouse.local(&["load", "--cluster", "smoke", &image]).ok();
    assert_eq!("loaded wheelhouse.dev/nginx:0.1.0\n", loaded);
    let manifest = std::fs::read_to_string(tree().join("deploy/hello.yaml")).unwrap();
    wheelhouse.apply("smoke", &manifest);
    wheelhouse
        .kubectl("smoke", &["-n", "hello", "rollout", "status", "deployment/hello", "--timeout=120s"])
        .ok();
    let ask =
        ["-n", "hello", "exec", "deployment/hello", "-c", "nginx", "--", "curl", "-sS", "http://hello.hello"];
    let page = eventually(
        Duration::from_secs(20),
        || wheelhouse.kubectl("smoke", &ask),
        |said| said.code == Some(0),
    );
    assert!(page.stdout.starts_with("hello from a volume that hello-"), "{page:?}");

    wheelhouse.local(&["down", "smoke"]).ok();
    assert_eq!("", Host::left_since(&before));
    assert!(!wheelhouse.state().exists());
}
