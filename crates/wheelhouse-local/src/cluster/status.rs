//! How a cluster is: which of its processes live, and what its API server says.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, api::ListParams};
use serde::Serialize;

use super::{Cluster, Kind, Phase};
use crate::{cgroups::Trees, error::Result, machine::is_wrapper, network, node};

/// How a cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Health {
    /// Every component lives.
    Running,
    /// `up` runs right now, or was killed before it finished.
    Unfinished,
    /// These components, which should be running, are not.
    HalfDead {
        /// As in `node-1/kubelet`.
        missing: Vec<String>,
    },
    /// Not one component lives, as after a reboot.
    Dead,
}

/// What `status` tells of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Where its API server answers.
    pub server: String,
    /// When it was made.
    pub created: jiff::Timestamp,
    /// Each node, and how it is: Ready, NotReady or Unknown, and whether it was cut off.
    pub nodes: Vec<NodeStatus>,
}

/// What `status` tells of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Whether its plug is in; none where that could not be seen.
    pub connected: Option<bool>,
    /// Whether Kubernetes calls it ready; none where the API server did not say.
    pub ready: Option<bool>,
}

impl Cluster {
    /// How the cluster is.
    pub async fn status(&self) -> Result<Status> {
        let health = self.health();
        Ok(Status {
            name: self.name().to_owned(),
            server: format!("https://{}", self.settings().ports.api),
            created: self.record.created,
            nodes: if health == Health::Dead { Vec::new() } else { self.node_status().await? },
            health,
        })
    }

    /// Which of its components live.
    pub fn health(&self) -> Health {
        let missing = self.missing();
        match self.record.phase {
            Phase::Creating => Health::Unfinished,
            Phase::Ready if missing.is_empty() => Health::Running,
            Phase::Ready if missing.len() == self.components().len() => Health::Dead,
            Phase::Ready => Health::HalfDead { missing },
        }
    }

    /// The components that should be running and are not.
    pub(super) fn missing(&self) -> Vec<String> {
        let alive = self.alive();
        self.components().into_iter().filter(|each| !alive.contains(each)).collect()
    }

    fn alive(&self) -> BTreeSet<String> {
        let isolated = matches!(self.record.kind, Kind::Nodes { .. });
        crate::processes::of_cluster(&self.folder)
            .into_iter()
            .filter(|process| !isolated || is_wrapper(process))
            .map(|process| process.component)
            .collect()
    }

    async fn node_status(&self) -> Result<Vec<NodeStatus>> {
        let Kind::Nodes { count, .. } = self.record.kind else { return Ok(Vec::new()) };
        let control_plane = self.control_plane(Some(&Trees::detect()?));
        let ready = self.ready_nodes().await;
        let mut nodes = Vec::new();
        for number in 1..=count {
            let name = node::name(number);
            let connected = network::is_connected(&control_plane, number).await.ok();
            let ready = ready.as_ref().map(|ready| ready.contains(&name));
            nodes.push(NodeStatus { name, connected, ready });
        }
        Ok(nodes)
    }

    /// The nodes that Kubernetes calls ready; none where it does not say within a moment.
    async fn ready_nodes(&self) -> Option<BTreeSet<String>> {
        let api: Api<NodeObject> = Api::all(self.client().await.ok()?);
        let list_params = ListParams::default();
        let listed = tokio::time::timeout(Duration::from_secs(3), api.list(&list_params)).await.ok()?.ok()?;

        Some(
            listed
                .items
                .iter()
                .filter(|node| is_ready(node))
                .filter_map(|node| node.metadata.name.clone())
                .collect(),
        )
    }
}

/// Whether Kubernetes calls a node ready.
pub(super) fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|each| each.type_ == "Ready" && each.status == "True"))
}
