//! What an operator may do, beside what its code needs.
//!
//! A role gives nobody anything: a binding does. So both are compared with what the operator prints, and whatever else
//! binds its ServiceAccount is told.

mod bindings;

use std::{collections::BTreeSet, fmt::Display, path::Path};

use anyhow::{Context as _, Result, bail};
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

/// Where a role or a binding in the cluster differs from the one that the operator prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    what: What,
    /// As in `Role team-a/shop-operator`.
    object: String,
    /// As in `get secrets`; nothing where the object as a whole is missing.
    rule: Option<String>,
}

impl Display for Difference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.what {
            What::Missing => "missing",
            What::Superfluous => "superfluous",
        };
        let rule = self.rule.as_deref().unwrap_or("it is not installed");
        write!(formatter, "{what:<11} {}: {rule}", self.object)
    }
}

/// Where the rights in the cluster differ from those that the operator prints, for wherever it is installed.
pub(super) async fn check(client: &Client, program: &OperatorProgram) -> Result<Vec<Difference>> {
    let printed = program.prints(&["rbac"]).await?;
    let everywhere = wanted(program, &printed)?;
    let mut installations = Vec::new();
    for flags in flags_of_installations(client, &everywhere).await? {
        let arguments: Vec<_> = ["rbac"].into_iter().chain(flags.iter().map(String::as_str)).collect();
        installations.push(wanted(program, &program.prints(&arguments).await?)?);
    }
    if installations.is_empty() {
        installations.push(everywhere);
    }
    let mut all: Vec<Difference> = Vec::new();
    for wanted in &installations {
        // Roles of the whole cluster are those of each.
        let found = compare(client, wanted).await?;
        all.extend(found.into_iter().filter(|one| !all.contains(one)).collect::<Vec<_>>());
    }
    all.extend(bindings::others(client, &installations.concat()).await?);
    Ok(all)
}

/// What a program prints of its rights: a program that prints none is no operator.
fn wanted(program: &OperatorProgram, printed: &str) -> Result<Vec<Manifest>> {
    let wanted = Manifest::read_all(Path::new("rbac"), printed)?;
    if !wanted.iter().any(|manifest| is_role(manifest) || bindings::is_binding(manifest)) {
        bail!(
            "{} printed no role and no binding when it was called with `rbac`, so there is nothing to compare: is it an operator \
             that is written with Wheelhouse?",
            program.name()
        );
    }
    Ok(wanted)
}

fn is_role(manifest: &Manifest) -> bool {
    matches!(manifest.kind(), "Role" | "ClusterRole")
}

/// The flags of every installation of the operator that prints these rights.
async fn flags_of_installations(client: &Client, printed: &[Manifest]) -> Result<Vec<Vec<String>>> {
    let Some(account) = printed.iter().find(|manifest| manifest.kind() == "ServiceAccount") else {
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

async fn compare(client: &Client, wanted: &[Manifest]) -> Result<Vec<Difference>> {
    let mut all = Vec::new();
    for manifest in wanted.iter().filter(|manifest| is_role(manifest) || bindings::is_binding(manifest)) {
        let there =
            manifest.read(client).await.context("cannot read the roles and bindings of the cluster")?;
        let title = title(manifest);
        match there {
            None => all.push(Difference { what: What::Missing, object: title, rule: None }),
            Some(there) => {
                let there = serde_json::to_value(there)?;
                let said = if is_role(manifest) { rules } else { bindings::said };
                all.extend(differences(&title, &said(&manifest.object), &said(&there)));
            }
        }
    }
    Ok(all)
}

/// As in `Role team-a/shop-operator`.
fn title(manifest: &Manifest) -> String {
    match manifest.kind() {
        kind @ ("Role" | "RoleBinding") => format!("{kind} {}/{}", manifest.namespace(), manifest.name()),
        kind => format!("{kind} {}", manifest.name()),
    }
}

fn differences(title: &str, wanted: &BTreeSet<String>, there: &BTreeSet<String>) -> Vec<Difference> {
    let difference =
        |what, rule: &String| Difference { what, object: title.to_owned(), rule: Some(rule.clone()) };
    let missing = wanted.difference(there).map(|rule| difference(What::Missing, rule));
    let superfluous = there.difference(wanted).map(|rule| difference(What::Superfluous, rule));
    missing.chain(superfluous).collect()
}

/// Everything that a role allows, in words.
fn rules(role: &Value) -> BTreeSet<String> {
    let words = |(group, resource, name, verb): Allowed| {
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{verb} {resource}{group}{name}")
    };
    allowed(role).into_iter().map(words).collect()
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
        for path in words(rule, "nonResourceURLs") {
            let on = |verb| (String::new(), path.clone(), String::new(), verb);
            all.extend(words(rule, "verbs").into_iter().map(on));
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
        let role = |given: Value| rules(&json!({"rules": given}));
        let wanted =
            role(json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]}]));
        let there = role(json!([
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"], "verbs": ["get"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]));
        assert_eq!(
            differences("Role op", &wanted, &there).iter().map(Difference::to_string).collect::<Vec<_>>(),
            [
                "missing     Role op: patch deployments.apps",
                "superfluous Role op: get /metrics",
                "superfluous Role op: get secrets x"
            ]
        );
        assert!(differences("Role op", &wanted, &wanted).is_empty());
    }

    #[test]
    fn a_program_that_prints_no_rights_is_not_compared() {
        let program = OperatorProgram::Binary("/bin/true".into());
        let account = "kind: ServiceAccount\nmetadata: {name: op}\n";
        for printed in ["", account] {
            let refused = wanted(&program, printed).unwrap_err().to_string();
            assert!(refused.starts_with("/bin/true printed no role and no binding"), "{refused}");
        }
        let binding = "kind: RoleBinding\nmetadata: {name: op}\n";
        assert_eq!(wanted(&program, &format!("{account}---\n{binding}")).unwrap().len(), 2);
    }
}
