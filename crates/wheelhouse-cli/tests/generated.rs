//! What the command generates, as its reader gets it: it builds without a warning, passes its own tests on a real API
//! server under its own rules, and is clean by every tool that its Makefile calls.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{path::Path, process::Command};

use support::{Said, Wheelhouse};

/// Calls a program in a folder of a project; everything is compiled into one folder, which stays warm.
fn call(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let target = wheelhouse_local::folders::cache().join("tutorial-target");
    let tools = wheelhouse_local::folders::cache().join("tools/bin");
    let command = Path::new(env!("CARGO_BIN_EXE_wheelhouse")).parent().unwrap();
    let path = format!("{}:{}:{}", command.display(), tools.display(), std::env::var("PATH").unwrap());
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .env("PATH", path)
        .output()
        .unwrap();
    Said::from(output).ok()
}

/// `tests` are those on a real API server: three for each kind.
fn is_clean(folder: &Path, tests: usize) {
    call(folder, "cargo", &["fmt", "--check"]);
    call(folder, "cargo", &["clippy", "--all-targets", "--", "-D", "warnings"]);
    call(folder, "cargo", &["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]);
    let tested = call(folder, "wheelhouse", &["test"]);
    let passed: Vec<_> = tested.lines().filter(|line| line.starts_with("test result: ok")).collect();
    println!("{}", passed.join("\n"));
    assert!(tested.contains(&format!("test result: ok. {tests} passed")), "{tested}");
    call(folder, "wheelhouse", &["manifests"]);
    call(folder, "wheelhouse", &["manifests", "--check"]);
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{} has no {from}", path.display());
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_project_is_clean_and_passes_its_tests_with_every_kind_that_is_added() {
    let wheelhouse = Wheelhouse::new();
    let folder = wheelhouse.folder("shop");
    call(&folder, "wheelhouse", &["init", "--domain", "example.com"]);
    call(&folder, "cargo", &["build"]);
    call(&folder, "wheelhouse", &["create", "api", "--group", "app", "--version", "v1", "--kind", "Page"]);
    is_clean(&folder, 3);
    // Whoever adds a version or a webhook has made something of the kind by then.
    edit(
        &folder.join("src/page/api.rs"),
        "pub image: String,",
        "pub image: String,\n/// Its title.\n#[serde(default)]\npub title: String,",
    );
    edit(
        &folder.join("src/page/analyse.rs"),
        "PageSpec { replicas: 2,",
        "PageSpec { title: String::new(), replicas: 2,",
    );
    call(&folder, "cargo", &["fmt"]);
    // Long names break lines elsewhere; and all that there is, in one project.
    let long = ["--group", "infrastructure", "--version", "v1beta1", "--kind", "InternalLoadBalancerPool"];
    call(&folder, "wheelhouse", &[&["create", "api", "--cluster-scoped"], &long[..]].concat());
    call(&folder, "wheelhouse", &["create", "api", "--group", "app", "--version", "v2", "--kind", "Page"]);
    call(&folder, "wheelhouse", &["create", "webhook", "--kind", "Page", "--validating", "--defaulting"]);
    let other_version = ["create", "api", "--group", "infrastructure", "--version", "v1", "--kind", long[5]];
    call(&folder, "wheelhouse", &other_version);
    call(&folder, "wheelhouse", &["create", "webhook", "--kind", long[5], "--defaulting"]);
    // As long as a kind may be, in the domain itself.
    let longest = "PersistentVolumeSnapshotReplicationPolicyGroupClas";
    call(
        &folder,
        "wheelhouse",
        &["create", "api", "--group", "", "--version", "v1alpha1", "--kind", longest],
    );
    is_clean(&folder, 9);
}
