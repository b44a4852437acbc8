//! What the binary prints, and that `deploy/cdn.yaml` is just that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::process::Command;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_cdn-operator")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `UPDATE=1 cargo test -p cdn-operator --test installation` writes it anew.
#[test]
fn the_file_in_deploy_is_what_the_operator_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/cdn.yaml");
    let header = "# Generated: `cdn-operator manifests` prints this. `kubectl apply -f` of it is the whole installation.\n";
    let printed = format!("{header}{}", said(&["manifests"]));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &printed).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == printed, "deploy/cdn.yaml is not what the operator prints: run this test with UPDATE=1");
}

#[test]
fn rbac_is_what_the_code_registers_and_for_some_namespaces_only_if_told_so() {
    insta::assert_snapshot!(said(&["rbac", "--namespace", "team-a"]));
}

#[test]
fn who_registers_its_crds_itself_may_do_that_and_gets_no_second_hand() {
    let printed = said(&["manifests", "--install-crds"]);
    assert!(!printed.contains("kind: CustomResourceDefinition"));
    assert!(printed.contains("--install-crds"));
    let rule = "resourceNames:\n  - cdnclusters.cluster.anevia.com";
    assert!(printed.contains(rule), "{printed}");
}

#[test]
fn the_agent_explains_itself() {
    insta::assert_snapshot!(said(&["agent", "--help"]));
}
