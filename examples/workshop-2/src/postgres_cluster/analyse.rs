//! Analyse: from what was seen to what is to be said. Pure: the same observation gives the same plan.
//!
//! Nothing is remembered in memory: the status says which generation was told last, so who starts again does not begin
//! anew. A finalizer keeps a resource until its end was told.

use wheelhouse::{Plan, Step};

use super::{
    act::{Say, What},
    api::{PostgresClusterSpec, PostgresClusterStatus},
    observe::Seen,
};

/// Keeps a resource until its end was told.
pub const FINALIZER: &str = "lukeb0nd.com/told";

/// What is to be said about one PostgresCluster.
pub fn analyse(seen: &Seen) -> Plan<Say> {
    let mut plan = Plan::new();
    let metadata = &seen.resource.metadata;
    let is_kept = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    if metadata.deletion_timestamp.is_some() {
        if is_kept {
            plan.act(say(seen, What::Deleted), "somebody deleted it");
            plan.step(Step::RemoveFinalizer(FINALIZER.to_owned()), "its end was told");
        }
        return plan;
    }
    if !is_kept {
        plan.step(Step::AddFinalizer(FINALIZER.to_owned()), "its end is to be told");
    }
    let told = seen.resource.status.clone().unwrap_or_default().observed_generation;
    match told {
        None => plan.act(say(seen, What::Added), "it is new"),
        Some(_) if told != metadata.generation => {
            plan.act(say(seen, What::Modified), "its spec is another one")
        }
        Some(_) => {}
    }
    plan.set_status(&PostgresClusterStatus { observed_generation: metadata.generation });
    plan
}

fn say(seen: &Seen, what: What) -> Say {
    let PostgresClusterSpec { size, version } = seen.resource.spec.clone();
    Say { what, size, version }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres_cluster::api::PostgresCluster;

    /// The third generation of a resource, of which this one was told.
    fn seen(told: Option<i64>) -> Seen {
        let spec = PostgresClusterSpec { size: 3, version: "9.6.3".to_owned() };
        let mut resource = PostgresCluster::new("one", spec);
        resource.metadata.generation = Some(3);
        resource.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        resource.status = told.map(|told| PostgresClusterStatus { observed_generation: Some(told) });
        Seen { resource }
    }

    fn steps(seen: &Seen) -> Vec<String> {
        analyse(seen).steps.iter().map(|planned| planned.step.to_string()).collect()
    }

    #[test]
    fn what_happened_is_said_once() {
        assert_eq!(steps(&seen(None)), ["say ADDED"]);
        assert_eq!(steps(&seen(Some(2))), ["say MODIFIED"]);
        assert_eq!(steps(&seen(Some(3))), [""; 0]);
    }

    #[test]
    fn a_line_says_what_is_wanted() {
        let line = say(&seen(None), What::Modified).line();
        assert_eq!(line, "Postgres cluster event: MODIFIED, size 3, version 9.6.3");
    }

    #[test]
    fn a_resource_goes_after_its_end_was_told() {
        let mut seen = seen(Some(3));
        seen.resource.metadata.deletion_timestamp = serde_json::from_str("\"2017-07-01T09:00:00Z\"").unwrap();
        let told = ["say DELETED", "remove finalizer lukeb0nd.com/told"];
        assert_eq!(steps(&seen), told);
        seen.resource.metadata.finalizers = None;
        assert_eq!(steps(&seen), [""; 0]);
    }

    #[test]
    fn a_resource_is_kept_before_anything_is_said_of_it() {
        let mut seen = seen(None);
        seen.resource.metadata.finalizers = None;
        assert_eq!(steps(&seen).first().map(String::as_str), Some("add finalizer lukeb0nd.com/told"));
    }
}
