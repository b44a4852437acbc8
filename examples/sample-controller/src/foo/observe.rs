//! Observe: a Foo and the Deployments that concern it, as far as a decision needs them. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde::{Deserialize, Serialize};
use wheelhouse::{Reference, Result, World};

use super::api::Foo;

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted.
    pub resource: Foo,
    /// The Deployment of the name that it says, whoever's that is.
    pub deployment: Option<DeploymentSeen>,
    /// Its own Deployments; more than one while the name changes.
    pub children: Vec<Reference>,
}

/// How a Deployment is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSeen {
    /// Whether it is this Foo's.
    pub is_ours: bool,
    /// How many pods it is to have.
    pub replicas: Option<i32>,
    /// How many of them are available.
    pub available: i32,
}

pub(super) async fn observe(resource: Arc<Foo>, world: &World<'_>) -> Result<Seen> {
    let children = world.children().await?;
    let deployment = world.get::<Deployment>(&resource.spec.deployment_name).await?;
    let deployment = deployment.map(|deployment| {
        let reference = Reference::of(&*deployment);
        DeploymentSeen {
            is_ours: children.iter().any(|child| child.uid == reference.uid),
            replicas: deployment.spec.as_ref().and_then(|spec| spec.replicas),
            available: deployment
                .status
                .as_ref()
                .and_then(|status| status.available_replicas)
                .unwrap_or_default(),
        }
    });
    Ok(Seen { resource: (*resource).clone(), deployment, children })
}
