//! What the binary prints, and that the files in `deploy/` are just that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::process::Command;

use rstest::rstest;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_etcd-operator")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `UPDATE=1 cargo test -p etcd-operator --test installation` writes them anew.
#[rstest]
#[case("etcd.yaml", &["manifests", "--install-namespace", "etc"])]
#[case("etcd-cluster-wide.yaml", &["manifests", "-cluster-wide"])]
fn the_files_in_deploy_are_what_the_operator_prints(#[case] file: &str, #[case] arguments: &[&str]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let header = format!(
        "# Generated: `etcd-operator {}` prints this. `kubectl apply -f` of it is the whole installation.\n",
        arguments.join(" ")
    );
    let printed = format!("{header}{}", said(arguments));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == printed, "{file} is not what the operator prints: run this test with UPDATE=1");
}

/// A webhook whose operator is gone would keep people from changing, or pods from being made.
#[test]
fn nothing_in_the_cluster_waits_for_the_operator() {
    for arguments in [["manifests", "-cluster-wide"], ["manifests", "--install-namespace=etc"]] {
        let printed = said(&arguments);
        assert!(printed.contains("kind: CustomResourceDefinition"), "{arguments:?}");
        for word in ["WebhookConfiguration", "finalizers:", "ownerReferences:", "APIService"] {
            assert!(!printed.contains(word), "{word} is in what {arguments:?} prints");
        }
    }
}

#[test]
fn for_its_own_namespace_it_needs_no_rights_elsewhere() {
    let printed = said(&["rbac", "--install-namespace", "etc"]);
    assert!(!printed.contains("kind: ClusterRole"), "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn for_all_namespaces_it_has_a_cluster_role() {
    let printed = said(&["rbac", "--cluster-wide"]);
    assert!(printed.contains("kind: ClusterRole\n"), "{printed}");
}

#[test]
fn the_supervisor_explains_itself() {
    insta::assert_snapshot!(said(&["supervisor", "--help"]));
}
