//! RBAC rules, derived from what the controllers register.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::{controller::Declared, webhooks::Webhooks};

/// The rules for these declarations: one for each group and set of verbs.
pub(crate) fn rules<'a>(declared: impl IntoIterator<Item = &'a Declared>) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for declared in declared {
        let known = verbs.entry((&declared.group, &declared.resource)).or_default();
        for verb in &declared.verbs {
            if !known.contains(verb) {
                known.push(verb);
            }
        }
    }
    let mut rules: BTreeMap<(&str, Vec<&str>), Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        rules.entry((group, verbs)).or_default().push(resource.to_owned());
    }
    let rules = rules.into_iter().map(|((group, verbs), resources)| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        ..PolicyRule::default()
    });
    rules.collect()
}

/// What every controller does beyond its registrations.
pub(crate) fn events() -> Declared {
    Declared::new("events.k8s.io", "events", &["create", "patch"])
}

/// What the election needs, in the namespace of the Lease.
pub(crate) fn leases() -> Declared {
    Declared::new("coordination.k8s.io", "leases", &["get", "create", "update"])
}

/// What it takes to ask the API server who somebody is and what they may do.
pub(crate) const ASKING_ABOUT_OTHERS: &str = "system:auth-delegator";

/// What it takes to register these CRDs, and no others.
pub(crate) fn crds(names: Vec<String>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec!["apiextensions.k8s.io".to_owned()]),
        resources: Some(vec!["customresourcedefinitions".to_owned()]),
        resource_names: Some(names),
        verbs: ["get", "create", "patch"].map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    }
}

/// What webhooks of this operator take, in the whole cluster: to tell the API server
/// about them, and about nobody else's.
pub(crate) fn webhooks(operator: &str, webhooks: &Webhooks) -> Vec<PolicyRule> {
    let named = |group: &str, resources: &[&str], names: Vec<String>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|resource| (*resource).to_owned()).collect()),
        resource_names: Some(names),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let configurations = [
        ("validatingwebhookconfigurations", webhooks.validating.is_empty()),
        ("mutatingwebhookconfigurations", webhooks.defaulting.is_empty()),
    ];
    let used: Vec<_> =
        configurations.iter().filter(|(_, is_empty)| !is_empty).map(|(resource, _)| *resource).collect();
    let mut rules = Vec::new();
    if !used.is_empty() {
        let group = "admissionregistration.k8s.io";
        rules.push(named(group, &used, vec![operator.to_owned()], &["create", "patch"]));
    }
    let crds: Vec<_> = webhooks.converting.iter().map(|(crd, _)| crd.clone()).collect();
    if !crds.is_empty() {
        rules.push(named("apiextensions.k8s.io", &["customresourcedefinitions"], crds, &["patch"]));
    }
    rules
}

/// What looking after the webhooks' certificates takes, in the operator's namespace.
pub(crate) fn webhook_secret(operator: &str) -> Vec<PolicyRule> {
    let secret = |names: Option<Vec<String>>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: names,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    // Who creates something cannot be bound to its name.
    vec![secret(Some(vec![format!("{operator}-webhooks")]), &["get", "update"]), secret(None, &["create"])]
}

/// What it takes to let somebody else have this ClusterRole.
pub(crate) fn binding(cluster_role: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec!["rbac.authorization.k8s.io".to_owned()]),
        resources: Some(vec!["clusterroles".to_owned()]),
        resource_names: Some(vec![cluster_role.to_owned()]),
        verbs: vec!["bind".to_owned()],
        ..PolicyRule::default()
    }
}

/// Somebody beside the operator who talks to the API server: an agent in the pods
/// that it runs. It has rules of its own, as a ClusterRole that the operator may bind
/// to the ServiceAccounts of those pods.
#[derive(Clone, Debug)]
pub struct Agent {
    pub(crate) name: String,
    pub(crate) declared: Vec<Declared>,
}

impl Agent {
    /// An agent by this name, which is also the name of its ClusterRole.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), declared: Vec::new() }
    }

    /// What it does.
    #[must_use]
    pub fn uses(mut self, declared: Declared) -> Self {
        self.declared.push(declared);
        self
    }

    /// The RBAC rules that allow exactly that.
    pub fn rules(&self) -> Vec<PolicyRule> {
        rules(&self.declared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_one_resource_become_one_rule() {
        let declared = [
            Declared::new("", "pods", &["get", "list"]),
            Declared::new("", "pods", &["list", "delete"]),
            Declared::new("", "services", &["get", "list", "delete"]),
            Declared::new("apps", "deployments", &["get"]),
        ];
        let rules = rules(&declared);
        let shown: Vec<_> =
            rules.iter().map(|rule| (rule.resources.clone().unwrap(), rule.verbs.clone())).collect();
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                (text(&["pods", "services"]), text(&["get", "list", "delete"])),
                (text(&["deployments"]), text(&["get"])),
            ]
        );
    }
}
