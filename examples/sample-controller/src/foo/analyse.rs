//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.
//!
//! Invariants:
//! - A Deployment that is not this Foo's is never touched.
//! - The Deployment of an old name goes only after that of the new one is there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile,
            SecurityContext,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{ResourceExt as _, core::ObjectMeta};
use wheelhouse::{Event, Plan};

use super::{
    api::{Foo, FooStatus},
    observe::Seen,
};

/// nginx as an ordinary user.
const IMAGE: &str = "wheelhouse.dev/nginx:0.1.0";

/// What is to be done about one Foo.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let name = &seen.resource.spec.deployment_name;
    if seen.deployment.as_ref().is_some_and(|deployment| !deployment.is_ours) {
        let note = format!("Resource {name:?} already exists and is not managed by Foo");
        plan.tell(Event::warning("ErrResourceExists", note));
        plan.set_status(&FooStatus::default());
        return plan;
    }
    if !is_synced(seen) {
        plan.tell(Event::normal("Synced", "Foo synced successfully"));
    }
    plan.apply(&deployment(&seen.resource), "every Foo has a Deployment of the name that it says");
    plan.set_status(&FooStatus {
        available_replicas: seen.deployment.as_ref().map_or(0, |deployment| deployment.available),
    });
    plan.prune(&seen.children, |child| child.name == *name);
    plan
}

/// Whether this plan has nothing to do. The original says `Synced` at every look; here it is said when something was done.
fn is_synced(seen: &Seen) -> bool {
    let wanted = seen.resource.spec.replicas;
    seen.deployment
        .as_ref()
        .is_some_and(|deployment| wanted.is_none_or(|wanted| deployment.replicas == Some(wanted)))
}

/// The Deployment as it is to be. What is not said here is left as it is.
fn deployment(resource: &Foo) -> Deployment {
    let labels = BTreeMap::from([
        ("app".to_owned(), "nginx".to_owned()),
        ("controller".to_owned(), resource.name_any()),
    ]);
    let container = Container {
        name: "nginx".to_owned(),
        image: Some(IMAGE.to_owned()),
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
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    Deployment {
        metadata: ObjectMeta { name: Some(resource.spec.deployment_name.clone()), ..Default::default() },
        spec: Some(DeploymentSpec {
            replicas: resource.spec.replicas,
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

#[cfg(test)]
mod tests {
    use wheelhouse::{Reference, plan::EventType};

    use super::*;
    use crate::foo::{api::FooSpec, observe::DeploymentSeen};

    /// A Foo that wants two pods in the Deployment `new`.
    fn seen(deployment: Option<DeploymentSeen>) -> Seen {
        let spec = FooSpec { deployment_name: "new".to_owned(), replicas: Some(2) };
        Seen { resource: Foo::new("example", spec), deployment, children: Vec::new() }
    }

    fn ours(replicas: i32) -> Option<DeploymentSeen> {
        Some(DeploymentSeen { is_ours: true, replicas: Some(replicas), available: 1 })
    }

    fn steps(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(|planned| planned.step.to_string()).collect()
    }

    fn reasons(plan: &Plan) -> Vec<&str> {
        plan.events.iter().map(|event| event.reason.as_str()).collect()
    }

    #[test]
    fn synced_is_said_when_something_was_done_and_only_then() {
        for (deployment, said) in [(None, vec!["Synced"]), (ours(3), vec!["Synced"]), (ours(2), vec![])] {
            let plan = analyse(&seen(deployment.clone()));
            assert_eq!(steps(&plan), ["apply Deployment new"], "{deployment:?}");
            assert_eq!(reasons(&plan), said, "{deployment:?}");
        }
    }

    #[test]
    fn who_wants_no_number_leaves_it_to_others() {
        let mut seen = seen(ours(7));
        seen.resource.spec.replicas = None;
        assert_eq!(deployment(&seen.resource).spec.unwrap().replicas, None);
        assert!(analyse(&seen).events.is_empty());
    }

    #[test]
    fn what_is_not_ours_is_not_touched_and_told() {
        let foreign = DeploymentSeen { is_ours: false, replicas: Some(2), available: 2 };
        let mut seen = seen(Some(foreign));
        seen.children = vec![Reference::of(&named("old"))];
        let plan = analyse(&seen);
        assert!(plan.is_quiet(), "{plan}");
        let event = plan.events.first().unwrap();
        assert_eq!((event.kind, event.reason.as_str()), (EventType::Warning, "ErrResourceExists"));
        assert_eq!(event.note, "Resource \"new\" already exists and is not managed by Foo");
        assert_eq!(plan.status.unwrap()["availableReplicas"], 0, "those of others do not count");
    }

    #[test]
    fn the_deployment_of_an_old_name_goes_after_the_new_one_is_there() {
        let mut seen = seen(None);
        seen.children = vec![Reference::of(&named("old"))];
        assert_eq!(steps(&analyse(&seen)), ["apply Deployment new", "delete Deployment old"]);
    }

    #[test]
    fn a_foo_that_goes_is_left_to_it() {
        let mut seen = seen(None);
        seen.resource.metadata.deletion_timestamp = serde_json::from_str("\"2018-11-02T09:00:00Z\"").unwrap();
        assert_eq!(analyse(&seen), Plan::new());
    }

    fn named(name: &str) -> Deployment {
        Deployment {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            ..Default::default()
        }
    }
}
