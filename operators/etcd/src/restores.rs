//! The operator of `EtcdRestore`: checks everything first, and only then asks an EtcdCluster to begin from a
//! backup. How it begins is the cluster's own business.
//!
//! Invariants:
//! - Nothing is asked of a cluster before a pod has verified the whole backup, and what it found is in the status.
//! - A cluster with data is asked only where the restore says so, under the version of the cluster that was seen.
//! - An EtcdCluster is made, or told; it is never deleted.
//! - A restore that is deleted while the data that it is to replace is there is called off.
//! - Nothing is decided for good on what the cache does not say of a request: what is not there may only be unseen.

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
        backup::{CALLED_OFF, EtcdRestore, Place, RESTORE, RestoreFrom, RestorePhase},
    },
    backup::pods,
    incarnation::{self, Incarnation},
    worker::{GENERATION, RESTORE_LABEL, WorkerSeen, WorkerView, foremost, name_beside, of_name},
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
    /// The pods that verify the backup: one, and those beside it that are stuck.
    pub checkers: Vec<WorkerSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

impl Seen {
    /// The pod that verifies the backup, if there is one.
    fn checker(&self) -> Option<&WorkerSeen> {
        foremost(self.checkers.iter(), self.now)
    }
}

/// An EtcdCluster that is to begin from a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSeen {
    /// This very one.
    pub reference: Reference,
    /// Whether it has data, or will have what it had before.
    pub holds_data: bool,
    /// What it runs; what it is to run, if it does not yet.
    pub version: String,
    /// Whether the operator keeps its hands off it.
    pub paused: bool,
    /// The UID of the restore that it begins with, or has begun with.
    #[serde(default)]
    pub begins_with: Option<String>,
    /// The restore that it was asked for last.
    #[serde(default)]
    pub asked: Option<RestoreFrom>,
    /// Whether nothing more comes of that one, because somebody deleted it, or it was refused.
    #[serde(default)]
    pub asked_in_vain: bool,
    /// The UID of the restore that was called off last.
    #[serde(default)]
    pub called_off: Option<String>,
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
        let name = &restore.spec.etcd_cluster.name;
        let cluster = world.get::<EtcdCluster>(name).await?;
        let mut cluster = cluster.as_deref().map(ClusterSeen::of);
        if analyse::is_decided_by_absence(&restore, cluster.as_ref()) {
            let live = world.live::<EtcdCluster>(restore.namespace().as_deref()).get(name).await?;
            cluster = live.as_ref().map(ClusterSeen::of);
        }
        if let Some(cluster) = &mut cluster
            && let Some(other) = analyse::comes_first(&restore, cluster)
        {
            cluster.asked_in_vain = is_over(other, world).await?;
        }
        let pods = world.owned::<WorkerView>().await?;
        let pods: Vec<_> = pods.iter().map(|pod| WorkerSeen::of(pod, world.now())).collect();
        Ok(Seen {
            is_ours: self.scope.includes(restore.annotations()),
            image: self.image.clone(),
            cluster,
            checkers: of_name(&checker_name(&restore.name_any()), &pods).cloned().collect(),
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

/// Whether nothing more comes of what an EtcdRestore asked for. What the cache does not have may only be unseen.
async fn is_over(asked: &RestoreFrom, world: &World<'_>) -> Result<bool> {
    let is_it = |restore: &EtcdRestore| restore.uid().as_ref() == Some(&asked.uid);
    let known = world.get::<EtcdRestore>(&asked.name).await?.filter(|known| is_it(known));
    let known = match known {
        Some(known) => Some(known),
        None => {
            let live = world.live::<EtcdRestore>(world.resource().namespace.as_deref());
            live.get(&asked.name).await?.filter(is_it).map(Arc::new)
        }
    };
    let is_refused = |restore: &EtcdRestore| {
        restore.status.as_ref().is_some_and(|status| status.phase == Some(RestorePhase::Refused))
    };
    Ok(known.is_none_or(|known| is_refused(&known)))
}

impl ClusterSeen {
    /// Whether it begins from that restore, or has begun from it: there is no way back.
    fn is_begun_with(&self, restore: &str) -> bool {
        let is_done = self.restored.as_ref().is_some_and(|restored| restored.restore == restore);
        is_done || self.begins_with.as_deref() == Some(restore)
    }

    /// Whether it is asked for that restore and has not begun from it.
    fn is_asked_for(&self, restore: &str) -> bool {
        let is_asked = self.asked.as_ref().is_some_and(|asked| asked.uid == restore);
        is_asked && !self.is_begun_with(restore)
    }

    fn of(cluster: &EtcdCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let asked = cluster.annotations().get(RESTORE).and_then(|text| serde_json::from_str(text).ok());
        let is_running = !status.current_version.is_empty();
        // If that cannot be read, the cluster does nothing, whatever it is asked; and what it holds it holds.
        let number = incarnation::told(cluster);
        let current = incarnation::of(cluster).unwrap_or(Incarnation { number, ..Incarnation::default() });
        Self {
            reference: Reference::of(cluster),
            holds_data: incarnation::holds_data(cluster, &[], &current),
            begins_with: current.restore.map(|requested| requested.uid),
            version: if is_running { status.current_version } else { cluster.spec.version.clone() },
            paused: cluster.spec.paused,
            asked,
            asked_in_vain: false,
            called_off: cluster.annotations().get(CALLED_OFF).cloned(),
            restored: status.restored,
        }
    }
}

/// The pod that verifies the backup.
pub fn checker_name(restore: &str) -> String {
    format!("{restore}-check")
}

/// The pod that verifies the backup. It talks to nobody but the place where the backup is.
fn checker(seen: &Seen, place: &Place) -> Pod {
    let Seen { restore, image, checkers, .. } = seen;
    let (container, volumes) = pods::container("check", place, image, &["check"]);
    let generation = restore.metadata.generation.unwrap_or_default().to_string();
    let content = json!({
        "metadata": {
            "name": name_beside(&checker_name(&restore.name_any()), checkers),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Until a person has put back what it said: what is called off meanwhile is not begun from then.
    #[test]
    fn a_cluster_whose_incarnation_cannot_be_read_holds_what_it_holds() {
        let cluster = |status: serde_json::Value| {
            let cluster = json!({
                "apiVersion": "etcd.database.coreos.com/v1beta2",
                "kind": "EtcdCluster",
                "metadata": {
                    "name": "db", "namespace": "n", "uid": "u", "resourceVersion": "1",
                    "annotations": {crate::api::INCARNATION: "nonsense"},
                },
                "spec": {"size": 3},
                "status": status,
            });
            ClusterSeen::of(&serde_json::from_value(cluster).unwrap())
        };
        assert!(cluster(json!({"incarnation": 1})).holds_data, "it takes the place of one that has served");
        assert!(cluster(json!({"incarnation": 1, "clusterID": "c1"})).holds_data);
        assert!(cluster(json!({"clusterID": "c1"})).holds_data);
        assert!(!cluster(json!({})).holds_data);
    }
}
