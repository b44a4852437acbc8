//! One cluster with one node, from `up` to `down`: what `make test` sees of real nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use support::{Said, Wheelhouse, eventually, host::Host, http, image, tree};

#[test]
fn a_cluster_runs_operators_and_leaves_nothing_behind() {
    let gordon = image("gordon");
    let others = ["gordon-operator", "nginx", "cdn-operator", "etcd-v3.6.16", "etcd-operator"].map(image);
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    // Somebody whose files are for themselves only must still get containers that can read theirs.
    let mut private = Command::new("sh");
    let script = "umask 077; exec \"$0\" local up smoke --nodes 1";
    wheelhouse.in_this_world(&mut private).args(["-c", script, env!("CARGO_BIN_EXE_wheelhouse")]);
    Said::from(private.output().unwrap()).ok();
    wheelhouse.up("smoke", &["--nodes", "1"]).ok();
    assert_eq!("Running", wheelhouse.status("smoke")["health"]);

    let loaded = wheelhouse.local(&["load", "--cluster", "smoke", &gordon]).ok();
    assert_eq!("loaded wheelhouse.dev/gordon:0.1.0\n", loaded);
    for image in &others {
        wheelhouse.local(&["load", "--cluster", "smoke", image]).ok();
    }
    gordon_keeps_its_pods(&wheelhouse);
    the_cdn_fetches_once(&wheelhouse);
    etcd_keeps_what_was_written(&wheelhouse);
    an_image_of_one_static_binary_runs(&wheelhouse, &gordon);

    wheelhouse.local(&["down", "smoke"]).ok();
    assert_eq!("", Host::left_since(&before));
    assert!(!wheelhouse.state().exists());
}

fn read(path: &str) -> String {
    std::fs::read_to_string(tree().join(path)).unwrap()
}

fn install(wheelhouse: &Wheelhouse, operator: &str) {
    install_from(wheelhouse, &format!("deploy/{operator}.yaml"), operator);
}

fn install_from(wheelhouse: &Wheelhouse, file: &str, operator: &str) {
    wheelhouse.apply("smoke", &read(file));
    let deployment = format!("deployment/{operator}-operator");
    let rolled_out = ["-n", "wheelhouse-system", "rollout", "status", &deployment, "--timeout=120s"];
    wheelhouse.kubectl("smoke", &rolled_out).ok();
}

fn gordon_keeps_its_pods(wheelhouse: &Wheelhouse) {
    let kubectl = |args: &[&str]| wheelhouse.kubectl("smoke", args).ok();
    install(wheelhouse, "gordon");
    wheelhouse.apply("smoke", &read("operators/gordon/samples/gordon.yaml"));
    let wait = |what: &str| kubectl(&["wait", what, "gordon/gordoncluster", "--timeout=120s"]);
    wait("--for=jsonpath={.status.readyReplicas}=3");
    kubectl(&["delete", "pod", "gordoncluster-1"]);
    wait("--for=condition=Ready");
    kubectl(&["scale", "gordon", "gordoncluster", "--replicas=1"]);
    wait("--for=jsonpath={.status.replicas}=1");
    kubectl(&["delete", "gordon", "gordoncluster"]);
    kubectl(&[
        "wait",
        "--for=delete",
        "pod",
        "-l",
        "operator.prgcont.cz/gordon=gordoncluster",
        "--timeout=60s",
    ]);
}

fn the_cdn_fetches_once(wheelhouse: &Wheelhouse) {
    let kubectl = |args: &[&str]| wheelhouse.kubectl("smoke", args).ok();
    install(wheelhouse, "cdn");
    wheelhouse.apply("smoke", &read("operators/cdn/samples/cdn.yaml"));
    wheelhouse.apply("smoke", &read("operators/cdn/samples/origin.yaml"));
    kubectl(&["wait", "--for=jsonpath={.status.state}=Ready", "cdncluster", "--all", "--timeout=180s"]);
    let balancer = kubectl(&["get", "service", "balancer", "-o", "jsonpath={.spec.clusterIP}:80"]);
    let get = || http::get(&balancer, "/live/film").unwrap();
    let missing = get();
    assert_eq!(missing.status, 502);
    assert!(missing.body.contains("cache-live has no origin yet"), "{missing:?}");
    let origin =
        r#"{"spec":{"sources":[{"name":"films","origin":{"host":"films.default.svc.cluster.local"}}]}}"#;
    kubectl(&["patch", "cdncluster", "cache-live", "--type=merge", "-p", origin]);
    let fetched = eventually(Duration::from_secs(60), get, |answer| answer.status == 200);
    assert_eq!(fetched.body, "the film /live/film\n");
    assert_eq!(get().header("x-cache-status"), Some("HIT"));
    kubectl(&["delete", "cdncluster", "--all"]);
}

fn etcd_keeps_what_was_written(wheelhouse: &Wheelhouse) {
    let kubectl = |args: &[&str]| wheelhouse.kubectl("smoke", args).ok();
    install_from(wheelhouse, "deploy/etcd-cluster-wide.yaml", "etcd");
    wheelhouse.apply("smoke", &read("operators/etcd/samples/etcd.yaml"));
    let wait = || kubectl(&["wait", "--for=condition=Ready", "etcd/example-etcd-cluster", "--timeout=180s"]);
    wait();
    let etcdctl = |member: u32, args: &[&str]| {
        let pod = format!("example-etcd-cluster-{member}");
        kubectl(&[&["exec", &pod, "--", "etcdctl"], args].concat())
    };
    assert_eq!("OK\n", etcdctl(0, &["put", "/here", "test"]));
    kubectl(&["delete", "pod", "example-etcd-cluster-1"]);
    let again = || wheelhouse.kubectl("smoke", &["get", "pod", "example-etcd-cluster-1"]).code;
    eventually(Duration::from_secs(60), again, |code| *code == Some(0));
    kubectl(&["wait", "--for=condition=Ready", "pod/example-etcd-cluster-1", "--timeout=60s"]);
    wait();
    assert_eq!("/here\ntest\n", etcdctl(1, &["get", "/here"]));
    assert_eq!(3, etcdctl(1, &["member", "list"]).lines().count());
    kubectl(&["delete", "etcd", "example-etcd-cluster"]);
}

/// The node checks by itself that the image's user is not root: the pod names no user.
const GORDON: &str = "
apiVersion: v1
kind: Namespace
metadata:
  name: gordons
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Pod
metadata: {name: gordon-0, namespace: gordons}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: gordon
    image: wheelhouse.dev/gordon:0.1.0
    env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: GORDON_NAME, value: gordon}
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
";

fn an_image_of_one_static_binary_runs(wheelhouse: &Wheelhouse, archive: &str) {
    assert_eq!("program\n", files_of(archive));
    wheelhouse.local(&["load", "--cluster", "smoke", archive]).ok();
    wheelhouse.apply("smoke", GORDON);
    let kubectl = |args: &[&str]| wheelhouse.kubectl("smoke", &[&["-n", "gordons"], args].concat());
    kubectl(&["wait", "--for=condition=Ready", "pod/gordon-0", "--timeout=60s"]).ok();
    let said = kubectl(&["get", "--raw", "/api/v1/namespaces/gordons/pods/gordon-0:8080/proxy/"]).ok();
    // Kubectl asks for JSON.
    assert_eq!(r#"{"pod":"gordon-0","gordon":"gordon","namespace":"gordons"}"#, said);
    let log = kubectl(&["logs", "gordon-0"]).ok();
    assert!(
        log.contains(": I am gordon-0, one of the Gordons of gordon.\n") && log.contains("\nGET / 200\n"),
        "{log}"
    );
    let shell = kubectl(&["exec", "gordon-0", "--", "sh"]);
    assert!(shell.stderr.contains("executable file not found"), "{shell:?}");

    let begun = Instant::now();
    kubectl(&["delete", "pod", "gordon-0"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(10), "a Gordon ends when told: {:?}", begun.elapsed());
}

/// The names of all files in the layers of an image.
fn files_of(archive: &str) -> String {
    let list = r#"tar -xOf "$0" --wildcards '*.tar' | tar -t --ignore-zeros"#;
    Said::from(Command::new("bash").args(["-o", "pipefail", "-c", list, archive]).output().unwrap()).ok()
}
