//! Seeded chaos on Gordon in a cluster of three nodes: `CHAOS_SECONDS` (60) of it
//! from `CHAOS_SEED` (7).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::time::Duration;

use support::{Wheelhouse, eventually, host::Host, image, tree};

const CLUSTER: &str = "chaos";
const REPLICAS: usize = 4;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn gordon_is_right_after_chaos_and_the_same_seed_does_the_same_again() {
    let images = ["gordon", "gordon-operator"].map(image);
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up(CLUSTER, &["--nodes", "3"]).ok();
    for image in &images {
        wheelhouse.local(&["load", "--cluster", CLUSTER, image]).ok();
    }
    let kubectl = |arguments: &[&str]| wheelhouse.kubectl(CLUSTER, arguments).ok();
    kubectl(&["apply", "-f", &tree().join("deploy/gordon.yaml").to_string_lossy()]);
    let operator =
        ["-n", "wheelhouse-system", "rollout", "status", "deployment/gordon-operator", "--timeout=120s"];
    kubectl(&operator);
    let gordon = format!(
        "apiVersion: operator.prgcont.cz/v1\nkind: Gordon\nmetadata: {{name: g}}\nspec: {{gordon: {{replicas: {REPLICAS}}}}}\n"
    );
    wheelhouse.apply(CLUSTER, &gordon);
    kubectl(&["wait", "--for=condition=Ready", "gordon/g", "--timeout=120s"]);

    let (seconds, seed) = (number("CHAOS_SECONDS", 60).to_string(), number("CHAOS_SEED", 7).to_string());
    let arguments = [
        "chaos",
        "--cluster",
        CLUSTER,
        "--selector",
        "operator.prgcont.cz/gordon=g",
        "--operator",
        "app.kubernetes.io/name=gordon-operator",
        "--for",
        &seconds,
        "--seed",
        &seed,
    ];
    let planned = || wheelhouse.call(&[&arguments[..], &["--plan"]].concat()).ok();
    let plan = planned();
    println!("{plan}");
    let said = wheelhouse.call(&arguments);
    println!("{}{}", said.stderr, said.stdout);
    assert!(said.ok().contains("everything is healed"));

    // A node that was cut off takes some time to be ready again, and the pods on it, too.
    let status =
        || kubectl(&["get", "gordon", "g", "-o", "jsonpath={.status.readyReplicas} {.status.replicas}"]);
    let right = format!("{REPLICAS} {REPLICAS}");
    eventually(Duration::from_secs(300), status, |status| *status == right);
    let names = kubectl(&[
        "get",
        "pods",
        "-l",
        "operator.prgcont.cz/gordon=g",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ]);
    assert_eq!(names, "g-0 g-1 g-2 g-3");
    kubectl(&["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"]);
    kubectl(&operator);
    assert_eq!(plan, planned(), "the same again from the seed");

    wheelhouse.local(&["down", CLUSTER]).ok();
    assert_eq!("", Host::left_since(&before));
}
