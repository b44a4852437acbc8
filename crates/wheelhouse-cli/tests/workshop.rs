//! The workshop of 2017, done again on a cluster: its three stages, with kubectl, in the order in which it shows them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{path::PathBuf, time::Duration};

use support::{Said, Wheelhouse, eventually, host::Host, image, tree};

const CLUSTER: &str = "workshop";
const CRD: &str = "postgresclusters.lukeb0nd.com";
const SEED: &str = "example-postgresql-cluster-0";
const MINUTE: Duration = Duration::from_secs(60);

/// Whoever has the password, in another pod.
const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: psql
    image: "wheelhouse.dev/postgres:0.1.0"
    command: [psql, --host=example-postgresql-cluster, --username=postgres, -Atc, "SELECT name FROM people"]
    env:
    - name: PGPASSWORD
      valueFrom: {secretKeyRef: {name: example-postgresql-cluster, key: password}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: psql
    image: "wheelhouse.dev/postgres:0.1.0"
    command: [psql, --host=example-postgresql-cluster, --username=postgres, -Atc, "SELECT name FROM people"]
    env: [{name: PGPASSWORD, value: guessed}]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"#;

#[test]
fn its_three_stages_end_in_a_postgresql_that_keeps_a_row() {
    let postgres = image("postgres");
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up(CLUSTER, &["--nodes", "1"]).ok();
    wheelhouse.local(&["load", "--cluster", CLUSTER, &postgres]).ok();
    let workshop = Workshop { wheelhouse };
    // No pod of this test needs more than the strictest standard allows.
    workshop.kubectl(&["label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted"]);
    workshop.registers_the_api();
    workshop.says_what_happens();
    workshop.launches_a_seed();
    workshop.wheelhouse.local(&["down", CLUSTER]).ok();
    assert_eq!("", Host::left_since(&before));
}

struct Workshop {
    wheelhouse: Wheelhouse,
}

impl Workshop {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.wheelhouse.kubectl(CLUSTER, arguments).ok()
    }

    /// Stage 1: the API server has new endpoints.
    fn registers_the_api(&self) {
        let before = self.wheelhouse.kubectl(CLUSTER, &["get", "--raw", "/apis/lukeb0nd.com/v1"]);
        assert_ne!(Some(0), before.code, "{before:?}");
        self.project(1, "deploy");
        assert!(self.kubectl(&["get", "crd", CRD]).contains(CRD));
        let api: serde_json::Value =
            serde_json::from_str(&self.kubectl(&["get", "--raw", "/apis/lukeb0nd.com/v1"])).unwrap();
        assert_eq!(("APIResourceList", "lukeb0nd.com/v1"), (text(&api["kind"]), text(&api["groupVersion"])));
        let kind = &api["resources"][0];
        assert_eq!(("postgresclusters", "PostgresCluster"), (text(&kind["name"]), text(&kind["kind"])));
        assert_eq!(true, kind["namespaced"]);
        let mut verbs: Vec<_> = kind["verbs"].as_array().unwrap().iter().map(text).collect();
        verbs.sort_unstable();
        let shown = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        assert_eq!(&shown[..], verbs);
        self.kubectl(&["-n", "wheelhouse-system", "delete", "deployment", "workshop-1-operator"]);
        self.kubectl(&["delete", "crd", CRD]);
    }

    /// Stage 2: whatever happens to a resource is in the log.
    fn says_what_happens(&self) {
        self.project(2, "deploy");
        let file = self.sample(3);
        assert_eq!(
            "postgrescluster.lukeb0nd.com/example-postgresql-cluster created\n",
            self.kubectl(&["create", "-f", &file])
        );
        self.logged("Postgres cluster event: ADDED, size 3, version 9.6.3");
        let file = self.sample(5);
        assert!(self.kubectl(&["replace", "-f", &file]).ends_with(" replaced\n"));
        self.logged("Postgres cluster event: MODIFIED, size 5, version 9.6.3");
        assert!(self.kubectl(&["delete", "-f", &file]).contains(" deleted"));
        self.logged("Postgres cluster event: DELETED, size 5, version 9.6.3");
        self.project(2, "undeploy");
    }

    /// Stage 3, with the placeholders filled: the seed is launched, answers, and survives the loss of its pod.
    fn launches_a_seed(&self) {
        self.project(3, "deploy");
        let file = self.sample(3);
        self.kubectl(&["create", "-f", &file]);
        let first = self.ready_seed("");
        assert!(self.query("SELECT version()").starts_with("PostgreSQL 17."));
        self.query("CREATE TABLE people (name text)");
        self.query("INSERT INTO people VALUES ('Luke')");
        self.kubectl(&["delete", "pod", SEED]);
        self.ready_seed(&first);
        assert_eq!("Luke\n", self.query("SELECT name FROM people"));

        self.wheelhouse.apply(CLUSTER, CLIENT);
        let phase = |pod: &str| self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"]);
        eventually(2 * MINUTE, || phase("client"), |phase| phase == "Succeeded");
        assert_eq!("Luke\n", self.kubectl(&["logs", "client"]));
        eventually(MINUTE, || phase("stranger"), |phase| phase == "Failed");
        assert!(self.kubectl(&["logs", "stranger"]).contains("password authentication failed"));

        let condition = |kind: &str| {
            let path = format!("jsonpath={{.status.conditions[?(@.type==\"{kind}\")].message}}");
            self.kubectl(&["get", "postgrescluster", "example-postgresql-cluster", "-o", &path])
        };
        let seed_only = "1 of 3 servers are ready: this operator launches the seed only";
        eventually(MINUTE, || condition("Ready"), |message| message == seed_only);
        let other_version = "9.6.3 is wanted, and PostgreSQL 17 is what this operator has";
        assert_eq!(other_version, condition("WantedVersion"));
        let described = self.kubectl(&["describe", "postgrescluster", "example-postgresql-cluster"]);
        assert!(described.contains("Launching the seed of example-postgresql-cluster"), "{described}");
        assert!(described.contains("OtherVersion"), "{described}");

        self.kubectl(&["delete", "pod", "client", "stranger"]);
        self.kubectl(&["delete", "-f", &file]);
        let left = || {
            self.kubectl(&["get", "statefulset,pod,service,secret,pvc", "-l", "app=postgres", "-o", "name"])
        };
        eventually(2 * MINUTE, left, String::is_empty);
        self.project(3, "undeploy");
        assert!(!self.kubectl(&["get", "crd", "-o", "name"]).contains(CRD));
    }

    /// Calls a verb of the command for the project of a stage.
    fn project(&self, stage: u32, verb: &str) {
        let folder = tree().join(format!("examples/workshop-{stage}"));
        let mut command = self.wheelhouse.command(&[verb, "--project", &folder.to_string_lossy()]);
        if verb == "deploy" {
            command.args(["--replicas", "1"]);
        }
        // Not the folder that this test is compiled in: its cargo may hold it.
        let target = wheelhouse_local::folders::cache().join("tutorial-target");
        Said::from(command.env("CARGO_TARGET_DIR", target).output().unwrap()).ok();
    }

    /// The talk's resource, which is the sample of stage 2, with another size.
    fn sample(&self, size: u32) -> String {
        let path = tree().join("examples/workshop-2/config/samples/postgres_v1_postgrescluster.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("size: 3\n") && text.contains("version: \"9.6.3\"\n"), "{text}");
        let file: PathBuf =
            self.wheelhouse.file("sample.yaml", text.replace("size: 3\n", &format!("size: {size}\n")));
        file.to_string_lossy().into_owned()
    }

    fn logged(&self, line: &str) {
        let logs = || self.kubectl(&["-n", "wheelhouse-system", "logs", "deployment/workshop-2-operator"]);
        let logs = eventually(MINUTE, logs, |logs| logs.contains(line));
        assert_eq!(1, logs.matches(line).count(), "{logs}");
    }

    /// Waits until the seed takes connections in another pod than this one; which pod that is.
    fn ready_seed(&self, before: &str) -> String {
        let look = || {
            let path = r#"jsonpath={.metadata.uid} {.status.conditions[?(@.type=="Ready")].status}"#;
            self.wheelhouse.kubectl(CLUSTER, &["get", "pod", SEED, "-o", path]).stdout
        };
        let is_another =
            |seen: &String| seen.split_once(' ').is_some_and(|(uid, ready)| uid != before && ready == "True");
        let seen = eventually(3 * MINUTE, look, is_another);
        seen.split(' ').next().unwrap().to_owned()
    }

    fn query(&self, query: &str) -> String {
        self.kubectl(&["exec", SEED, "--", "psql", "--username=postgres", "-Atc", query])
    }
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap()
}
