//! Who is given what a role allows.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::{Api, Client, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use wheelhouse_local::manifests::Manifest;

use super::{Difference, What, title};

pub(super) fn is_binding(manifest: &Manifest) -> bool {
    matches!(manifest.kind(), "RoleBinding" | "ClusterRoleBinding")
}

/// What a binding says, in words: a line for each of those who are given its role.
pub(super) fn said(binding: &Value) -> BTreeSet<String> {
    let role = role(binding);
    subjects(binding).map(|subject| format!("{role} for {}", called(subject))).collect()
}

/// Bindings that name the ServiceAccount of an operator, and that it does not print.
pub(super) async fn others(client: &Client, wanted: &[Manifest]) -> Result<Vec<Difference>> {
    let accounts: Vec<_> = wanted
        .iter()
        .filter(|manifest| manifest.kind() == "ServiceAccount")
        .map(|account| (account.namespace(), account.name()))
        .collect();
    let printed: Vec<_> = wanted.iter().filter(|manifest| is_binding(manifest)).map(title).collect();
    let there = there(client).await.context("cannot list the bindings of the cluster")?;
    let others = there.iter().filter(|binding| !printed.contains(&title(binding)));
    Ok(others.flat_map(|binding| given_to(binding, &accounts)).collect())
}

/// Every binding in the cluster.
async fn there(client: &Client) -> Result<Vec<Manifest>> {
    let all = ListParams::default();
    let of_namespaces = Api::<RoleBinding>::all(client.clone()).list(&all).await?.items;
    let of_the_cluster = Api::<ClusterRoleBinding>::all(client.clone()).list(&all).await?.items;
    let of_namespaces = of_namespaces.iter().map(|binding| as_manifest(binding, "RoleBinding"));
    let of_the_cluster = of_the_cluster.iter().map(|binding| as_manifest(binding, "ClusterRoleBinding"));
    of_namespaces.chain(of_the_cluster).collect()
}

/// The kind of what is in a list is said by the list only.
fn as_manifest(binding: &impl Serialize, kind: &str) -> Result<Manifest> {
    let mut object = serde_json::to_value(binding)?;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("kind".to_owned(), kind.into());
    }
    Ok(Manifest { object })
}

/// What a binding gives these accounts, each a namespace and a name.
fn given_to(binding: &Manifest, accounts: &[(&str, &str)]) -> Vec<Difference> {
    let is_theirs = |subject: &&Value| accounts.iter().any(|account| is_of(subject, *account));
    subjects(&binding.object)
        .filter(is_theirs)
        .map(|subject| Difference {
            what: What::Superfluous,
            object: title(binding),
            rule: Some(format!("{} for {}", role(&binding.object), called(subject))),
        })
        .collect()
}

/// Whether a subject is a ServiceAccount, by its own name or by that of the user that it is.
fn is_of(subject: &Value, (namespace, name): (&str, &str)) -> bool {
    match text(subject, "/kind") {
        "ServiceAccount" => (text(subject, "/namespace"), text(subject, "/name")) == (namespace, name),
        "User" => text(subject, "/name") == format!("system:serviceaccount:{namespace}:{name}"),
        _ => false,
    }
}

fn role(binding: &Value) -> String {
    format!("{} {}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"))
}

fn subjects(binding: &Value) -> impl Iterator<Item = &Value> {
    binding.get("subjects").and_then(Value::as_array).into_iter().flatten()
}

/// As in `ServiceAccount team-a/shop-operator`.
fn called(subject: &Value) -> String {
    match (text(subject, "/kind"), text(subject, "/namespace"), text(subject, "/name")) {
        (kind, "", name) => format!("{kind} {name}"),
        (kind, namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(role: &str, subjects: Value) -> Manifest {
        Manifest {
            object: json!({"kind": "ClusterRoleBinding", "metadata": {"name": "more"}, "subjects": subjects,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}),
        }
    }

    #[test]
    fn a_binding_says_which_role_is_given_to_whom() {
        let bound = binding(
            "admin",
            json!([{"kind": "ServiceAccount", "namespace": "a", "name": "op"}, {"kind": "User", "name": "me"}]),
        );
        let lines = ["ClusterRole admin for ServiceAccount a/op", "ClusterRole admin for User me"];
        assert_eq!(said(&bound.object), lines.map(str::to_owned).into());
        assert_eq!(said(&json!({"roleRef": {"kind": "Role", "name": "op"}})), BTreeSet::new());
    }

    #[test]
    fn whoever_names_the_account_in_any_way_gives_it_something() {
        let bound = binding(
            "cluster-admin",
            json!([
                {"kind": "ServiceAccount", "namespace": "a", "name": "op"},
                {"kind": "User", "name": "system:serviceaccount:a:op"},
                {"kind": "ServiceAccount", "namespace": "b", "name": "op"},
                {"kind": "User", "name": "op"},
                {"kind": "Group", "name": "op"},
            ]),
        );
        let lines: Vec<_> = given_to(&bound, &[("a", "op")]).iter().map(Difference::to_string).collect();
        assert_eq!(
            lines,
            [
                "superfluous ClusterRoleBinding more: ClusterRole cluster-admin for ServiceAccount a/op",
                "superfluous ClusterRoleBinding more: ClusterRole cluster-admin for User system:serviceaccount:a:op",
            ]
        );
    }
}
