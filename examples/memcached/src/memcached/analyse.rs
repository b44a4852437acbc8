//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, PodSecurityContext, PodSpec, PodTemplateSpec,
            SeccompProfile, SecurityContext,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{ResourceExt as _, core::ObjectMeta};
use wheelhouse::{
    Event, Plan,
    plan::{Condition, Conditions},
};

use super::{
    LABEL,
    api::{Memcached, MemcachedStatus},
    observe::Seen,
};

const IMAGE: &str = "docker.io/library/memcached:1.6-alpine";
const COMMAND: [&str; 5] = ["memcached", "--memory-limit=64", "-o", "modern", "-v"];

/// What is to be done about one Memcached.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    if !seen.is_deployed {
        let note = format!("Creating Deployment {}", seen.resource.name_any());
        plan.tell(Event::normal("Creating", note));
    }
    plan.apply(&deployment(&seen.resource), "every Memcached has a Deployment");
    plan.set_status(&status(seen));
    plan
}

/// The Deployment as it is to be. What is not said here is left as it is.
fn deployment(memcached: &Memcached) -> Deployment {
    let name = memcached.name_any();
    let labels = BTreeMap::from([(LABEL.to_owned(), name.clone())]);
    let container = Container {
        name: "memcached".to_owned(),
        image: Some(IMAGE.to_owned()),
        command: Some(COMMAND.map(str::to_owned).to_vec()),
        ports: Some(vec![ContainerPort {
            name: Some("memcached".to_owned()),
            container_port: 11211,
            ..Default::default()
        }]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let pod = PodSpec {
        containers: vec![container],
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            // The image says its user by name, and nobody can tell from a name that it is not root.
            run_as_user: Some(11211),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    Deployment {
        metadata: ObjectMeta { name: Some(name), ..Default::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(memcached.spec.size),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..Default::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..Default::default() }),
                spec: Some(pod),
            },
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn status(seen: &Seen) -> MemcachedStatus {
    let generation = seen.resource.metadata.generation;
    let last = seen.resource.status.clone().unwrap_or_default();
    let mut nodes: Vec<_> = seen.pods.iter().map(|pod| pod.name.clone()).collect();
    nodes.sort();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(availability(seen)).set(degradation(seen));
    MemcachedStatus { observed_generation: generation, nodes, conditions: conditions.into_vec() }
}

/// Whether there is anybody to ask.
fn availability(seen: &Seen) -> Condition {
    let is_available = seen.pods.iter().any(|pod| pod.ready);
    let reason = if is_available { "PodsReady" } else { "NoPodReady" };
    Condition {
        kind: "Available",
        status: is_available.into(),
        reason: reason.to_owned(),
        message: pods_ready(seen),
    }
}

/// Whether something is not as it is to be.
fn degradation(seen: &Seen) -> Condition {
    let (is_degraded, reason, message) = match &seen.last_failure {
        Some(failure) => (true, failure.category.as_str(), failure.message.clone()),
        None if ready(seen) < usize::try_from(seen.resource.spec.size).unwrap_or_default() => {
            (true, "PodsNotReady", pods_ready(seen))
        }
        None => (false, "AllReady", pods_ready(seen)),
    };
    Condition { kind: "Degraded", status: is_degraded.into(), reason: reason.to_owned(), message }
}

fn pods_ready(seen: &Seen) -> String {
    format!("{} of {} pods are ready", ready(seen), seen.resource.spec.size)
}

fn ready(seen: &Seen) -> usize {
    seen.pods.iter().filter(|pod| pod.ready).count()
}

#[cfg(test)]
mod tests {
    use wheelhouse::{error::Category, jiff::Timestamp, world::Failure};

    use super::*;
    use crate::memcached::{api::MemcachedSpec, observe::PodSeen};

    /// A Memcached of this size, with pods of which these are ready.
    fn seen(size: i32, ready: &[bool]) -> Seen {
        let pods = (0..).zip(ready);
        Seen {
            resource: Memcached::new("cache", MemcachedSpec { size }),
            is_deployed: true,
            pods: pods
                .map(|(index, ready)| PodSeen { name: format!("cache-{index}"), ready: *ready })
                .collect(),
            last_failure: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// Status and reason of the two conditions.
    fn conditions(seen: &Seen) -> [String; 2] {
        let conditions = status(seen).conditions;
        assert_eq!([&*conditions[0].type_, &*conditions[1].type_], ["Available", "Degraded"]);
        [0, 1].map(|index| format!("{} {}", conditions[index].status, conditions[index].reason))
    }

    #[test]
    fn one_pod_that_is_ready_makes_it_available_and_one_that_is_not_degrades_it() {
        assert_eq!(conditions(&seen(2, &[])), ["False NoPodReady", "True PodsNotReady"]);
        assert_eq!(conditions(&seen(2, &[false, false])), ["False NoPodReady", "True PodsNotReady"]);
        assert_eq!(conditions(&seen(2, &[false, true])), ["True PodsReady", "True PodsNotReady"]);
        assert_eq!(conditions(&seen(2, &[true, true])), ["True PodsReady", "False AllReady"]);
        assert_eq!(conditions(&seen(1, &[true, true])), ["True PodsReady", "False AllReady"], "one too many");
        assert_eq!(conditions(&seen(0, &[])), ["False NoPodReady", "False AllReady"], "none is wanted");
    }

    #[test]
    fn what_went_wrong_the_last_time_degrades_it() {
        let mut seen = seen(1, &[true]);
        seen.last_failure = Some(Failure { category: Category::NotOurs, message: "taken".to_owned() });
        assert_eq!(conditions(&seen), ["True PodsReady", "True NotOurs"]);
        assert_eq!(degradation(&seen).message, "taken");
    }

    #[test]
    fn the_nodes_are_sorted_whatever_the_order_in_which_they_were_seen() {
        let mut seen = seen(3, &[true, true, true]);
        seen.pods.rotate_left(1);
        assert_eq!(status(&seen).nodes, ["cache-0", "cache-1", "cache-2"]);
    }

    #[test]
    fn a_deployment_is_announced_when_there_is_none() {
        let mut seen = seen(1, &[]);
        assert!(analyse(&seen).events.is_empty());
        seen.is_deployed = false;
        assert_eq!(analyse(&seen).events, [Event::normal("Creating", "Creating Deployment cache")]);
    }

    #[test]
    fn a_memcached_that_goes_is_left_to_it() {
        let mut seen = seen(1, &[]);
        seen.resource.metadata.deletion_timestamp = serde_json::from_str("\"2018-11-02T09:00:00Z\"").unwrap();
        assert_eq!(analyse(&seen), Plan::new());
    }
}
