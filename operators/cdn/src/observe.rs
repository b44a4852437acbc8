//! Observe: a CdnCluster, the clusters that it depends on, its Deployment and its pods
//! with what their agents say.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, PodCondition},
};
use kube::{ResourceExt as _, core::Expression};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse::{Key, Known, Reference, Result, World, cache::Lister, jiff::Timestamp, world::Failure};

use crate::{
    api::{AgentState, CdnCluster},
    asking::AskAgent,
    children::{self, RENDERED_BY, WANTED},
    configuration::{CONFIGURATION_KEY, Configuration},
    validity::{Neighbour, source_clusters},
};

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
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

/// The world as this operator has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub cluster: CdnCluster,
    /// The image with nginx, unless the cluster says otherwise.
    pub nginx_image: String,
    /// The image with the agent.
    pub agent_image: String,
    /// The clusters that it depends on, and those that they depend on.
    pub others: BTreeMap<String, Neighbour>,
    /// Its Deployment, if it has one.
    pub deployment: Option<DeploymentSeen>,
    /// Whether the list of purges is there.
    pub has_purges: bool,
    /// What the pods are told to serve now, if that can be read.
    #[serde(default)]
    pub configuration: Option<Configuration>,
    /// Its pods.
    pub pods: Vec<PodSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// A Deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSeen {
    /// What was wanted of pods when they were last changed.
    pub wanted: Option<String>,
    /// The version of the operator that did so.
    pub rendered_by: Option<String>,
    /// What its pods are made from, if another version of this operator made that.
    #[serde(default)]
    pub template: Option<Value>,
    /// Whether its controller has seen what it is to be.
    pub is_observed: bool,
    /// How many pods it has.
    pub replicas: i32,
    /// How many of them are as they are to be.
    pub updated: i32,
    /// How many take requests.
    pub ready: i32,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSeen {
    /// This very one.
    pub reference: Reference,
    /// Where it runs.
    #[serde(default)]
    pub node: Option<String>,
    /// Whether it takes requests.
    pub ready: bool,
    /// What its agent says.
    pub agent: Known<AgentState>,
}

pub(crate) async fn observe(
    cluster: Arc<CdnCluster>,
    (nginx_image, agent_image): (&str, &str),
    world: &World<'_>,
) -> Result<Seen> {
    let name = cluster.name_any();
    let namespace = cluster.namespace();
    let clusters = world.lister::<CdnCluster>(namespace.as_deref()).await?;
    let deployment = world.get::<Deployment>(&children::deployment_name(&name)).await?;
    let purges = world.get::<ConfigMap>(&children::purges_name(&name)).await?;
    let configuration = world.get::<ConfigMap>(&children::configuration_name(&name)).await?;
    Ok(Seen {
        others: reachable(&cluster, namespace.as_deref(), &clusters),
        cluster: (*cluster).clone(),
        nginx_image: nginx_image.to_owned(),
        agent_image: agent_image.to_owned(),
        deployment: deployment.as_deref().map(see_deployment),
        has_purges: purges.is_some(),
        configuration: configuration
            .and_then(|map| serde_json::from_str(map.data.as_ref()?.get(CONFIGURATION_KEY)?).ok()),
        pods: pods(&name, world).await?,
        last_failure: world.last_failure(),
        now: world.now(),
    })
}

/// The clusters that one depends on, directly or not.
fn reachable(
    cluster: &CdnCluster,
    namespace: Option<&str>,
    clusters: &Lister<CdnCluster>,
) -> BTreeMap<String, Neighbour> {
    let mut found = BTreeMap::new();
    let mut to_visit: Vec<String> = source_clusters(&cluster.spec).map(str::to_owned).collect();
    while let Some(name) = to_visit.pop() {
        if found.contains_key(&name) {
            continue;
        }
        if let Some(other) = clusters.get(&Key::new(namespace, &name)) {
            let neighbour = Neighbour::of(&other);
            to_visit.extend(neighbour.sources.iter().cloned());
            found.insert(name, neighbour);
        }
    }
    found
}

fn see_deployment(deployment: &Deployment) -> DeploymentSeen {
    let annotation = |name| deployment.annotations().get(name).cloned();
    let rendered_by = annotation(RENDERED_BY);
    let is_foreign = rendered_by.as_deref() != Some(children::VERSION);
    let status = deployment.status.clone().unwrap_or_default();
    let template = deployment.spec.as_ref().map(|spec| serde_json::to_value(&spec.template));
    DeploymentSeen {
        wanted: annotation(WANTED),
        template: template.and_then(|template| template.ok()).filter(|_| is_foreign),
        rendered_by,
        is_observed: status.observed_generation >= deployment.metadata.generation,
        replicas: status.replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
    }
}

/// The pods of a cluster, with what their agents say.
pub(crate) async fn pods(cluster: &str, world: &World<'_>) -> Result<Vec<PodSeen>> {
    let selector = Expression::Equal(children::LABEL.to_owned(), cluster.to_owned()).into();
    let pods = world.select::<PodView>(&selector).await?;
    let is_ready = |condition: &PodCondition| condition.type_ == "Ready" && condition.status == "True";
    // Those that have ended, as when they were evicted, stay as objects, and serve nobody.
    let has_ended = |pod: &PodView| matches!(pod.status.phase.as_deref(), Some("Failed" | "Succeeded"));
    let seen = pods.iter().filter(|pod| !has_ended(pod)).map(|pod| PodSeen {
        reference: Reference::of(&**pod),
        node: pod.spec.node_name.clone(),
        ready: pod.status.conditions.iter().any(is_ready),
        agent: match &pod.status.pod_ip {
            Some(address) => {
                world.probe(AskAgent { address: address.clone(), pod: pod.name_any(), uid: pod.uid() })
            }
            None => Known::Absent,
        },
    });
    Ok(seen.collect())
}
