//! Clusters of real etcd on three nodes: the walk-through of the talk, and what may happen to a cluster
//! while clients write and read, without anything being lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

#[path = "etcd/checker.rs"]
mod checker;
#[path = "etcd/history.rs"]
mod history;
#[path = "etcd/loss.rs"]
mod loss;
mod support;
#[path = "etcd/upkeep.rs"]
mod upkeep;

use std::time::{Duration, Instant};

use history::{History, Place};
use serde_json::Value;
use support::{Said, Wheelhouse, eventually, host::Host, image, tree};

const CLUSTER: &str = "etcd";
const MINUTE: Duration = Duration::from_secs(60);

struct Etcds {
    wheelhouse: Wheelhouse,
}

#[test]
fn a_cluster_of_etcd_serves_whatever_happens_and_loses_nothing() {
    let images = ["etcd-v3.5.35", "etcd-v3.6.16", "etcd-v3.7.3", "etcd-operator"].map(image);
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up(CLUSTER, &["--nodes", "3"]).ok();
    for image in &images {
        wheelhouse.local(&["load", "--cluster", CLUSTER, image]).ok();
    }
    let etcds = Etcds { wheelhouse };
    the_walk_through_of_the_talk(&etcds);
    etcds.install("deploy/etcd-cluster-wide.yaml", "wheelhouse-system");
    etcds.begin("db", 3, "3.6.16");
    for (what, trouble) in TROUBLES {
        etcds.under_load("db", what, trouble);
    }
    etcds.delete("db");
    loss::a_seed_that_is_wiped_does_not_begin_again(&etcds);
    loss::a_lost_quorum_waits_for_a_person_and_begins_anew_for_who_wants_that(&etcds);
    upkeep::the_authority_is_replaced_under_load(&etcds);
    upkeep::a_quota_that_is_used_up_is_told_and_mended(&etcds);
    upkeep::an_operator_that_is_killed_in_the_middle_goes_on(&etcds);
    etcds.begin("old", 3, "3.5.35");
    etcds.under_load("old", "upgrade from 3.5 to 3.6 to 3.7", upgrade);
    etcds.delete("old");
    etcds.wheelhouse.local(&["down", CLUSTER]).ok();
    assert_eq!("", Host::left_since(&before));
}

type Trouble = fn(&Etcds, &str);

const TROUBLES: [(&str, Trouble); 18] = [
    // Before any other member is replaced: it might be the seed.
    ("wipe the volume of the seed", |etcds, name| {
        let seed = etcds.resource(name)["metadata"]["annotations"]["etcd.database.coreos.com/seed"].clone();
        let seed = seed.as_str().unwrap().to_owned();
        assert!(etcds.pods(name).contains(&seed), "{seed} is still a member");
        etcds.wipe(name, &seed);
        eventually(MINUTE, || etcds.pods(name), |pods| !pods.contains(&seed) && pods.len() == 3);
    }),
    ("delete the pod of a follower", |etcds, name| {
        etcds.delete_pods(name, &[etcds.followers(name)[0].clone()])
    }),
    ("delete the pod of the leader", |etcds, name| etcds.delete_pods(name, &[etcds.leader(name)])),
    ("kill the process of the leader", |etcds, name| etcds.kill(name, &etcds.leader(name), "KILL")),
    ("stop the process of the leader for five seconds", |etcds, name| {
        let leader = etcds.leader(name);
        etcds.kill(name, &leader, "STOP");
        std::thread::sleep(Duration::from_secs(5));
        etcds.kill(name, &leader, "CONT");
    }),
    ("stop the process of a follower for five seconds", |etcds, name| {
        let follower = etcds.followers(name)[0].clone();
        etcds.kill(name, &follower, "STOP");
        std::thread::sleep(Duration::from_secs(5));
        etcds.kill(name, &follower, "CONT");
    }),
    ("kill the processes of two of three", |etcds, name| {
        etcds.pods(name)[..2].iter().for_each(|pod| etcds.kill(name, pod, "KILL"));
    }),
    ("kill the processes of all three", |etcds, name| {
        etcds.pods(name).iter().for_each(|pod| etcds.kill(name, pod, "KILL"));
    }),
    ("delete two pods of three", |etcds, name| etcds.delete_pods(name, &etcds.pods(name)[..2])),
    ("delete all pods", |etcds, name| etcds.delete_pods(name, &etcds.pods(name))),
    ("wipe the volume of a follower", |etcds, name| {
        let follower = etcds.followers(name)[0].clone();
        etcds.wipe(name, &follower);
        eventually(MINUTE, || etcds.pods(name), |pods| !pods.contains(&follower) && pods.len() == 3);
    }),
    ("corrupt the data of a follower", |etcds, name| {
        let follower = etcds.followers(name)[0].clone();
        let script = "for f in /var/etcd/data/member/wal/*.wal; do printf 'not what etcd wrote' | dd of=$f bs=1 seek=600 conv=notrunc 2>/dev/null; done";
        etcds.kubectl(&["exec", &follower, "--", "sh", "-c", script]);
        etcds.kill(name, &follower, "KILL");
        eventually(MINUTE, || etcds.pods(name), |pods| !pods.contains(&follower) && pods.len() == 3);
    }),
    ("cut off the node of the leader for twenty seconds", |etcds, name| {
        etcds.cut_off(&etcds.leader(name), || std::thread::sleep(Duration::from_secs(20)));
    }),
    ("kill the operator", |etcds, _| {
        etcds.kubectl(&[
            "-n",
            "wheelhouse-system",
            "delete",
            "pod",
            "-l",
            "app.kubernetes.io/name=etcd-operator",
            "--wait=false",
        ]);
    }),
    ("change the size to 5", |etcds, name| etcds.resize(name, 5)),
    // Volumes of members that went are in nobody's way.
    ("change the size 5-3-5", |etcds, name| [3, 5].iter().for_each(|size| etcds.resize(name, *size))),
    ("change the size to 3, to 1 and back to 3", |etcds, name| {
        for size in [3, 1, 3] {
            etcds.resize(name, size);
        }
    }),
    ("change the size 3-5-3-1-3 quickly", |etcds, name| {
        for size in [5, 3, 1, 3] {
            etcds.want(name, size);
            std::thread::sleep(Duration::from_millis(1500));
        }
    }),
];

fn upgrade(etcds: &Etcds, name: &str) {
    for version in ["3.6.16", "3.7.3"] {
        let begun = Instant::now();
        etcds.kubectl(&[
            "patch",
            "etcd",
            name,
            "--type=merge",
            "-p",
            &format!(r#"{{"spec":{{"version":"{version}"}}}}"#),
        ]);
        etcds.kubectl(&[
            "wait",
            &format!("--for=jsonpath={{.status.currentVersion}}={version}"),
            &format!("etcd/{name}"),
            "--timeout=180s",
        ]);
        etcds.wait_until_ready(name, 3);
        println!("  {version} everywhere after {:.1} s", begun.elapsed().as_secs_f64());
    }
}

impl Etcds {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).ok()
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Said {
        self.wheelhouse.kubectl(CLUSTER, arguments)
    }

    fn install(&self, file: &str, namespace: &str) {
        self.wheelhouse.apply(CLUSTER, &std::fs::read_to_string(tree().join(file)).unwrap());
        self.kubectl(&["-n", namespace, "rollout", "status", "deployment/etcd-operator", "--timeout=120s"]);
    }

    fn begin(&self, name: &str, size: usize, version: &str) {
        self.begin_with(name, size, version, "paused: false");
    }

    /// A cluster with one more field than are needed.
    fn begin_with(&self, name: &str, size: usize, version: &str, field: &str) {
        let begun = Instant::now();
        self.wheelhouse.apply(
            CLUSTER,
            &format!(
                "apiVersion: etcd.database.coreos.com/v1beta2\nkind: EtcdCluster\nmetadata:\n  name: {name}\n  annotations: {{etcd.database.coreos.com/scope: clusterwide}}\nspec: {{size: {size}, version: {version}, deletionPolicy: Delete, storage: {{size: 1Gi}}, {field}}}\n"
            ),
        );
        self.wait_until_ready(name, size);
        println!("{name}: from apply to {size} ready members: {:.1} s", begun.elapsed().as_secs_f64());
    }

    fn delete(&self, name: &str) {
        self.kubectl(&["delete", "etcd", name]);
        self.kubectl(&[
            "wait",
            "--for=delete",
            "pod",
            "-l",
            &format!("etcd_cluster={name}"),
            "--timeout=120s",
        ]);
        let left =
            || self.kubectl(&["get", "pvc,etcdmember", "-l", &format!("etcd_cluster={name}"), "-o", "name"]);
        eventually(MINUTE, left, String::is_empty);
    }

    /// A condition's status, reason and message.
    fn condition(&self, name: &str, kind: &str) -> [String; 3] {
        let resource = self.resource(name);
        let conditions = resource["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|each| each["type"] == kind).unwrap_or_default();
        ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default().to_owned())
    }

    fn etcdctl(&self, pod: &str, arguments: &[&str]) -> String {
        self.kubectl(&[&["exec", pod, "--", "etcdctl"], arguments].concat())
    }

    fn resource(&self, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", "etcd", name, "-o", "json"])).unwrap()
    }

    fn wait_until_ready(&self, name: &str, size: usize) {
        let is_ready = |resource: &Value| {
            let status = &resource["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|each| each["type"] == "Ready" && each["status"] == "True");
            ready
                && status["readyMembers"] == size
                && status["size"] == size
                && status["observedGeneration"] == resource["metadata"]["generation"]
        };
        eventually(3 * MINUTE, || self.resource(name), is_ready);
    }

    /// What happens while clients write and read; then the cluster is ready again, and nothing is lost.
    fn under_load(&self, name: &str, what: &str, trouble: Trouble) {
        let size = usize::try_from(self.resource(name)["spec"]["size"].as_u64().unwrap()).unwrap();
        self.wait_until_ready(name, size);
        let history = History::start(Place::plain(self.address(name)));
        history.wait_for_writes();
        let begun = Instant::now();
        trouble(self, name);
        history.wait_for_writes();
        let size = usize::try_from(self.resource(name)["spec"]["size"].as_u64().unwrap()).unwrap();
        self.wait_until_ready(name, size);
        let took = begun.elapsed();
        history.wait_for_writes();
        history.end_and_tell(what, took);
    }

    /// Where clients find a cluster.
    fn address(&self, name: &str) -> String {
        let service = format!("{name}-client");
        self.kubectl(&["get", "service", &service, "-o", "jsonpath={.spec.clusterIP}:2379"])
    }

    fn pods(&self, name: &str) -> Vec<String> {
        let selector = format!("etcd_cluster={name}");
        let names =
            self.kubectl(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[*].metadata.name}"]);
        names.split_whitespace().map(str::to_owned).collect()
    }

    fn leader(&self, name: &str) -> String {
        let leads = |pod: &&String| {
            let status = self.kubectl(&["exec", pod, "--", "etcdctl", "endpoint", "status", "-w", "json"]);
            let status: Value = serde_json::from_str(&status).unwrap();
            let status = &status[0]["Status"];
            status["leader"] == status["header"]["member_id"]
        };
        self.pods(name).iter().find(leads).unwrap().clone()
    }

    fn followers(&self, name: &str) -> Vec<String> {
        let leader = self.leader(name);
        self.pods(name).into_iter().filter(|pod| *pod != leader).collect()
    }

    fn delete_pods(&self, _: &str, pods: &[String]) {
        let pods: Vec<_> = pods.iter().map(String::as_str).collect();
        self.kubectl(&[&["delete", "pod", "--wait=false"], pods.as_slice()].concat());
    }

    /// Sends a signal to etcd itself, not to its supervisor.
    fn kill(&self, _: &str, pod: &str, signal: &str) {
        let script = format!(
            "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm 2>/dev/null)\" = etcd ]; then kill -{signal} ${{p#/proc/}}; fi; done"
        );
        self.kubectl(&["exec", pod, "--", "sh", "-c", &script]);
    }

    /// Nobody reaches the node of a pod meanwhile.
    fn cut_off(&self, pod: &str, meanwhile: impl FnOnce()) {
        let node = self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]);
        self.wheelhouse.local(&["node", "cut", "--cluster", CLUSTER, &node]).ok();
        meanwhile();
        self.wheelhouse.local(&["node", "heal", "--cluster", CLUSTER, &node]).ok();
    }

    fn wipe(&self, name: &str, pod: &str) {
        self.kubectl(&["exec", pod, "--", "sh", "-c", "rm -rf /var/etcd/data"]);
        self.kill(name, pod, "KILL");
    }

    fn want(&self, name: &str, size: usize) {
        let patch = format!(r#"{{"spec":{{"size":{size}}}}}"#);
        self.kubectl(&["patch", "etcd", name, "--type=merge", "-p", &patch]);
    }

    fn resize(&self, name: &str, size: usize) {
        let begun = Instant::now();
        self.want(name, size);
        self.wait_until_ready(name, size);
        println!("  {size} members after {:.1} s", begun.elapsed().as_secs_f64());
    }
}

/// Document 001, changing only the line with the version: an operator for its own namespace in `etc`,
/// another in `etc2`.
fn the_walk_through_of_the_talk(etcds: &Etcds) {
    let manifest = "apiVersion: \"etcd.database.coreos.com/v1beta2\"\nkind: \"EtcdCluster\"\nmetadata:\n  name: \"example-etcd-cluster\"\nspec:\n  size: 3\n  version: \"3.6.16\"\n  repository: \"wheelhouse.dev/etcd\"\n";
    let path = etcds.wheelhouse.file("example.yaml", manifest);
    let path = path.to_string_lossy();
    etcds.install("deploy/etcd.yaml", "etc");
    let in_namespace =
        |namespace: &str, arguments: &[&str]| etcds.kubectl(&[&["-n", namespace], arguments].concat());
    let crds = etcds.kubectl(&["get", "crd"]);
    assert!(crds.contains("etcdclusters.etcd.database.coreos.com"), "{crds}");
    in_namespace("etc", &["apply", "-f", &path]);
    let ready = |namespace: &str, members: usize| {
        let wait = format!("--for=jsonpath={{.status.readyMembers}}={members}");
        in_namespace(namespace, &["wait", &wait, "etcdcluster/example-etcd-cluster", "--timeout=120s"]);
    };
    ready("etc", 3);
    let described = in_namespace("etc", &["describe", "etcdcluster", "example-etcd-cluster"]);
    for words in ["Phase:", "Running", "Client Port:", "2379", "example-etcd-cluster-client"] {
        assert!(described.contains(words), "{words} is not in: {described}");
    }
    let pods = in_namespace("etc", &["get", "po", "-l", "etcd_cluster=example-etcd-cluster", "-o", "name"]);
    let pod = pods.lines().next().unwrap().to_owned();
    let shell = |namespace: &str, script: &str| {
        in_namespace(namespace, &["exec", &pod, "--", "sh", "-c", &format!("export ETCDCTL_API=3; {script}")])
    };
    assert_eq!(shell("etc", "etcdctl member list").lines().count(), 3);
    assert_eq!(shell("etc", "etcdctl put /here test"), "OK\n");
    assert_eq!(shell("etc", "etcdctl get /here"), "/here\ntest\n");
    in_namespace(
        "etc",
        &["patch", "etcd", "example-etcd-cluster", "--type=merge", "-p", r#"{"spec":{"size":5}}"#],
    );
    ready("etc", 5);
    assert_eq!(shell("etc", "etcdctl get /here"), "/here\ntest\n");
    assert_eq!(shell("etc", "etcdctl member list").lines().count(), 5);

    // Another operator for another namespace, and a cluster that knows nothing of the first.
    etcds.kubectl(&["create", "namespace", "etc2"]);
    in_namespace("etc2", &["apply", "-f", &path]);
    std::thread::sleep(Duration::from_secs(3));
    let status =
        in_namespace("etc2", &["get", "etcdcluster", "example-etcd-cluster", "-o", "jsonpath={.status}"]);
    assert_eq!(status, "", "nobody looks after that namespace yet");
    let file = std::fs::read_to_string(tree().join("deploy/etcd.yaml")).unwrap();
    etcds.wheelhouse.apply(
        CLUSTER,
        &file.replace("namespace: etc\n", "namespace: etc2\n").replace("name: etc\n", "name: etc2\n"),
    );
    ready("etc2", 3);
    assert_eq!(shell("etc2", "etcdctl get /here"), "");
    shell("etc2", "etcdctl put /here other");
    assert_eq!(shell("etc", "etcdctl get /here"), "/here\ntest\n");
    for namespace in ["etc", "etc2"] {
        in_namespace(namespace, &["delete", "etcdcluster", "--all"]);
        in_namespace(namespace, &["wait", "--for=delete", "pod", "-l", "app=etcd", "--timeout=120s"]);
        in_namespace(namespace, &["delete", "pvc", "--all"]);
        in_namespace(namespace, &["delete", "deployment", "etcd-operator"]);
    }
}
