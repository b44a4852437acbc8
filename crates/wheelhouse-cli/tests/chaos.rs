//! Seeded chaos on operators in a cluster of three nodes: `CHAOS_SECONDS` (60) of it
//! from `CHAOS_SEED` (7) on each.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

#[path = "etcd/history.rs"]
mod history;
mod support;

use std::time::{Duration, Instant};

use history::{History, Place};
use support::{Wheelhouse, eventually, host::Host, http, image, tree};

const MINUTE: Duration = Duration::from_secs(60);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

/// An operator, and what it looks after.
struct Subject {
    /// The operator is `NAME-operator`.
    name: &'static str,
    /// The file in `deploy/` that installs it.
    manifest: &'static str,
    images: &'static [&'static str],
    /// Whom chaos strikes.
    selector: &'static str,
    /// What is wanted of the operator.
    wanted: String,
}

/// Calls kubectl, and returns what it printed.
type Kubectl<'a> = &'a dyn Fn(&[&str]) -> String;

impl Subject {
    /// Has the operator do what is wanted, until `is_right`; strikes; and waits until it is right again.
    /// `meanwhile` begins something that goes on all the time, and returns how it ends.
    fn survives<E: FnOnce()>(
        &self,
        is_right: impl Fn(Kubectl<'_>),
        meanwhile: impl FnOnce(Kubectl<'_>) -> E,
    ) {
        // Two at once would be more than these machines can do.
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (cluster, operator) = (format!("chaos-{}", self.name), format!("{}-operator", self.name));
        let images: Vec<_> = self.images.iter().copied().chain([operator.as_str()]).map(image).collect();
        let before = Host::now();
        let mut wheelhouse = Wheelhouse::new();
        wheelhouse.up(&cluster, &["--nodes", "3"]).ok();
        for image in &images {
            wheelhouse.local(&["load", "--cluster", &cluster, image]).ok();
        }
        let kubectl = |arguments: &[&str]| wheelhouse.kubectl(&cluster, arguments).ok();
        let manifest = tree().join("deploy").join(self.manifest);
        kubectl(&["apply", "-f", &manifest.to_string_lossy()]);
        let deployment = format!("deployment/{operator}");
        let operator_runs = ["-n", "wheelhouse-system", "rollout", "status", &deployment, "--timeout=120s"];
        kubectl(&operator_runs);
        wheelhouse.apply(&cluster, &self.wanted);
        is_right(&kubectl);
        let end = meanwhile(&kubectl);

        let (seconds, seed) = (number("CHAOS_SECONDS", 60).to_string(), number("CHAOS_SEED", 7).to_string());
        let operator = format!("app.kubernetes.io/name={operator}");
        let whom = ["chaos", "--cluster", &cluster, "--selector", self.selector, "--operator", &operator];
        let arguments = [&whom[..], &["--for", &seconds, "--seed", &seed]].concat();
        let planned = || wheelhouse.call(&[&arguments[..], &["--plan"]].concat()).ok();
        let plan = planned();
        println!("{plan}");
        let said = wheelhouse.call(&arguments);
        println!("{}{}", said.stderr, said.stdout);
        let said = said.ok();
        assert!(said.contains("everything is healed"));
        let numbers: Vec<usize> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[1] * 4 <= numbers[0], "most strikes must hit something: {said}");

        is_right(&kubectl);
        end();
        kubectl(&["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"]);
        kubectl(&operator_runs);
        assert_eq!(plan, planned(), "the same again from the seed");
        wheelhouse.local(&["down", &cluster]).ok();
        assert_eq!("", Host::left_since(&before));
    }
}

#[test]
fn gordon_is_right_after_chaos_and_the_same_seed_does_the_same_again() {
    let subject = Subject {
        name: "gordon",
        manifest: "gordon.yaml",
        images: &["gordon"],
        selector: "operator.prgcont.cz/gordon=g",
        wanted: "apiVersion: operator.prgcont.cz/v1\nkind: Gordon\nmetadata: {name: g}\nspec: {gordon: {replicas: 4}}\n"
            .to_owned(),
    };
    let status = "jsonpath={.status.readyReplicas} {.status.replicas}";
    let is_right = |kubectl: Kubectl<'_>| {
        // A node that was cut off takes some time to be ready again, and the pods on it, too.
        let status = || kubectl(&["get", "gordon", "g", "-o", status]);
        eventually(5 * MINUTE, status, |status| status == "4 4");
        let names = ["get", "pods", "-l", subject.selector, "-o", "jsonpath={.items[*].metadata.name}"];
        assert_eq!(kubectl(&names), "g-0 g-1 g-2 g-3");
    };
    subject.survives(is_right, |_| || ());
}

#[test]
fn the_cdn_is_right_after_chaos() {
    let sample =
        |name: &str| std::fs::read_to_string(tree().join("operators/cdn/samples").join(name)).unwrap();
    let origin = r#"sources: [{name: films, origin: {host: films.default.svc.cluster.local}}]"#;
    let clusters = sample("cdn.yaml").replace("sources: [] # add origins here", origin);
    assert_eq!(clusters.matches(origin).count(), 2);
    let subject = Subject {
        name: "cdn",
        manifest: "cdn.yaml",
        images: &["nginx"],
        selector: "cluster.anevia.com/cluster",
        wanted: format!("{clusters}\n---\n{}", sample("origin.yaml")),
    };
    let is_right = |kubectl: Kubectl<'_>| {
        let states = || kubectl(&["get", "cdncluster", "-o", "jsonpath={.items[*].status.state}"]);
        eventually(6 * MINUTE, states, |states| states == "Ready Ready Ready");
        let balancer = kubectl(&["get", "service", "balancer", "-o", "jsonpath={.spec.clusterIP}:80"]);
        for path in ["/live/film", "/vod/film"] {
            let answer = || http::get(&balancer, path).map(|answer| (answer.status, answer.body));
            let answer =
                eventually(MINUTE, answer, |answer| answer.as_ref().is_ok_and(|(status, _)| *status == 200));
            assert_eq!(answer.unwrap().1, format!("the film {path}\n"));
        }
    };
    subject.survives(is_right, |_| || ());
}

#[test]
fn etcd_is_right_after_chaos_and_nothing_that_was_acknowledged_is_lost() {
    let subject = Subject {
        name: "etcd",
        manifest: "etcd-cluster-wide.yaml",
        images: &["etcd-v3.6.16"],
        selector: "etcd_cluster=db",
        wanted: "apiVersion: etcd.database.coreos.com/v1beta2\nkind: EtcdCluster\nmetadata:\n  name: db\n  annotations: {etcd.database.coreos.com/scope: clusterwide}\nspec: {size: 3, version: 3.6.16, storage: {size: 1Gi}, deletionPolicy: Delete}\n"
            .to_owned(),
    };
    let status =
        r#"jsonpath={.status.readyMembers} {.status.size} {.status.conditions[?(@.type=="Ready")].status}"#;
    let is_right = |kubectl: Kubectl<'_>| {
        let status = || kubectl(&["get", "etcd", "db", "-o", status]);
        eventually(5 * MINUTE, status, |status| status == "3 3 True");
    };
    subject.survives(is_right, |kubectl| {
        let service = ["get", "service", "db-client", "-o", "jsonpath={.spec.clusterIP}:2379"];
        let history = History::start(Place::plain(kubectl(&service)));
        history.wait_for_writes();
        let begun = Instant::now();
        move || {
            history.wait_for_writes();
            history.end_and_tell("chaos", begun.elapsed());
        }
    });
}
