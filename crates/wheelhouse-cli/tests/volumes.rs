//! Volumes that are as large as was asked for: full when they are full, there again
//! after their node was killed, filled by chaos and given back.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Said, Wheelhouse, eventually, host::Host, image};

const CLUSTER: &str = "volumes";
const MINUTE: Duration = Duration::from_secs(60);
const CHAOS: [&str; 7] = ["chaos", "--cluster", CLUSTER, "--selector", "app=user", "--for", "15"];

const MANIFEST: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local-sized
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: user, labels: {app: user}}
spec:
  securityContext: {runAsUser: 1000, runAsNonRoot: true, fsGroup: 2000}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "wheelhouse.dev/nginx:0.1.0"
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

/// Writes that many megabytes to a file in the volume.
fn write(wheelhouse: &Wheelhouse, megabytes: u32, file: &str) -> Said {
    let script = format!("dd if=/dev/zero of=/data/{file} bs=1M count={megabytes} conv=fsync");
    wheelhouse.kubectl(CLUSTER, &["exec", "user", "--", "sh", "-c", &script])
}

/// Writes a little more than was there.
fn write_more(wheelhouse: &Wheelhouse) -> Said {
    let script = "dd if=/dev/zero of=/data/more bs=256k count=1 oflag=append conv=notrunc,fsync";
    wheelhouse.kubectl(CLUSTER, &["exec", "user", "--", "sh", "-c", script])
}

fn is_full(said: &Said) -> bool {
    said.stderr.contains("No space left on device")
}

/// A seed from which, in so short a time, the volumes are filled and nothing else is done.
fn seed_that_fills(wheelhouse: &Wheelhouse) -> String {
    let fills = |seed: &String| {
        let plan = wheelhouse.call(&[&CHAOS[..], &["--plan", "--seed", seed]].concat());
        plan.ok().lines().next().unwrap().contains("fill the volumes of pod 1")
    };
    (1..100).map(|seed: u32| seed.to_string()).find(fills).unwrap()
}

#[test]
fn a_volume_is_as_large_as_was_asked_for_and_chaos_fills_it() {
    let nginx = image("nginx");
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up(CLUSTER, &[]).ok();
    wheelhouse.local(&["load", "--cluster", CLUSTER, &nginx]).ok();
    wheelhouse.apply(CLUSTER, MANIFEST);
    let kubectl = |arguments: &[&str]| wheelhouse.kubectl(CLUSTER, arguments).ok();
    kubectl(&["wait", "pod/user", "--for=condition=Ready", "--timeout=60s"]);

    let said = write(&wheelhouse, 100, "too-much");
    assert!(is_full(&said), "{said:?}");
    kubectl(&["exec", "user", "--", "rm", "/data/too-much"]);
    write(&wheelhouse, 40, "kept").ok();

    let processes = wheelhouse_local::processes::of_cluster(&wheelhouse.state().join(CLUSTER));
    let is_node = |each: &&wheelhouse_local::processes::Process| {
        each.component == "node-1/init" && each.program == "catatonit"
    };
    let node = processes.iter().find(is_node).unwrap().pid;
    kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    eventually(MINUTE, || wheelhouse.status(CLUSTER), |status| status["health"] != "Running");
    wheelhouse.local(&["up", CLUSTER]).ok();
    let size = || wheelhouse.kubectl(CLUSTER, &["exec", "user", "--", "stat", "-c", "%s", "/data/kept"]);
    eventually(2 * MINUTE, size, |said| said.stdout.trim() == (40 << 20).to_string());
    let said = write(&wheelhouse, 100, "too-much");
    assert!(is_full(&said), "it is the same file system: {said:?}");
    kubectl(&["exec", "user", "--", "rm", "/data/too-much"]);

    let seed = seed_that_fills(&wheelhouse);
    let chaos = |interrupt: bool| {
        let mut command = wheelhouse.command(&[&CHAOS[..], &["--seed", &seed]].concat());
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = eventually(MINUTE, || write_more(&wheelhouse), is_full);
        assert!(is_full(&said));
        if interrupt {
            kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGINT).unwrap();
        }
        let said = Said::from(running.wait_with_output().unwrap());
        assert!(said.ok().contains("everything is healed"));
    };
    for interrupt in [true, false] {
        chaos(interrupt);
        write_more(&wheelhouse).ok();
    }

    kubectl(&["delete", "pod/user", "pvc/data", "--wait=false"]);
    let folder = wheelhouse.state().join(CLUSTER).join("node-1/sized-volumes");
    let left = || std::fs::read_dir(&folder).unwrap().count();
    eventually(MINUTE, left, |left| *left == 0);
    wheelhouse.local(&["down", CLUSTER]).ok();
    assert_eq!("", Host::left_since(&before));
}
