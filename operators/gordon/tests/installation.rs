//! What the binary prints, and that `deploy/gordon.yaml` is just that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::process::Command;

use rstest::rstest;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gordon-operator")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `UPDATE=1 cargo test -p gordon-operator --test installation` writes it anew.
#[test]
fn the_file_in_deploy_is_what_the_operator_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/gordon.yaml");
    let header = "# Generated: `gordon-operator manifests` prints this. `kubectl apply -f` of it is the whole installation.\n";
    let printed = format!("{header}{}", said(&["manifests"]));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &printed).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == printed,
        "deploy/gordon.yaml is not what the operator prints: run this test with UPDATE=1"
    );
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
    let rule = "resourceNames:\n  - gordons.operator.prgcont.cz";
    assert!(printed.contains(rule), "{printed}");
}

#[rstest]
#[case::all(&["--help"])]
#[case::crds(&["crds", "--help"])]
#[case::rbac(&["rbac", "--help"])]
#[case::manifests(&["manifests", "--help"])]
fn every_verb_explains_itself_with_examples(#[case] arguments: &[&str]) {
    insta::assert_snapshot!(arguments.concat(), said(arguments));
}

#[test]
fn run_explains_itself_too() {
    // What else it says depends on the features that were built.
    let help = said(&["run", "--help"]);
    for part in ["--lease-namespace <NAME>", "[env: WATCH_NAMESPACE=", "gordon-operator run --install-crds"] {
        assert!(help.contains(part), "{help}");
    }
}

#[test]
fn without_a_verb_it_runs_as_its_environment_says() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_gordon-operator")).env("LISTEN", "nowhere").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("invalid value 'nowhere' for '--listen"), "{said}");
}

#[test]
fn without_a_cluster_it_ends_with_one_sentence() {
    let output = Command::new(env!("CARGO_BIN_EXE_gordon-operator"))
        .arg("run")
        .env_clear()
        .env("KUBECONFIG", "/nowhere/kubeconfig")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: no Kubernetes to talk to: ") && said.lines().count() == 1, "{said}");
}
