//! RBAC rules, derived from what the controllers register.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::controller::Declared;

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
