//! The steps of a plan that need a kubelet: a command in a pod, and an eviction
//! that a disruption budget may refuse. An operator in this process does what a
//! ConfigMap says.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wheelhouse::{
    Controller, Declared, Key, Kind, Manager, NoAction, Operator, Plan, Reference, Result, Step, World,
    k8s_openapi::api::core::v1::{ConfigMap, Pod},
    kube::{
        Config, ResourceExt as _,
        config::{KubeConfigOptions, Kubeconfig},
    },
    manager::RunSettings,
    plan::Exec,
};

use crate::support::{Wheelhouse, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// What a ConfigMap asks for, and the pod that it is about.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    command: Option<String>,
    evict: bool,
    pod: Option<Reference>,
}

struct Hands;

impl Operator for Hands {
    type Resource = ConfigMap;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, task: Arc<ConfigMap>, world: &World<'_>) -> Result<Seen> {
        let asked = |name: &str| task.data.as_ref().and_then(|data| data.get(name)).cloned();
        let pod = match asked("pod") {
            Some(name) => world.get::<Pod>(&name).await?,
            None => None,
        };
        let kind = Kind::of::<Pod>(&());
        Ok(Seen {
            command: asked("command"),
            evict: asked("evict").is_some(),
            pod: pod.map(|pod| Reference::to(&kind, &*pod)),
        })
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        let mut plan = Plan::new();
        let Some(pod) = &seen.pod else { return plan };
        if let Some(command) = &seen.command {
            let command = ["sh", "-c", command].map(str::to_owned).to_vec();
            let exec = Exec { pod: pod.clone(), container: "nginx".to_owned(), command };
            plan.step(Step::Exec(exec), "somebody asked for it");
        }
        if seen.evict && !pod.terminating {
            plan.step(Step::Evict { target: pod.clone() }, "somebody asked for it");
        }
        plan
    }
}

fn hands() -> Controller<Hands> {
    Controller::new(Hands)
        .watches::<Pod, _>(|pod| {
            let namespace = pod.namespace().unwrap_or_default();
            pod.labels().get("task").map(|task| Key::namespaced(&namespace, task)).into_iter().collect()
        })
        .uses(Declared::new("", "pods/exec", &["create", "get"]))
        .uses(Declared::new("", "pods/eviction", &["create"]))
}

const PODS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: steps}
---
apiVersion: v1
kind: Pod
metadata: {name: worker, namespace: steps, labels: {app: worker, task: task}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: nginx
    image: wheelhouse.dev/nginx:0.1.0
    command: [sleep, infinity]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget, namespace: steps}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: worker}}
"#;

/// Runs the scenario.
pub(crate) fn commands_run_in_pods_and_budgets_are_kept(wheelhouse: &Wheelhouse, cluster: &str) {
    let kubectl = |args: &[&str]| wheelhouse.kubectl(cluster, &[&["-n", "steps"], args].concat()).ok();
    wheelhouse.apply(cluster, PODS);
    kubectl(&["wait", "pod/worker", "--for=condition=Ready", "--timeout=90s"]);
    let task = |data: &str| {
        let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: task, namespace: steps}\n";
        wheelhouse.apply(cluster, &format!("{head}data: {data}\n"));
    };
    let events = || kubectl(&["get", "events", "-o=jsonpath={.items[*].message} {.items[*].note}"]);

    let runtime = Runtime::new().unwrap();
    let stop = CancellationToken::new();
    let started = runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(wheelhouse.kubeconfig()).unwrap();
        let context = kubeconfig.contexts.iter().find(|context| context.name.ends_with(cluster)).unwrap();
        let options =
            KubeConfigOptions { context: Some(context.name.clone()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await.unwrap();
        let settings = RunSettings {
            namespaces: vec!["steps".to_owned()],
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        };
        Manager::new("hands").controller(hands()).start(config, settings, stop.clone()).await.unwrap()
    });

    task("{pod: worker, command: 'echo written > /tmp/file'}");
    let written = || {
        let args = ["-n", "steps", "exec", "worker", "--", "cat", "/tmp/file"];
        wheelhouse.kubectl(cluster, &args).stdout
    };
    eventually(MINUTE, written, |text| text == "written\n");

    task("{pod: worker, command: 'echo what went wrong >&2; exit 7'}");
    eventually(MINUTE, events, |events| events.contains("exit code 7") && events.contains("what went wrong"));

    task("{pod: worker, evict: please}");
    eventually(MINUTE, events, |events| events.contains("disruption budget"));
    let phase =
        kubectl(&["get", "pod", "worker", "-o=jsonpath={.status.phase} {.metadata.deletionTimestamp}"]);
    assert_eq!("Running", phase.trim(), "the budget was kept");
    kubectl(&["delete", "pdb", "budget"]);
    let pods = || kubectl(&["get", "pods", "-o=name"]);
    eventually(MINUTE, pods, |pods| pods.is_empty());

    stop.cancel();
    runtime.block_on(started.finished()).unwrap();
    kubectl(&["delete", "namespace", "steps"]);
}
