//! What an operator may do, beside what its code needs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;
use wheelhouse_local::manifests::Manifest;

/// One thing that a rule allows: a verb on a resource, if need be of one name only.
type Allowed = (String, String, String, String);

/// Where the roles in the cluster differ from those that the operator prints, in words.
pub(super) async fn compare(client: &Client, printed: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let wanted = Manifest::read_all(std::path::Path::new("rbac"), printed)?;
    for manifest in wanted.iter().filter(|manifest| matches!(manifest.kind(), "Role" | "ClusterRole")) {
        let title = format!("{} {}", manifest.kind(), manifest.name());
        let there = manifest.read(client).await.context("cannot read the roles of the cluster")?;
        let Some(there) = there else {
            lines.push(format!("missing     {title}: it is not installed"));
            continue;
        };
        lines.extend(differences(&title, &manifest.object, &serde_json::to_value(there)?));
    }
    Ok(lines)
}

fn differences(title: &str, wanted: &Value, there: &Value) -> Vec<String> {
    let (wanted, there) = (allowed(wanted), allowed(there));
    let words = |(group, resource, name, verb): &Allowed| {
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{verb} {resource}{group}{name}")
    };
    let missing = wanted.difference(&there).map(|one| format!("missing     {title}: {}", words(one)));
    let superfluous = there.difference(&wanted).map(|one| format!("superfluous {title}: {}", words(one)));
    missing.chain(superfluous).collect()
}

/// Everything that a role allows, one by one.
fn allowed(role: &Value) -> BTreeSet<Allowed> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        let all = rule.get(field).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
        let mut names = words(rule, "resourceNames");
        if names.is_empty() {
            names.push(String::new());
        }
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                for name in &names {
                    for verb in words(rule, "verbs") {
                        all.insert((group.clone(), resource.clone(), name.clone(), verb));
                    }
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_and_what_is_superfluous_is_told_by_name() {
        let role = |rules: Value| json!({"rules": rules});
        let wanted =
            role(json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}]));
        let there = role(json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"], "verbs": ["get"]},
        ]));
        assert_eq!(
            differences("Role op", &wanted, &there),
            ["missing     Role op: patch deployments.apps", "superfluous Role op: get secrets x"]
        );
        assert!(differences("Role op", &wanted, &wanted).is_empty());
    }
}
