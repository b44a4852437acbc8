//! The operator of `EtcdRestore`: checks everything first, and only then asks an EtcdCluster to begin from a
//! backup. How it begins is the cluster's own business.
//!
//! Invariants:
//! - Nothing is asked of a cluster before a pod has verified the whole backup, and what it found is in the status.
//! - A cluster with data is asked only where the restore says so, under the version of the cluster that was seen.
//! - An EtcdCluster is made, or told; it is never deleted.

mod analyse;

use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::PostParams, core::Expression};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wheelhouse::{
    Acting, Action, Controller, Declared, Error, Key, Operator, Plan, Reference, Result, World,
    cache::Selection, jiff::Timestamp, world::Failure,
};

use crate::{
    Scope,
    api::{
        EtcdCluster, Restored,
        backup::{EtcdRestore, Place, RESTORE, RestoreFrom},
    },
    backup::pods,
    worker::{GENERATION, RESTORE_LABEL, WorkerSeen, WorkerView},
};

/// How long the verification of a backup may take.
const CHECKED_WITHIN_SECONDS: i64 = 3600;

/// The operator of restores.
pub struct EtcdRestores {
    /// Which resources it looks after.
    pub scope: Scope,
    /// The image with the program that verifies backups.
    pub image: String,
}

/// The world as this operator has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub restore: EtcdRestore,
    /// Whether this operator looks after it.
    pub is_ours: bool,
    /// The image with the program that verifies backups.
    pub image: String,
    /// The EtcdCluster, if it is there.
    pub cluster: Option<ClusterSeen>,
    /// The pod that verifies the backup, if it is there.
    pub checker: Option<WorkerSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// An EtcdCluster that is to begin from a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSeen {
    /// This very one.
    pub reference: Reference,
    /// Whether it has data.
    pub has_begun: bool,
    /// What it runs; what it is to run, if it does not yet.
    pub version: String,
    /// Whether the operator keeps its hands off it.
    pub paused: bool,
    /// The restore that it was asked for last.
    #[serde(default)]
    pub asked: Option<RestoreFrom>,
    /// The restore that its data is from.
    #[serde(default)]
    pub restored: Option<Restored>,
}

/// What only this operator knows how to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Deed {
    /// Make an EtcdCluster that belongs to nobody: it stays when the restore goes.
    CreateCluster(Box<EtcdCluster>),
}

impl Action for Deed {
    fn name(&self) -> &'static str {
        "create-cluster"
    }

    fn is_destructive(&self) -> bool {
        false
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::CreateCluster(cluster) = self;
        write!(formatter, "create EtcdCluster {}", cluster.name_any())
    }
}

impl Operator for EtcdRestores {
    type Resource = EtcdRestore;
    type Observation = Seen;
    type Action = Deed;

    async fn observe(&self, restore: Arc<EtcdRestore>, world: &World<'_>) -> Result<Seen> {
        let cluster = world.get::<EtcdCluster>(&restore.spec.etcd_cluster.name).await?;
        let pods = world.owned::<WorkerView>().await?;
        let name = checker_name(&restore.name_any());
        let checker = pods.iter().find(|pod| pod.name_any() == name);
        Ok(Seen {
            is_ours: self.scope.includes(restore.annotations()),
            image: self.image.clone(),
            cluster: cluster.as_deref().map(ClusterSeen::of),
            checker: checker.map(|pod| WorkerSeen::of(pod, world.now())),
            restore: (*restore).clone(),
            last_failure: world.last_failure(),
            now: world.now(),
        })
    }

    fn analyse(&self, seen: &Seen) -> Plan<Deed> {
        analyse::analyse(seen)
    }

    async fn act(&self, deed: Deed, acting: &Acting<'_>) -> Result<()> {
        let doing = deed.to_string();
        let Deed::CreateCluster(cluster) = deed;
        let namespace = acting.resource.namespace.clone().unwrap_or_default();
        let clusters: Api<EtcdCluster> = Api::namespaced(acting.client.clone(), &namespace);
        let params =
            PostParams { field_manager: Some(acting.field_manager.to_owned()), ..PostParams::default() };
        // If there is one by now, the world is observed again.
        clusters.create(&params, &cluster).await.map(drop).map_err(Error::api(doing))
    }
}

impl ClusterSeen {
    fn of(cluster: &EtcdCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let asked = cluster.annotations().get(RESTORE).and_then(|text| serde_json::from_str(text).ok());
        let is_running = !status.current_version.is_empty();
        Self {
            reference: Reference::of(cluster),
            has_begun: status.cluster_id.is_some(),
            version: if is_running { status.current_version } else { cluster.spec.version.clone() },
            paused: cluster.spec.paused,
            asked,
            restored: status.restored,
        }
    }
}

/// The pod that verifies the backup.
pub fn checker_name(restore: &str) -> String {
    format!("{restore}-check")
}

/// The pod that verifies the backup. It talks to nobody but the place where the backup is.
pub fn checker(restore: &EtcdRestore, place: &Place, image: &str) -> Pod {
    let (container, volumes) = pods::container("check", place, image, &["check"]);
    let generation = restore.metadata.generation.unwrap_or_default().to_string();
    let content = json!({
        "metadata": {
            "name": checker_name(&restore.name_any()),
            "labels": {"app": "etcd-restore", RESTORE_LABEL: restore.name_any()},
            "annotations": {GENERATION: generation},
        },
        "spec": pods::pod_spec(container, volumes, CHECKED_WITHIN_SECONDS, None),
    });
    serde_json::from_value(content).unwrap_or_default()
}

/// The controller of restores.
pub fn controller(operator: EtcdRestores) -> Controller<EtcdRestores> {
    let ours = || Selection::labels(Expression::Exists(RESTORE_LABEL.to_owned()));
    let cluster_of = |restore: &EtcdRestore| {
        vec![Key::new(restore.namespace().as_deref(), &restore.spec.etcd_cluster.name)]
    };
    Controller::new(operator)
        .owns_of::<WorkerView>((), ours(), Vec::new())
        .depends_on::<EtcdCluster, _>(cluster_of)
        .uses(Declared::new("etcd.database.coreos.com", "etcdclusters", &["create", "patch"]))
}
