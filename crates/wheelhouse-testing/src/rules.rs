//! [`RulesReport`]: whether RBAC rules are what a program needs: no verb missing,
//! and none that nobody uses.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::requests::{Request, Requests};

/// What the requests of a program say about its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesReport {
    /// What it asked and was refused, such as `patch widgets.example.com`.
    pub missing: BTreeSet<String>,
    /// What it may and never asked.
    pub unused: BTreeSet<String>,
}

impl RulesReport {
    /// Compares rules with what was asked under them.
    pub(crate) fn new(rules: &[PolicyRule], requests: &Requests) -> Self {
        let missing = requests.iter().filter(|request| request.code == 403).map(asked);
        let used: BTreeSet<_> =
            requests.iter().filter(|request| request.code != 403).flat_map(taken_for).collect();
        let unused = rules.iter().flat_map(allowed).filter(|right| {
            // Nobody asks for these: the API server looks at them when others are asked for.
            !right.contains("/finalizers") && !used.contains(right)
        });
        Self { missing: missing.collect(), unused: unused.collect() }
    }

    /// Whether the rules are exactly what is needed.
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.unused.is_empty()
    }
}

impl fmt::Display for RulesReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            return formatter.write_str("the rules are what is needed");
        }
        for right in &self.missing {
            writeln!(formatter, "missing: {right}")?;
        }
        for right in &self.unused {
            writeln!(formatter, "unused: {right}")?;
        }
        Ok(())
    }
}

fn right(verb: &str, group: &str, resource: &str) -> String {
    match group {
        "" => format!("{verb} {resource}"),
        group => format!("{verb} {resource}.{group}"),
    }
}

fn asked(request: &Request) -> String {
    right(&request.verb, &request.group, &request.resource)
}

/// An apply that makes an object takes the right to create it, too.
fn taken_for(request: &Request) -> Vec<String> {
    let created = (request.verb == "patch" && request.code == 201)
        .then(|| right("create", &request.group, &request.resource));
    created.into_iter().chain([asked(request)]).collect()
}

fn allowed(rule: &PolicyRule) -> Vec<String> {
    let groups = rule.api_groups.iter().flatten();
    let resources = || rule.resources.iter().flatten();
    let pairs = groups.flat_map(|group| resources().map(move |resource| (group, resource)));
    pairs
        .flat_map(|(group, resource)| rule.verbs.iter().map(move |verb| right(verb, group, resource)))
        .collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::identity::rule;

    fn request(verb: &str, resource: &str, code: u16) -> Request {
        Request {
            user: "me".to_owned(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            code,
            received: Timestamp::UNIX_EPOCH,
            answered: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn what_is_missing_and_what_is_unused_are_told_by_name() {
        let rules = [
            rule(&["get", "create", "patch"], "apps", &["deployments"]),
            rule(&["delete"], "", &["pods"]),
            rule(&["update"], "apps", &["deployments/finalizers"]),
        ];
        let requests = Requests::new(vec![
            request("get", "deployments", 404),
            request("patch", "deployments", 201),
            request("list", "deployments", 403),
        ]);
        let report = RulesReport::new(&rules, &requests);
        assert_eq!(report.to_string(), "missing: list deployments.apps\nunused: delete pods\n");
        assert!(!report.is_exact());
    }
}
