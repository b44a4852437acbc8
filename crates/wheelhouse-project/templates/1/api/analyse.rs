//! Analyse: from what was seen to what is to be done. Pure: the same observation gives the same plan.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::json;
use wheelhouse::{
    Event, Plan,
    plan::{Condition, Conditions},
};

use super::{
    api::{{ "{" }}{{ api.kind }}, {{ api.kind }}Status},
    observe::Seen,
};

/// What is to be done about one {{ api.kind }}.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.resource.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    match deployment(&seen.resource) {
        Ok(deployment) => {
            if seen.deployment.is_none() {
                plan.tell(Event::normal("Creating", format!("Creating Deployment {}", deployment.name_any())));
            }
            plan.apply(&deployment, "every {{ api.kind }} has a Deployment");
            plan.set_status(&status(seen, None));
        }
        Err(complaint) => {
            plan.tell(Event::warning("Invalid", &complaint));
            plan.set_status(&status(seen, Some(complaint)));
        }
    }
    plan
}

/// The Deployment as it is to be. What is not said here is left as it is.
fn deployment(resource: &{{ api.kind }}) -> Result<Deployment, String> {
    let name = resource.name_any();
    let labels = json!({"app.kubernetes.io/name": "{{ api.singular }}", "app.kubernetes.io/instance": name});
    let container = json!({
        "name": "main",
        "image": resource.spec.image,
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let pod = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    });
    serde_json::from_value(json!({
        "metadata": {"name": name{% if api.cluster_scoped %}, "namespace": resource.spec.namespace{% endif %}, "labels": labels},
        "spec": {
            "replicas": resource.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
    .map_err(|error| format!("the Deployment cannot be written: {error}"))
}

fn status(seen: &Seen, complaint: Option<String>) -> {{ api.kind }}Status {
    let generation = seen.resource.metadata.generation;
    let last = seen.resource.status.clone().unwrap_or_default();
    let deployment = seen.deployment.clone().unwrap_or_default();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(readiness(seen, complaint));
    {{ api.kind }}Status {
        observed_generation: generation,
        replicas: deployment.replicas,
        ready_replicas: deployment.ready,
        conditions: conditions.into_vec(),
    }
}

fn readiness(seen: &Seen, complaint: Option<String>) -> Condition {
    let wanted = seen.resource.spec.replicas;
    let ready = seen.deployment.as_ref().map_or(0, |deployment| deployment.ready);
    let is_settled = seen.deployment.as_ref().is_some_and(|deployment| deployment.is_settled);
    let (is_ready, reason, message) = match (complaint, &seen.last_failure) {
        (Some(complaint), _) => (false, "Invalid".to_owned(), complaint),
        (None, Some(failure)) => (false, failure.category.as_str().to_owned(), failure.message.clone()),
        (None, None) if is_settled && ready == wanted => {
            (true, "AllReady".to_owned(), format!("{ready} of {wanted} pods are ready"))
        }
        (None, None) => (false, "Deploying".to_owned(), format!("{ready} of {wanted} pods are ready")),
    };
    Condition { kind: "Ready", status: is_ready.into(), reason, message }
}

#[cfg(test)]
mod tests {
    use wheelhouse::jiff::Timestamp;

    use super::*;
    use crate::{{ api.module }}::{api::{{ api.kind }}Spec, observe::DeploymentSeen};

    fn seen(deployment: Option<DeploymentSeen>) -> Seen {
        let spec = {{ api.kind }}Spec { replicas: 2, image: "wheelhouse.dev/nginx:0.1.0".to_owned(){% if api.cluster_scoped %}, namespace: "default".to_owned(){% endif %} };
        let resource = {{ api.kind }}::new("one", spec);
        Seen { resource, deployment, last_failure: None, now: Timestamp::UNIX_EPOCH }
    }

    fn ready(seen: &Seen) -> (bool, String) {
        let condition = readiness(seen, None);
        (condition.status == true.into(), condition.reason)
    }

    #[test]
    fn it_is_ready_when_as_many_pods_are_as_are_wanted() {
        assert_eq!(ready(&seen(None)), (false, "Deploying".to_owned()));
        let mut deployment = DeploymentSeen { replicas: 2, ready: 1, is_settled: true };
        assert_eq!(ready(&seen(Some(deployment.clone()))), (false, "Deploying".to_owned()));
        deployment.ready = 2;
        assert_eq!(ready(&seen(Some(deployment))), (true, "AllReady".to_owned()));
    }

    #[test]
    fn the_same_observation_gives_the_same_plan() {
        let seen = seen(None);
        assert_eq!(format!("{:?}", analyse(&seen)), format!("{:?}", analyse(&seen)));
    }
}
