//! What an operator may do, beside what its code needs.

use std::{collections::BTreeSet, fmt::Display, path::Path};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use wheelhouse_local::manifests::Manifest;

use super::looks::Looks;
use crate::operator_program::OperatorProgram;

/// One thing that a rule allows: a verb on a resource, if need be of one name only.
type Allowed = (String, String, String, String);

/// Whether something is too little or too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Missing,
    Superfluous,
}

/// Where a role in the cluster differs from the one that the operator prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    what: What,
    /// As in `Role team-a/shop-operator`.
    role: String,
    /// As in `get secrets`; nothing where the role as a whole is missing.
    rule: Option<String>,
}

impl Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.what {
            What::Missing => "missing",
            What::Superfluous => "superfluous",
        };
        let rule = self.rule.as_deref().unwrap_or("it is not installed");
        write!(formatter, "{what:<11} {}: {rule}", self.role)
    }
}

/// Where the roles in the cluster differ from those that the operator prints, for wherever it is installed.
pub(super) async fn check(client: &Client, program: &OperatorProgram) -> Result<Vec<Difference>> {
    let printed = program.prints(&["rbac"]).await?;
    let installed = installations(client, &printed).await?;
    if installed.is_empty() {
        return compare(client, &printed).await;
    }
    let mut all = Vec::new();
    for flags in installed {
        let arguments: Vec<_> = ["rbac"].into_iter().chain(flags.iter().map(String::as_str)).collect();
        let found = compare(client, &program.prints(&arguments).await?).await?;
        // Roles of the whole cluster are those of each.
        all.extend(found.into_iter().filter(|one| !all.contains(one)).collect::<Vec<_>>());
    }
    Ok(all)
}

/// The flags of every installation of the operator that prints these roles.
async fn installations(client: &Client, printed: &str) -> Result<Vec<Vec<String>>> {
    let roles = Manifest::read_all(Path::new("rbac"), printed)?;
    let Some(account) = roles.iter().find(|manifest| manifest.kind() == "ServiceAccount") else {
        return Ok(Vec::new());
    };
    let selector = format!("app.kubernetes.io/name={}", account.name());
    let deployments: Api<Deployment> = Api::all(client.clone());
    let found = deployments.list(&ListParams::default().labels(&selector)).await;
    let found = found.with_context(|| format!("cannot look for {} in the cluster", account.name()))?;
    let flags = |deployment: &Deployment| {
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        Some(Looks::of(pod).flags(&deployment.namespace().unwrap_or_default()))
    };
    Ok(found.iter().filter_map(flags).collect())
}

async fn compare(client: &Client, printed: &str) -> Result<Vec<Difference>> {
    let mut all = Vec::new();
    let wanted = Manifest::read_all(Path::new("rbac"), printed)?;
    for manifest in wanted.iter().filter(|manifest| matches!(manifest.kind(), "Role" | "ClusterRole")) {
        let title = match manifest.kind() {
            "Role" => format!("Role {}/{}", manifest.namespace(), manifest.name()),
            kind => format!("{kind} {}", manifest.name()),
        };
        let there = manifest.read(client).await.context("cannot read the roles of the cluster")?;
        match there {
            None => all.push(Difference { what: What::Missing, role: title, rule: None }),
            Some(there) => {
                all.extend(differences(&title, &manifest.object, &serde_json::to_value(there)?));
            }
        }
    }
    Ok(all)
}

fn differences(title: &str, wanted: &Value, there: &Value) -> Vec<Difference> {
    let (wanted, there) = (allowed(wanted), allowed(there));
    let words = |(group, resource, name, verb): &Allowed| {
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{verb} {resource}{group}{name}")
    };
    let difference = |what, rule| Difference { what, role: title.to_owned(), rule: Some(words(rule)) };
    let missing = wanted.difference(&there).map(|rule| difference(What::Missing, rule));
    let superfluous = there.difference(&wanted).map(|rule| difference(What::Superfluous, rule));
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
            differences("Role op", &wanted, &there).iter().map(Difference::to_string).collect::<Vec<_>>(),
            ["missing     Role op: patch deployments.apps", "superfluous Role op: get secrets x"]
        );
        assert!(differences("Role op", &wanted, &wanted).is_empty());
    }
}
