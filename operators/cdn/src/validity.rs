//! What is wrong with a CdnCluster that got past admission, and what only a look at
//! others can tell. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::api::{AntiAffinity, CdnCluster, CdnClusterSpec, CdnPurgeSpec, Role};

/// Longer paths, with every byte escaped twice, would not fit into nginx's configuration.
const PURGED_AT_MOST: usize = 900;
/// Longer expressions are nobody's.
const CONDITION_AT_MOST: usize = 512;

/// What others need to know of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Neighbour {
    /// What it is.
    pub role: Role,
    /// The clusters that it takes from.
    pub sources: Vec<String>,
    /// Whether it serves.
    pub ready: bool,
}

impl Neighbour {
    /// What others need to know of this one.
    pub fn of(cluster: &CdnCluster) -> Self {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let serves = |condition: &Condition| condition.type_ == "Available" && condition.status == "True";
        Self {
            role: cluster.spec.role,
            sources: source_clusters(&cluster.spec).map(str::to_owned).collect(),
            ready: conditions.into_iter().any(serves),
        }
    }
}

/// The names of the clusters that one takes from.
pub fn source_clusters(spec: &CdnClusterSpec) -> impl Iterator<Item = &str> {
    let of_clusters = spec.sources.iter().filter(|source| source.origin.is_none());
    of_clusters.map(|source| source.name.as_str())
}

/// What is wrong with a spec, whatever else there is.
///
/// # Errors
/// What is wrong, in words for whoever wrote it.
pub fn check_spec(spec: &CdnClusterSpec) -> Result<(), String> {
    let ttls = spec.cache.iter().flat_map(|cache| &cache.ttls);
    let ttls = ttls.map(|ttl| ("a TTL", &ttl.path_condition));
    let sources = spec.sources.iter().map(|source| (source.name.as_str(), &source.path_condition));
    for (of, condition) in sources.chain(ttls) {
        if let Some(condition) = condition {
            check_condition(condition).map_err(|why| format!("the pathCondition of {of}: {why}"))?;
        }
    }
    let is_default = |condition: &Option<String>| condition.as_deref().is_none_or(str::is_empty);
    let defaults: Vec<_> = spec.sources.iter().filter(|source| is_default(&source.path_condition)).collect();
    if let [first, second, ..] = defaults.as_slice() {
        return Err(format!(
            "{} and {} are both without a pathCondition: at most one can be the default",
            first.name, second.name
        ));
    }
    if spec.anti_affinity == AntiAffinity::Required
        && spec.replicas > 0
        && spec.min_available.is_some_and(|promised| promised >= spec.replicas)
    {
        return Err(
            "with antiAffinity Required a pod goes before its successor comes: minAvailable must be less than replicas"
                .to_owned(),
        );
    }
    if let (Role::Balancer, Some(source)) =
        (spec.role, spec.sources.iter().find(|source| source.origin.is_some()))
    {
        return Err(format!("{} has an origin: a balancer takes from caches only", source.name));
    }
    Ok(())
}

/// Whether this can be a path condition.
///
/// # Errors
/// Why not.
pub fn check_condition(condition: &str) -> Result<(), String> {
    if condition.len() > CONDITION_AT_MOST {
        return Err(format!("it is longer than {CONDITION_AT_MOST} characters"));
    }
    if condition.chars().any(char::is_control) {
        return Err("it has control characters".to_owned());
    }
    let regex = Regex::new(condition).map_err(|error| match error.to_string().lines().last() {
        Some(line) => format!("{condition:?} is no regular expression: {line}"),
        None => format!("{condition:?} is no regular expression"),
    })?;
    match regex.capture_names().flatten().next() {
        Some(name) => Err(format!("{condition:?} has a named group, {name}, which a path condition cannot")),
        None => Ok(()),
    }
}

/// Why a purge would have no effect, or could not be told to nginx. Paths are compared as nginx
/// has them: decoded, without a query, without empty and dotted parts.
///
/// # Errors
/// What is wrong, in words for whoever wrote it.
pub fn check_purge(spec: &CdnPurgeSpec) -> Result<(), String> {
    for path in spec.paths.iter().chain(&spec.prefix) {
        let wrong = |why: &str| Err(format!("{path:?} {why}"));
        if path.chars().any(char::is_control) {
            return wrong("has control characters");
        }
        if path.len() > PURGED_AT_MOST {
            return wrong(&format!("is longer than {PURGED_AT_MOST} bytes"));
        }
        if path.contains(['?', '#']) {
            return wrong("has a query or a fragment: a path is purged with whatever query");
        }
        if path.contains('%') {
            return wrong("is percent-encoded: write the characters themselves");
        }
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let (_, inner) = parts.split_last().unwrap_or((&"", &[]));
        if inner.contains(&"") || parts.iter().any(|part| matches!(*part, "." | "..")) {
            return wrong("has empty or dotted parts, which no request has");
        }
    }
    Ok(())
}

/// What is wrong with a cluster because of others: a source that cannot be one, or a cycle.
///
/// # Errors
/// What is wrong, in words for whoever wrote it.
pub fn check_sources(
    name: &str,
    spec: &CdnClusterSpec,
    others: &BTreeMap<String, Neighbour>,
) -> Result<(), String> {
    for source in source_clusters(spec) {
        if source == name {
            return Err(format!("{name} is its own source"));
        }
        if others.get(source).is_some_and(|other| other.role == Role::Balancer) {
            return Err(format!("source {source} is a balancer: only caches and origins can be sources"));
        }
    }
    match cycle(name, spec, others) {
        Some(cycle) => Err(format!("the sources go round in a circle: {}", cycle.join(" -> "))),
        None => Ok(()),
    }
}

/// The way from a cluster through its sources back to itself, if there is one.
fn cycle(name: &str, spec: &CdnClusterSpec, others: &BTreeMap<String, Neighbour>) -> Option<Vec<String>> {
    // From every cluster that can be reached, the one it was reached from.
    let mut reached: BTreeMap<&str, &str> = BTreeMap::new();
    let mut to_visit: Vec<(&str, &str)> = source_clusters(spec).map(|source| (source, name)).collect();
    while let Some((here, from)) = to_visit.pop() {
        if reached.contains_key(here) {
            continue;
        }
        reached.insert(here, from);
        if here == name {
            let mut way = vec![name.to_owned()];
            let mut at = from;
            while at != name {
                way.push(at.to_owned());
                at = reached.get(at)?;
            }
            way.push(name.to_owned());
            way.reverse();
            return Some(way);
        }
        let next = others.get(here).into_iter().flat_map(|other| &other.sources);
        to_visit.extend(next.map(|source| (source.as_str(), here)));
    }
    None
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::api::Source;

    fn cache(sources: &[&str]) -> CdnClusterSpec {
        let sources: Vec<_> = sources.iter().map(|name| serde_json::json!({"name": name})).collect();
        serde_json::from_value(serde_json::json!({"role": "cache", "sources": sources})).unwrap()
    }

    fn neighbours(all: &[(&str, &[&str])]) -> BTreeMap<String, Neighbour> {
        let neighbour = |sources: &[&str]| Neighbour {
            role: Role::Cache,
            sources: sources.iter().map(|name| (*name).to_owned()).collect(),
            ready: true,
        };
        all.iter().map(|(name, sources)| ((*name).to_owned(), neighbour(sources))).collect()
    }

    #[rstest]
    #[case::a_query("/a?b=1", "query")]
    #[case::encoded("/a%20b", "percent-encoded")]
    #[case::an_empty_part("/a//b", "empty or dotted")]
    #[case::a_dotted_part("/a/../b", "empty or dotted")]
    #[case::a_control_character("/a\u{85}", "control characters")]
    #[case::as_long_as_it_gets(&format!("/{}", "é".repeat(500)), "longer than")]
    fn a_purge_that_no_request_would_match_is_refused(#[case] path: &str, #[case] expected: &str) {
        let prefix =
            CdnPurgeSpec { cluster: "c".to_owned(), paths: Vec::new(), prefix: Some(path.to_owned()) };
        let why = check_purge(&prefix).unwrap_err();
        assert!(why.contains(expected), "{why}");
        let paths = CdnPurgeSpec { paths: vec![path.to_owned()], prefix: None, ..prefix };
        assert_eq!(check_purge(&paths).unwrap_err(), why);
    }

    #[rstest]
    #[case("/")]
    #[case("/a/")]
    #[case("/a b/é.mp4")]
    #[case("/.hidden")]
    fn a_purge_that_requests_match_is_not(#[case] path: &str) {
        let prefix =
            CdnPurgeSpec { cluster: "c".to_owned(), paths: Vec::new(), prefix: Some(path.to_owned()) };
        check_purge(&prefix).unwrap();
    }

    #[test]
    fn a_promise_that_a_rollout_would_break_is_refused() {
        let mut spec = CdnClusterSpec { min_available: Some(2), ..cache(&[]) };
        check_spec(&spec).unwrap();
        spec.anti_affinity = AntiAffinity::Required;
        assert!(check_spec(&spec).unwrap_err().contains("minAvailable must be less"), "{spec:?}");
    }

    #[rstest]
    #[case::unbalanced("^/live/(", "unclosed group")]
    #[case::line_break("^/a\n}", "control characters")]
    #[case::variable("^/(?<host>.*)", "named group, host")]
    #[case::long(&"a".repeat(513), "longer than")]
    fn what_cannot_be_a_path_condition(#[case] condition: &str, #[case] words: &str) {
        let why = check_condition(condition).unwrap_err();
        assert!(why.contains(words), "{why}");
    }

    #[rstest]
    #[case(r"^/live/")]
    #[case(r#"^/a";\}\{\$host\.ts$"#)]
    #[case(r"\.(mp4|m4s)$")]
    fn what_can(#[case] condition: &str) {
        check_condition(condition).unwrap();
    }

    #[test]
    fn two_defaults_are_named() {
        let mut spec = cache(&["a", "b"]);
        assert!(check_spec(&spec).unwrap_err().starts_with("a and b are both"));
        spec.sources[0] = Source { path_condition: Some("^/a".to_owned()), ..spec.sources[0].clone() };
        check_spec(&spec).unwrap();
    }

    #[test]
    fn a_cycle_is_told_in_its_order() {
        let others = neighbours(&[("b", &["c"]), ("c", &["d", "a"]), ("d", &[])]);
        let why = check_sources("a", &cache(&["d", "b"]), &others).unwrap_err();
        assert!(why.ends_with("a -> b -> c -> a"), "{why}");
        check_sources("a", &cache(&["d"]), &others).unwrap();
        // Somebody else's cycle is not ours.
        let others = neighbours(&[("b", &["c"]), ("c", &["b"])]);
        check_sources("a", &cache(&["b"]), &others).unwrap();
        assert_eq!(check_sources("a", &cache(&["a"]), &others).unwrap_err(), "a is its own source");
    }
}
