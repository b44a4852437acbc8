//! What a cluster of three nodes must be able to do. The scenarios share one
//! cluster, each in a namespace of its own, and run one after the other; after
//! the last of them the cluster goes down and must have left nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod operator_steps;
mod support;

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use support::{Wheelhouse, eventually, host::Host, image};

const CLUSTER: &str = "three";
const MINUTE: Duration = Duration::from_secs(60);

type Scenario = (&'static str, fn(&Wheelhouse));

const SCENARIOS: [Scenario; 14] = [
    ("pods_reach_pods_on_other_nodes", pods_reach_pods_on_other_nodes),
    ("a_service_answers_pods_and_the_host", a_service_answers_pods_and_the_host),
    ("names_resolve_and_unknown_ones_are_told_at_once", names_resolve_and_unknown_ones_are_told_at_once),
    ("a_volume_is_written_by_a_non_root_pod_and_read_by_its_successor", a_volume_is_written_and_read_again),
    ("exec_and_logs_work", exec_and_logs_work),
    ("an_operator_runs_commands_in_pods_and_keeps_budgets", an_operator_runs_commands_and_keeps_budgets),
    ("a_drained_node_is_empty_and_its_pods_run_elsewhere", a_drained_node_is_empty),
    ("no_machine_has_a_way_out", no_machine_has_a_way_out),
    ("a_pod_may_share_the_nodes_network_and_processes", a_pod_may_share_the_nodes_namespaces),
    ("a_file_without_an_image_is_refused", a_file_without_an_image_is_refused),
    ("logs_of_every_component_are_there", logs_of_every_component_are_there),
    ("fewer_nodes_and_another_kind_are_refused", fewer_nodes_are_refused),
    ("a_killed_kubelet_and_a_killed_node_are_told_and_healed_by_up", a_killed_node_is_healed),
    ("a_node_that_is_cut_off_turns_not_ready_and_heals", a_cut_node_turns_not_ready_and_heals),
];

fn main() {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if arguments.list {
        libtest_mimic::run(&arguments, Vec::new()).exit();
    }
    let nginx = image("nginx");
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    let begun = Instant::now();
    wheelhouse.up(CLUSTER, &["--nodes", "3"]).ok();
    println!("three nodes were up after {:.1} s", begun.elapsed().as_secs_f64());
    wheelhouse.local(&["load", "--cluster", CLUSTER, &nginx]).ok();

    let wheelhouse = Arc::new(Mutex::new(wheelhouse));
    let mut trials: Vec<_> = SCENARIOS
        .into_iter()
        .map(|(name, scenario)| {
            let wheelhouse = Arc::clone(&wheelhouse);
            Trial::test(name, move || {
                let wheelhouse = wheelhouse.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                scenario(&wheelhouse);
                Ok(())
            })
        })
        .collect();
    trials.push(Trial::test("down_leaves_nothing_behind", move || {
        let wheelhouse = wheelhouse.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        wheelhouse.local(&["down", CLUSTER]).ok();
        let left = Host::left_since(&before);
        if left.is_empty() { Ok(()) } else { Err(Failed::from(left)) }
    }));
    // Whatever failed, the cluster ends with the last owner of `wheelhouse`.
    libtest_mimic::run(&arguments, trials).exit();
}

fn kubectl(wheelhouse: &Wheelhouse, args: &[&str]) -> String {
    wheelhouse.kubectl(CLUSTER, args).ok()
}

/// A namespace with a web server on every node behind the Service `web`; the address of each pod.
fn web_servers(wheelhouse: &Wheelhouse, namespace: &str) -> Vec<(String, String)> {
    wheelhouse.apply(
        CLUSTER,
        &format!(
            r#"
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: web, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: nginx
        image: wheelhouse.dev/nginx:0.1.0
        command: [sh, -c, 'hostname > /data/index.html && exec nginx']
        readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
        volumeMounts: [{{name: data, mountPath: /data}}]
      securityContext: {{fsGroup: 33}}
      volumes: [{{name: data, emptyDir: {{}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {namespace}}}
spec:
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080}}]
"#
        ),
    );
    kubectl(wheelhouse, &["-n", namespace, "rollout", "status", "daemonset/web", "--timeout=120s"]);
    let template = "-o=jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{\"\\n\"}{end}";
    let pods = kubectl(wheelhouse, &["-n", namespace, "get", "pods", "-l", "app=web", template]);
    pods.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, ip)| (name.to_owned(), ip.to_owned()))
        .collect()
}

/// What a pod gets from an address.
fn fetch(wheelhouse: &Wheelhouse, namespace: &str, pod: &str, url: &str) -> support::Said {
    wheelhouse.kubectl(CLUSTER, &["-n", namespace, "exec", pod, "--", "curl", "-sS", "--max-time", "5", url])
}

fn delete_namespace(wheelhouse: &Wheelhouse, namespace: &str) {
    kubectl(wheelhouse, &["delete", "namespace", namespace, "--timeout=90s"]);
}

fn pods_reach_pods_on_other_nodes(wheelhouse: &Wheelhouse) {
    let pods = web_servers(wheelhouse, "pods");
    assert_eq!(3, pods.len());
    for (from, _) in &pods {
        for (to, address) in &pods {
            let answer = fetch(wheelhouse, "pods", from, &format!("http://{address}:8080")).ok();
            assert_eq!(to, answer.trim(), "from {from} to {address}");
        }
    }
    delete_namespace(wheelhouse, "pods");
}

fn a_service_answers_pods_and_the_host(wheelhouse: &Wheelhouse) {
    let pods = web_servers(wheelhouse, "service");
    let names: Vec<_> = pods.iter().map(|(name, _)| name.clone()).collect();
    let address =
        kubectl(wheelhouse, &["-n", "service", "get", "service", "web", "-o=jsonpath={.spec.clusterIP}"]);
    let url = format!("http://{address}");
    for pod in &names {
        let answer =
            eventually(MINUTE, || fetch(wheelhouse, "service", pod, &url), |said| said.code == Some(0))
                .stdout;
        assert!(names.contains(&answer.trim().to_owned()), "{answer}");
    }
    for (pod, address) in &pods {
        let url = format!("http://{address}:8080");
        let answer = Command::new("curl").args(["-sS", "--max-time", "5", &url]).output().unwrap();
        assert_eq!(pod, support::Said::from(answer).ok().trim(), "the host reaches pods too");
    }
    let mut answered = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let answer = Command::new("curl").args(["-sS", "--max-time", "5", &url]).output().unwrap();
        answered.insert(support::Said::from(answer).ok().trim().to_owned());
    }
    assert_eq!(3, answered.len(), "the host should have been answered by all three: {answered:?}");
    delete_namespace(wheelhouse, "service");
}

fn names_resolve_and_unknown_ones_are_told_at_once(wheelhouse: &Wheelhouse) {
    let pods = web_servers(wheelhouse, "names");
    let (pod, _) = &pods[0];
    for name in ["web", "web.names", "web.names.svc", "web.names.svc.cluster.local"] {
        let look_up = || fetch(wheelhouse, "names", pod, &format!("http://{name}"));
        eventually(MINUTE, look_up, |said| said.code == Some(0));
    }
    let api =
        kubectl(wheelhouse, &["-n", "names", "exec", pod, "--", "getent", "hosts", "kubernetes.default"]);
    assert!(api.contains("kubernetes.default.svc.cluster.local"), "{api}");
    let begun = Instant::now();
    let unknown = fetch(wheelhouse, "names", pod, "http://no-such-name.example");
    assert!(unknown.stderr.contains("Could not resolve host"), "{unknown:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "an unknown name took {:?}", begun.elapsed());
    delete_namespace(wheelhouse, "names");
}

fn a_volume_is_written_and_read_again(wheelhouse: &Wheelhouse) {
    let pod = |name: &str, command: &str| {
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: volumes}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000}}
  containers:
  - name: main
    image: wheelhouse.dev/nginx:0.1.0
    command: [sh, -c, "{command}"]
    volumeMounts: [{{name: data, mountPath: /volume}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]
"#
        )
    };
    wheelhouse.apply(
        CLUSTER,
        "{apiVersion: v1, kind: Namespace, metadata: {name: volumes}}\n---\n\
         {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: volumes}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}}\n",
    );
    std::thread::sleep(Duration::from_secs(1));
    let phase = kubectl(wheelhouse, &["-n", "volumes", "get", "pvc", "data", "-o=jsonpath={.status.phase}"]);
    assert_eq!("Pending", phase, "a volume is bound at its first use, not before");

    wheelhouse.apply(
        CLUSTER,
        &pod("writer", "echo kept > /volume/file && stat -c %u:%g:%a /volume/file && stat -c %g:%a /volume"),
    );
    let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
    kubectl(wheelhouse, &["-n", "volumes", "wait", "pod/writer", succeeded, "--timeout=90s"]);
    assert_eq!("1000:2000:644\n2000:2777\n", kubectl(wheelhouse, &["-n", "volumes", "logs", "writer"]));
    kubectl(wheelhouse, &["-n", "volumes", "delete", "pod", "writer"]);
    wheelhouse.apply(CLUSTER, &pod("reader", "cat /volume/file"));
    kubectl(wheelhouse, &["-n", "volumes", "wait", "pod/reader", succeeded, "--timeout=90s"]);
    assert_eq!("kept\n", kubectl(wheelhouse, &["-n", "volumes", "logs", "reader"]));

    let path = kubectl(wheelhouse, &["get", "pv", "-o=jsonpath={.items[0].spec.local.path}"]);
    assert!(std::path::Path::new(&path).join("file").exists(), "{path} is on the host");
    delete_namespace(wheelhouse, "volumes");
    eventually(MINUTE, || std::path::Path::new(&path).exists(), |exists| !exists);
}

fn exec_and_logs_work(wheelhouse: &Wheelhouse) {
    let pods = web_servers(wheelhouse, "exec");
    for (pod, _) in &pods {
        let whoami = kubectl(wheelhouse, &["-n", "exec", "exec", pod, "--", "id", "-u"]);
        assert_eq!("33", whoami.trim());
        fetch(wheelhouse, "exec", pod, "http://127.0.0.1:8080/asked-for").ok();
        let logs = || kubectl(wheelhouse, &["-n", "exec", "logs", pod]);
        eventually(MINUTE, logs, |logs| logs.contains("GET /asked-for"));
    }
    let failed = wheelhouse.kubectl(CLUSTER, &["-n", "exec", "exec", &pods[0].0, "--", "sh", "-c", "exit 7"]);
    assert_eq!(Some(7), failed.code);
    delete_namespace(wheelhouse, "exec");
}

fn an_operator_runs_commands_and_keeps_budgets(wheelhouse: &Wheelhouse) {
    operator_steps::commands_run_in_pods_and_budgets_are_kept(wheelhouse, CLUSTER);
}

fn a_drained_node_is_empty(wheelhouse: &Wheelhouse) {
    wheelhouse.apply(
        CLUSTER,
        r#"
apiVersion: v1
kind: Namespace
metadata: {name: drain}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: drain}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: nginx, image: "wheelhouse.dev/nginx:0.1.0"}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
"#,
    );
    let rollout = ["-n", "drain", "rollout", "status", "deployment/web", "--timeout=120s"];
    kubectl(wheelhouse, &rollout);
    let on_node = || {
        let nodes =
            kubectl(wheelhouse, &["-n", "drain", "get", "pods", "-o=jsonpath={.items[*].spec.nodeName}"]);
        nodes.split(' ').filter(|node| *node == "node-2").count()
    };
    assert_eq!(2, on_node());
    kubectl(
        wheelhouse,
        &["drain", "node-2", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s"],
    );
    kubectl(wheelhouse, &rollout);
    assert_eq!(0, on_node());
    kubectl(wheelhouse, &["uncordon", "node-2"]);
    delete_namespace(wheelhouse, "drain");
}

/// The inner side of `nsenter` for every machine of the cluster.
fn in_each_machine(wheelhouse: &Wheelhouse, program: &[&str]) -> Vec<(String, support::Said)> {
    let mut results = Vec::new();
    for (pid, component) in machines(wheelhouse) {
        let output =
            Command::new("nsenter").args(["--target", &pid, "--net", "--"]).args(program).output().unwrap();
        results.push((component, output.into()));
    }
    assert_eq!(4, results.len(), "the control plane and three nodes");
    results
}

/// The first process of every machine.
fn machines(wheelhouse: &Wheelhouse) -> Vec<(String, String)> {
    let processes = wheelhouse_local::processes::of_cluster(&wheelhouse.state().join(CLUSTER));
    let inits = processes.into_iter().filter(|process| process.program == "catatonit");
    inits.map(|process| (process.pid.to_string(), process.component)).collect()
}

fn no_machine_has_a_way_out(wheelhouse: &Wheelhouse) {
    // An address for documentation: only routes are looked up, no packet is sent.
    for (machine, said) in in_each_machine(wheelhouse, &["ip", "route", "get", "203.0.113.1"]) {
        assert!(said.stderr.contains("unreachable"), "{machine}: {said:?}");
    }
    let service = kubectl(wheelhouse, &["get", "service", "kubernetes", "-o=jsonpath={.spec.clusterIP}"]);
    for (machine, said) in in_each_machine(wheelhouse, &["ip", "route", "get", &service]) {
        assert!(said.stdout.contains("dev services"), "{machine}: {said:?}");
    }
    let pod_range = kubectl(wheelhouse, &["get", "node", "node-1", "-o=jsonpath={.spec.podCIDR}"]);
    let pod = pod_range.replace(".0/24", ".77");
    for address in [service.as_str(), &pod] {
        let route = Command::new("ip").args(["route", "get", address]).output().unwrap();
        let route = support::Said::from(route).ok();
        assert!(route.contains("dev wheelhouse"), "the host's way to {address}: {route}");
    }
}

fn a_pod_may_share_the_nodes_namespaces(wheelhouse: &Wheelhouse) {
    wheelhouse.apply(
        CLUSTER,
        r#"
apiVersion: v1
kind: Pod
metadata: {name: sharing}
spec:
  hostNetwork: true
  hostPID: true
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "wheelhouse.dev/nginx:0.1.0", command: [sleep, "600"]}]
"#,
    );
    kubectl(wheelhouse, &["wait", "pod/sharing", "--for=condition=Ready", "--timeout=60s"]);
    let programs = kubectl(
        wheelhouse,
        &["exec", "sharing", "--", "sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null; true"],
    );
    assert!(programs.contains("kubelet") && programs.contains("containerd"), "{programs}");
    assert!(
        !programs.contains("kube-apiserver"),
        "a node does not see the processes of the host: {programs}"
    );
    let hostname = kubectl(wheelhouse, &["exec", "sharing", "--", "hostname"]);
    assert_eq!("node-1", hostname.trim());
    kubectl(wheelhouse, &["delete", "pod", "sharing"]);
}

fn a_file_without_an_image_is_refused(wheelhouse: &Wheelhouse) {
    let garbage = wheelhouse.file("garbage.tar", "not a tar file at all");
    let said = wheelhouse.local(&["load", "--cluster", CLUSTER, garbage.to_str().unwrap()]);
    assert_eq!(Some(1), said.code, "{said:?}");
    let missing = wheelhouse.local(&["load", "--cluster", CLUSTER, "/no/such/image.tar"]);
    missing.refused("cannot open the image /no/such/image.tar");
}

fn logs_of_every_component_are_there(wheelhouse: &Wheelhouse) {
    for component in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "coredns",
        "provisioner",
        "kube-proxy",
    ] {
        assert!(!wheelhouse.local(&["logs", "--cluster", CLUSTER, component]).ok().is_empty(), "{component}");
    }
    assert!(wheelhouse.local(&["logs", "--cluster", CLUSTER, "node-3/kubelet"]).ok().contains("node-3"));
    wheelhouse
        .local(&["logs", "--cluster", CLUSTER, "node-4/kubelet"])
        .refused("no component called `node-4/kubelet`");
    wheelhouse
        .local(&["node", "cut", "--cluster", CLUSTER, "node-9"])
        .refused("has no node called `node-9`; it has: node-1, node-2, node-3");
}

fn fewer_nodes_are_refused(wheelhouse: &Wheelhouse) {
    wheelhouse.local(&["up", CLUSTER, "--nodes", "2"]).refused("is there already and has 3 nodes, not 2");
    wheelhouse
        .local(&["up", CLUSTER, "--control-plane-only"])
        .refused("has 3 nodes, not a control plane only");
    assert_eq!("Running", wheelhouse.status(CLUSTER)["health"]);
}

fn a_killed_node_is_healed(wheelhouse: &Wheelhouse) {
    let kill = |pid: &str| assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
    // The kubelet itself, and what waits for it on the host.
    for program in ["kubelet", "nsenter"] {
        let processes = wheelhouse_local::processes::of_cluster(&wheelhouse.state().join(CLUSTER));
        let is_it = |each: &&wheelhouse_local::processes::Process| {
            each.program == program && each.component == "node-1/kubelet"
        };
        kill(&processes.iter().find(is_it).unwrap().pid.to_string());
        let half_dead =
            |status: &serde_json::Value| status["health"]["HalfDead"]["missing"][0] == "node-1/kubelet";
        eventually(MINUTE, || wheelhouse.status(CLUSTER), half_dead);
        wheelhouse.local(&["up", CLUSTER]).ok();
        assert_eq!("Running", wheelhouse.status(CLUSTER)["health"]);
    }

    wheelhouse.kill_node(CLUSTER, "node-2");
    let missing =
        |status: &serde_json::Value| status["health"]["HalfDead"]["missing"].as_array().map_or(0, Vec::len);
    let status = eventually(MINUTE, || wheelhouse.status(CLUSTER), |status| missing(status) == 3);
    assert_eq!("node-2/containerd", status["health"]["HalfDead"]["missing"][0]);
    wheelhouse.local(&["up", CLUSTER]).ok();
    let healthy = wheelhouse.status(CLUSTER);
    assert_eq!("Running", healthy["health"]);
    assert!(healthy["nodes"].as_array().unwrap().iter().all(|node| node["ready"] == true), "{healthy}");
    let pods = web_servers(wheelhouse, "healed");
    for (_, address) in &pods {
        fetch(wheelhouse, "healed", &pods[0].0, &format!("http://{address}:8080")).ok();
    }
    delete_namespace(wheelhouse, "healed");
}

fn a_cut_node_turns_not_ready_and_heals(wheelhouse: &Wheelhouse) {
    let ready = || {
        let path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        kubectl(wheelhouse, &["get", "node", "node-3", path])
    };
    assert_eq!("True", ready());
    let begun = Instant::now();
    wheelhouse.local(&["node", "cut", "--cluster", CLUSTER, "node-3"]).ok();
    assert!(wheelhouse.local(&["status", CLUSTER]).ok().contains("(cut off)"));
    eventually(2 * MINUTE, ready, |ready| ready == "Unknown");
    let said = wheelhouse.local(&["up", CLUSTER]);
    assert!(
        said.stderr.contains("node-3 is cut off"),
        "`up` does not wait for a node that is cut off: {said:?}"
    );
    said.ok();
    println!("node-3 was NotReady {:.1} s after it was cut off", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    wheelhouse.local(&["node", "heal", "--cluster", CLUSTER, "node-3"]).ok();
    eventually(MINUTE, ready, |ready| ready == "True");
    println!("node-3 was Ready {:.1} s after it was healed", begun.elapsed().as_secs_f64());
}
