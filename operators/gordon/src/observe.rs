//! Observe: a Gordon and its pods, as far as a decision needs them.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use wheelhouse::{
    Reference, Result, World,
    jiff::Timestamp,
    k8s_openapi::api::core::v1::{Pod, PodCondition},
    kube::ResourceExt as _,
    world::Failure,
};

use crate::{api::Gordon, pod::WANTED};

wheelhouse::projection! {
    /// The fields of a pod that are read. The cache holds nothing else of pods.
    pub struct PodView of Pod {
        spec: PodPlace,
        status: PodState,
    }
}

/// Where a pod runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPlace {
    node_name: Option<String>,
}

/// How a pod is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodState {
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

/// The world as this operator has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub gordon: Gordon,
    /// The image that its pods run unless it says otherwise.
    pub image: String,
    /// Its pods.
    pub pods: Vec<PodSeen>,
    /// Names that its pods would have, taken by pods of others.
    #[serde(default)]
    pub taken_names: BTreeSet<String>,
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
    /// This very one.
    pub reference: Reference,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Whether it answers.
    pub ready: bool,
    /// Where it runs.
    #[serde(default)]
    pub node: Option<String>,
    /// What was wanted when it was made.
    #[serde(default)]
    pub made_for: Option<String>,
    /// When it was made.
    pub created: Timestamp,
}

impl PodSeen {
    /// It ran to its end, and will not run again.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

pub(crate) async fn observe(gordon: Arc<Gordon>, image: &str, world: &World<'_>) -> Result<Seen> {
    let pods = world.owned::<PodView>().await?;
    let pods: Vec<_> = pods.iter().map(|pod| see(pod, world.now())).collect();
    let mut taken_names = BTreeSet::new();
    for index in 0..gordon.spec.gordon.replicas {
        let name = crate::pod::name(&gordon.name_any(), index);
        let is_ours = pods.iter().any(|pod| pod.reference.name == name);
        if !is_ours && world.get::<PodView>(&name).await?.is_some() {
            taken_names.insert(name);
        }
    }
    Ok(Seen {
        gordon: (*gordon).clone(),
        image: image.to_owned(),
        pods,
        taken_names,
        last_failure: world.last_failure(),
        now: world.now(),
    })
}

fn see(pod: &PodView, now: Timestamp) -> PodSeen {
    let is_ready = |condition: &PodCondition| condition.type_ == "Ready" && condition.status == "True";
    PodSeen {
        reference: Reference::of(pod),
        phase: pod.status.phase.clone().unwrap_or_else(|| "Pending".to_owned()),
        ready: pod.status.conditions.iter().any(is_ready),
        node: pod.spec.node_name.clone(),
        made_for: pod.annotations().get(WANTED).cloned(),
        created: pod.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
    }
}
