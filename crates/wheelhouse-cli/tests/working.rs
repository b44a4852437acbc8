//! Working on an operator, on a real API server without nodes: what the command does there, with a program that only
//! prints what an operator would.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{path::PathBuf, process::Command};

use support::{Said, Wheelhouse};

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pages.app.example.com
  annotations: {wheelhouse.dev/operator: shop-operator}
spec:
  group: app.example.com
  scope: Namespaced
  names: {kind: Page, plural: pages, singular: page}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

const OPERATOR: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop-operator, namespace: default}
---
apiVersion: v1
kind: Service
metadata: {name: shop-operator, namespace: default}
spec: {ports: [{port: 443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop-operator, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {app.kubernetes.io/name: shop-operator}}
  template:
    metadata: {labels: {app.kubernetes.io/name: shop-operator}}
    spec: {containers: [{name: operator, image: none}]}
";

/// A control plane, and a project whose operator prints what a file says.
struct Shop {
    wheelhouse: Wheelhouse,
    cluster: &'static str,
    project: PathBuf,
    bin: PathBuf,
}

impl Shop {
    fn on(cluster: &'static str) -> Self {
        let mut wheelhouse = Wheelhouse::new();
        wheelhouse.up(cluster, &["--control-plane-only"]).ok();
        let project = wheelhouse.folder("shop");
        let bin = wheelhouse.folder("bin");
        let init = ["init", &project.to_string_lossy(), "--domain", "example.com"];
        wheelhouse.call(&[&init[..], &["--sdk", "https://git.example.com/wheelhouse.git"]].concat()).ok();
        let printed = wheelhouse.file("printed.yaml", format!("{CRD}---{OPERATOR}"));
        support::program(
            &bin.join("cargo"),
            &format!(
                "while [ \"$1\" != -- ]; do shift; done; shift\n\
             case \"$1\" in manifests) cat {};; *) echo \"called with $*\";; esac",
                printed.display()
            ),
        );
        let shop = Self { wheelhouse, cluster, project, bin };
        shop.apply(CRD);
        shop.kubectl(&["wait", "--for=condition=Established", "crd/pages.app.example.com"]).ok();
        shop
    }

    /// Calls a verb of the command in the project.
    fn call(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let mut command = self.wheelhouse.command(arguments);
        command.env("PATH", path).current_dir(&self.project);
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> Said {
        self.wheelhouse.kubectl(self.cluster, arguments)
    }

    fn apply(&self, manifest: &str) {
        self.wheelhouse.apply(self.cluster, manifest);
    }
}

#[test]
fn the_api_server_of_a_local_cluster_finds_the_webhooks_of_an_operator_that_runs_from_here() {
    let shop = Shop::on("runs");
    let said = shop.call(&["run", "--", "--log-level", "debug"]).ok();
    assert_eq!(
        said,
        "called with run --install-crds --no-leader-election --listen 127.0.0.1:8080 --log-level debug --webhook-url self\n"
    );
    let said = shop.call(&["run", "--", "--webhook-url=https://here"]).ok();
    assert!(said.ends_with(" --listen 127.0.0.1:8080 --webhook-url=https://here\n"), "{said}");

    // By another name, nobody knows what it reaches.
    let kubeconfig = std::fs::read_to_string(shop.wheelhouse.kubeconfig()).unwrap();
    let theirs = shop.wheelhouse.file("theirs", kubeconfig.replace("wheelhouse-runs", "theirs"));
    let refused = Said::from(shop.command(&["run"]).env("KUBECONFIG", theirs).output().unwrap());
    refused.refused(
        "this operator has webhooks, and the cluster of the current context may not reach this machine",
    );
}

#[test]
fn samples_are_applied_with_the_list_of_them_and_not_as_files() {
    let shop = Shop::on("samples");
    let samples = shop.project.join("config/samples");
    std::fs::create_dir_all(&samples).unwrap();
    let sample = "apiVersion: app.example.com/v1\nkind: Page\nmetadata: {name: sample}\n";
    std::fs::write(samples.join("app_v1_page.yaml"), sample).unwrap();
    shop.call(&["manifests"]).ok();
    let folder = samples.to_string_lossy();
    assert_eq!(shop.kubectl(&["apply", "-k", &folder]).ok(), "page.app.example.com/sample created\n");
    shop.kubectl(&["apply", "-f", &folder]).refused("kustomization.yaml");
}
