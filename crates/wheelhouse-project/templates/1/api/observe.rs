//! Observe: a {{ api.kind }} and its Deployment, as far as a decision needs them. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde::{Deserialize, Serialize};
use wheelhouse::{Result, World, jiff::Timestamp, world::Failure};

use super::api::{{ api.kind }};

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: {{ api.kind }},
    /// Its Deployment, if there is one.
    pub deployment: Option<DeploymentSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// How a Deployment is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSeen {
    /// How many pods it has.
    pub replicas: i32,
    /// How many of them are ready.
    pub ready: i32,
    /// Whether it has done all that was asked of it last.
    pub is_settled: bool,
}

pub(super) async fn observe(resource: Arc<{{ api.kind }}>, world: &World<'_>) -> Result<Seen> {
    let deployments = world.owned::<Deployment>().await?;
    Ok(Seen {
        resource: (*resource).clone(),
        deployment: deployments.first().map(AsRef::as_ref).map(see),
        last_failure: world.last_failure(),
        now: world.now(),
    })
}

fn see(deployment: &Deployment) -> DeploymentSeen {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    DeploymentSeen {
        replicas: status.replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
        is_settled: status.observed_generation == deployment.metadata.generation
            && status.updated_replicas.unwrap_or_default() == wanted,
    }
}
