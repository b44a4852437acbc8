//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.
//!
//! The seed is launched, and kept: a pod that is lost comes back with its data. More servers would have to copy it, and
//! to know who writes: a condition says that they are missing. There is one image, so there is one version: another
//! condition says whether it is the one that is wanted.

use kube::ResourceExt as _;
use wheelhouse::{
    Event, Plan, Step,
    plan::{Condition, Conditions},
};

use super::{api::PostgresClusterStatus, children, observe::Seen};

/// What is to be done about one PostgresCluster.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    if seen.ready.is_none() {
        let note = format!("Launching the seed of {}", seen.resource.name_any());
        plan.tell(Event::normal("LaunchingSeed", note));
        let version = version(seen);
        if version.status == false.into() {
            plan.tell(Event::warning(version.reason, version.message));
        }
    }
    plan.step(Step::EnsureSecret(children::password(&seen.resource)), "nobody knows a password beforehand");
    plan.apply(&children::volume(&seen.resource), "the data outlives its pod");
    plan.apply(&children::service(&seen.resource), "clients find the server by a name");
    plan.apply(&children::seed(&seen.resource), "every PostgresCluster has a seed");
    plan.set_status(&status(seen));
    plan
}

fn status(seen: &Seen) -> PostgresClusterStatus {
    let generation = seen.resource.metadata.generation;
    let last = seen.resource.status.clone().unwrap_or_default();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(readiness(seen));
    conditions.set(version(seen));
    PostgresClusterStatus { observed_generation: generation, conditions: conditions.into_vec() }
}

fn readiness(seen: &Seen) -> Condition {
    let (ready, wanted) = (seen.ready.unwrap_or_default(), seen.resource.spec.size);
    let servers = format!("{ready} of {wanted} servers are ready");
    let (is_ready, reason, message) = match &seen.last_failure {
        Some(failure) => (false, failure.category.as_str(), failure.message.clone()),
        None if ready == wanted => (true, "AllReady", servers),
        None if ready == 0 => (false, "LaunchingSeed", servers),
        None => (false, "SeedOnly", format!("{servers}: this operator launches the seed only")),
    };
    Condition { kind: "Ready", status: is_ready.into(), reason: reason.to_owned(), message }
}

/// Whether what runs is what is wanted. A version may be more exact than the image is: 17.2 is a 17.
fn version(seen: &Seen) -> Condition {
    let wanted = &seen.resource.spec.version;
    let is_wanted = wanted.split('.').next() == Some(children::SERVER);
    let (reason, message) = match is_wanted {
        true => ("Same", format!("PostgreSQL {} runs", children::SERVER)),
        false => (
            "OtherVersion",
            format!("{wanted} is wanted, and PostgreSQL {} is what this operator has", children::SERVER),
        ),
    };
    Condition { kind: "WantedVersion", status: is_wanted.into(), reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use wheelhouse::{error::Category, jiff::Timestamp, world::Failure};

    use super::*;
    use crate::postgres_cluster::api::{PostgresCluster, PostgresClusterSpec};

    fn seen(size: i32, ready: Option<i32>) -> Seen {
        let spec = PostgresClusterSpec { size, version: "17".to_owned() };
        Seen {
            resource: PostgresCluster::new("one", spec),
            ready,
            last_failure: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn said(seen: &Seen) -> (bool, String, String) {
        let Condition { status, reason, message, .. } = readiness(seen);
        (status == true.into(), reason, message)
    }

    #[test]
    fn it_is_ready_when_as_many_servers_are_as_are_wanted() {
        assert_eq!(said(&seen(1, None)).1, "LaunchingSeed");
        assert_eq!(
            said(&seen(1, Some(0))),
            (false, "LaunchingSeed".to_owned(), "0 of 1 servers are ready".to_owned())
        );
        assert_eq!(
            said(&seen(1, Some(1))),
            (true, "AllReady".to_owned(), "1 of 1 servers are ready".to_owned())
        );
    }

    #[test]
    fn who_wants_more_than_the_seed_is_told_that_there_is_no_more() {
        let (is_ready, reason, message) = said(&seen(3, Some(1)));
        assert_eq!((is_ready, reason.as_str()), (false, "SeedOnly"));
        assert_eq!(message, "1 of 3 servers are ready: this operator launches the seed only");
    }

    #[test]
    fn what_went_wrong_comes_first() {
        let mut seen = seen(1, Some(1));
        seen.last_failure = Some(Failure { category: Category::Invalid, message: "no".to_owned() });
        assert_eq!(said(&seen), (false, "Invalid".to_owned(), "no".to_owned()));
    }

    #[test]
    fn a_launch_is_announced_once() {
        assert_eq!(
            analyse(&seen(1, None)).events,
            [Event::normal("LaunchingSeed", "Launching the seed of one")]
        );
        assert!(analyse(&seen(1, Some(0))).events.is_empty());
    }

    #[test]
    fn who_wants_a_version_that_is_not_to_be_had_is_told_which_one_runs() {
        let mut seen = seen(1, None);
        for (wanted, is_had) in [("17", true), ("17.2", true), ("9.6.3", false), ("170", false)] {
            seen.resource.spec.version = wanted.to_owned();
            assert_eq!(version(&seen).status, is_had.into(), "{wanted}");
            assert_eq!(analyse(&seen).events.len(), if is_had { 1 } else { 2 }, "{wanted}");
        }
        seen.resource.spec.version = "9.6.3".to_owned();
        let told = analyse(&seen).events.pop();
        let words = "9.6.3 is wanted, and PostgreSQL 17 is what this operator has";
        assert_eq!(told, Some(Event::warning("OtherVersion", words)));
    }

    #[test]
    fn what_goes_is_left_to_it() {
        let mut seen = seen(1, None);
        seen.resource.metadata.deletion_timestamp = serde_json::from_str("\"2017-07-01T09:00:00Z\"").unwrap();
        assert_eq!(analyse(&seen), Plan::new());
    }
}
