//! The examples of this tree are projects: what is checked in of each is what `wheelhouse manifests` writes, and its
//! `wheelhouse.toml` says what the code does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{collections::BTreeSet, path::Path};

use rstest::rstest;
use support::tree;
use wheelhouse::Manager;
use wheelhouse_project::{Project, manifests, template};

#[rstest]
#[case("cronjob", cronjob_operator::manager())]
#[case("crontab", crontab_operator::manager())]
#[case("memcached", memcached_operator::manager())]
#[case("sample-controller", sample_controller_operator::manager())]
#[case("workshop-1", workshop_1_operator::manager())]
#[case("workshop-2", workshop_2_operator::manager())]
#[case("workshop-3", workshop_3_operator::manager())]
fn an_example_is_what_its_code_says(#[case] name: &str, #[case] manager: Manager) {
    let folder = tree().join("examples").join(name);
    let project = Project::read(&folder).unwrap();
    assert_eq!((name, template::NEWEST), (project.name.as_str(), project.template));

    let files = manifests::files(&project, &folder, &manager.manifests().unwrap()).unwrap();
    let change = manifests::change(&folder, &files).unwrap();
    assert!(change.is_empty(), "run `wheelhouse manifests --project examples/{name}`: {change:?}");

    let made = project.files().unwrap();
    // The stages of the workshop say which they are; nobody has to change anything else.
    let files =
        if name.starts_with("workshop-") { &["src/main.rs"][..] } else { &["src/main.rs", "src/lib.rs"] };
    for file in files {
        let is = std::fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(made[Path::new(file)], is, "{file} is not as the newest template has it");
    }

    let said: BTreeSet<_> = project
        .apis
        .iter()
        .map(|api| {
            (api.full_group(&project.domain), api.kind.clone(), api.plural.clone(), versions(&api.versions))
        })
        .collect();
    let registered: BTreeSet<_> = manager
        .crds()
        .into_iter()
        .map(|crd| {
            let names: Vec<_> = crd.spec.versions.iter().map(|version| version.name.clone()).collect();
            (crd.spec.group, crd.spec.names.kind, crd.spec.names.plural, versions(&names))
        })
        .collect();
    assert_eq!(said, registered, "wheelhouse.toml says something else than the code");
}

/// What generators of the talks left in their files, and nobody reads.
#[test]
fn no_manifest_says_what_only_an_api_server_knows_or_who_made_it() {
    let mut seen = 0;
    for example in std::fs::read_dir(tree().join("examples")).unwrap().flatten() {
        for folder in ["config/crds", "config/rbac", "config/samples", "deploy"] {
            for file in std::fs::read_dir(example.path().join(folder)).into_iter().flatten().flatten() {
                let text = std::fs::read_to_string(file.path()).unwrap();
                for left in ["creationTimestamp: null", "\nstatus:", "controller-tools.k8s.io"] {
                    assert!(!text.contains(left), "{} has {left}", file.path().display());
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "the examples have more than {seen} manifests");
}

fn versions(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort();
    names
}

#[test]
fn every_example_that_is_a_project_is_looked_at() {
    let entries = std::fs::read_dir(tree().join("examples")).unwrap().flatten();
    let projects = entries.filter(|entry| entry.path().join("wheelhouse.toml").is_file()).count();
    let looked_at = include_str!("examples.rs").matches("#[case(").count() - 1;
    assert_eq!(projects, looked_at);
}
