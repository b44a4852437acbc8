//! The page `docs/etcd-tests.md` says which test holds what: every field of the API is on it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "these are tests")]

use std::{collections::BTreeSet, fs, path::Path};

use etcd_operator::api::{
    EtcdCluster, EtcdMember,
    backup::{EtcdBackup, EtcdRestore},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use rstest::rstest;
use serde_json::Value;

/// Fields that are a type of their own, which others define or another table has.
const WHOLE: [&str; 15] = [
    "pod.affinity",
    "pod.persistentVolumeClaimSpec",
    "pod.resources",
    "pod.securityContext",
    "backup.s3",
    "backup.volume",
    "template",
    "join",
    "source",
    "defragment",
    "status.backup",
    "status.defragmented",
    "status.failure",
    "status.progress",
    "status.restored",
];

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/etcd-tests.md");
    fs::read_to_string(page).unwrap()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn collect(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object().filter(|_| !WHOLE.contains(&path));
    match properties {
        Some(properties) => {
            for (name, field) in properties {
                let dot = if path.is_empty() { "" } else { "." };
                collect(field, &format!("{path}{dot}{name}"), fields);
            }
        }
        None => drop(fields.insert(path.to_owned())),
    }
}

/// What people can write, and what they can read in the status.
fn fields_of(crd: CustomResourceDefinition) -> BTreeSet<String> {
    let schema = crd.spec.versions.into_iter().next().unwrap().schema.unwrap().open_api_v3_schema;
    let schema = serde_json::to_value(schema).unwrap();
    let mut fields = BTreeSet::new();
    collect(&schema["properties"]["spec"], "", &mut fields);
    collect(&schema["properties"]["status"], "status", &mut fields);
    fields
}

#[rstest]
#[case("EtcdCluster", EtcdCluster::crd())]
#[case("EtcdBackup", EtcdBackup::crd())]
#[case("EtcdRestore", EtcdRestore::crd())]
#[case("EtcdMember", EtcdMember::crd())]
fn every_field_has_a_test_on_the_page(#[case] kind: &str, #[case] crd: CustomResourceDefinition) {
    let page = page();
    let chapter = page.split("\n## ").find(|chapter| chapter.starts_with(&format!("{kind}\n"))).unwrap();
    let rows: Vec<Vec<_>> = chapter
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').collect())
        .collect();
    let on_the_page: BTreeSet<_> =
        rows.iter().flat_map(|cells| quoted(cells[0])).map(str::to_owned).collect();
    assert_eq!(on_the_page, fields_of(crd));
    for cells in rows {
        assert!(quoted(cells[1]).any(|test| test.contains(".rs::")), "{} has no test", cells[0]);
    }
}
