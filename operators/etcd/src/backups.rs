//! The operator of `EtcdBackup`: takes backups when they are due, remembers them, and lets the old ones go.
//!
//! Invariants:
//! - A backup is for a time that its schedule says, and its pod and its file are called after it. So two
//!   operators make one.
//! - What a pod says is in the status before the pod goes.
//! - A file is in the status, in the history or among those that leave, for as long as there is anything of it.
//! - Nothing leaves but what is in the history and not the last good one; or what was begun and given up.

mod analyse;
pub mod children;
pub mod retention;
pub mod schedule;

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    ResourceExt as _,
    core::{Expression, PartialObjectMeta},
};
use serde::{Deserialize, Serialize};
use wheelhouse::{
    Controller, Key, NoAction, Operator, Plan, Result, World, cache::Selection, jiff::Timestamp,
    world::Failure,
};

use crate::{
    Scope,
    api::{EtcdCluster, backup::EtcdBackup},
    children::client_url,
    tls::{Side, Wanted},
    worker::{BACKUP_LABEL, WorkerSeen, WorkerView},
};

/// The operator of backups.
pub struct EtcdBackups {
    /// Which resources it looks after.
    pub scope: Scope,
    /// The image with the program that takes them.
    pub image: String,
}

/// The world as this operator has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub backup: EtcdBackup,
    /// Whether this operator looks after it.
    pub is_ours: bool,
    /// The image with the program that takes backups.
    pub image: String,
    /// The URLs of the members that answer; why there are none.
    pub source: std::result::Result<Vec<String>, String>,
    /// The Secret by which the members know their clients, if they ask who they are.
    #[serde(default)]
    pub client_secret: Option<String>,
    /// The pods that do its work.
    pub pods: Vec<WorkerSeen>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

impl Operator for EtcdBackups {
    type Resource = EtcdBackup;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, backup: Arc<EtcdBackup>, world: &World<'_>) -> Result<Seen> {
        let (source, client_secret) = match &backup.spec.cluster {
            None => (Ok(backup.spec.etcd_endpoints.clone()), None),
            Some(name) => {
                let cluster = world.get::<EtcdCluster>(name).await?;
                let secret = cluster
                    .as_deref()
                    .and_then(|cluster| Wanted::by(cluster).secrets.get(&Side::Client).cloned());
                (members_of(name, cluster.as_deref()), secret)
            }
        };
        let pods = world.owned::<WorkerView>().await?;
        Ok(Seen {
            is_ours: self.scope.includes(backup.annotations()),
            image: self.image.clone(),
            source,
            client_secret: backup.spec.client_tls_secret.clone().or(client_secret),
            pods: pods.iter().map(|pod| WorkerSeen::of(pod, world.now())).collect(),
            backup: (*backup).clone(),
            last_failure: world.last_failure(),
            now: world.now(),
        })
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

fn members_of(name: &str, cluster: Option<&EtcdCluster>) -> std::result::Result<Vec<String>, String> {
    let Some(cluster) = cluster else { return Err(format!("there is no EtcdCluster {name}")) };
    let (namespace, scheme) = (cluster.namespace().unwrap_or_default(), Wanted::by(cluster).clients());
    let ready = cluster.status.as_ref().map(|status| status.members.ready.clone()).unwrap_or_default();
    match ready.is_empty() {
        true => Err(format!("no member of EtcdCluster {name} is ready")),
        false => Ok(ready.iter().map(|member| client_url(scheme, name, &namespace, member)).collect()),
    }
}

/// The controller of backups.
pub fn controller(operator: EtcdBackups) -> Controller<EtcdBackups> {
    let ours = || Selection::labels(Expression::Exists(BACKUP_LABEL.to_owned()));
    let cluster_of = |backup: &EtcdBackup| {
        let cluster = backup.spec.cluster.iter();
        cluster.map(|name| Key::new(backup.namespace().as_deref(), name)).collect()
    };
    Controller::new(operator)
        .owns_of::<WorkerView>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<ServiceAccount>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<Role>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<RoleBinding>>((), ours(), Vec::new())
        .depends_on::<EtcdCluster, _>(cluster_of)
}
