//! Observe: a Memcached, its Deployment and its pods, as far as a decision needs them. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, PodCondition},
};
use kube::{ResourceExt as _, core::Expression};
use serde::{Deserialize, Serialize};
use wheelhouse::{Result, World, jiff::Timestamp, world::Failure};

use super::{LABEL, api::Memcached};

wheelhouse::projection! {
    /// The fields of a pod that are read. The cache holds nothing else of pods.
    pub struct PodView of Pod {
        status: PodState,
    }
}

/// How a pod is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodState {
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: Memcached,
    /// Whether it has a Deployment.
    pub is_deployed: bool,
    /// Its pods, without those that go or have ended.
    pub pods: Vec<PodSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSeen {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub ready: bool,
}

pub(super) async fn observe(resource: Arc<Memcached>, world: &World<'_>) -> Result<Seen> {
    let ours = Expression::Equal(LABEL.to_owned(), resource.name_any()).into();
    let pods = world.select::<PodView>(&ours).await?;
    Ok(Seen {
        resource: (*resource).clone(),
        is_deployed: !world.owned::<Deployment>().await?.is_empty(),
        pods: pods.iter().filter(|pod| stays(pod)).map(|pod| see(pod)).collect(),
        last_failure: world.last_failure(),
        now: world.now(),
    })
}

/// Those that were evicted stay as objects for a long time, and serve nobody.
fn stays(pod: &PodView) -> bool {
    let has_ended = matches!(pod.status.phase.as_deref(), Some("Failed" | "Succeeded"));
    pod.metadata.deletion_timestamp.is_none() && !has_ended
}

fn see(pod: &PodView) -> PodSeen {
    let is_ready = |condition: &PodCondition| condition.type_ == "Ready" && condition.status == "True";
    PodSeen { name: pod.name_any(), ready: pod.status.conditions.iter().any(is_ready) }
}
