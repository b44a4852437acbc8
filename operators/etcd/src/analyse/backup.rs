//! The EtcdBackup that a cluster's own spec asks for. Pure.

use kube::ResourceExt as _;
use serde_json::json;
use wheelhouse::Plan;

use crate::{
    act::Change,
    api::{
        EtcdCluster, SCOPE,
        backup::{ClusterBackup, EtcdBackup},
    },
    children::CLUSTER_LABEL,
    observe::Seen,
};

/// Keeps it.
pub(super) fn keep(plan: &mut Plan<Change>, seen: &Seen) {
    if let Some(wish) = seen.cluster.spec.backup.as_ref().and_then(|wish| backup(&seen.cluster, wish)) {
        plan.apply(&wish, "spec.backup asks for it");
    }
}

/// Removes it when nobody asks for it any more, and nothing else that can do harm is to be done. What it has
/// stored stays.
pub(super) fn remove(plan: &mut Plan<Change>, seen: &Seen) {
    let is_free = !plan.steps.iter().any(|planned| planned.step.is_destructive());
    if is_free && seen.cluster.spec.backup.is_none() {
        plan.prune(&seen.backups, |_| false);
    }
}

fn backup(cluster: &EtcdCluster, wish: &ClusterBackup) -> Option<EtcdBackup> {
    let name = cluster.name_any();
    let mut spec = json!(wish);
    wheelhouse::overrides::merge(&mut spec, &json!({"cluster": name}));
    let mut backup = EtcdBackup::new(&name, serde_json::from_value(spec).ok()?);
    backup.metadata.labels =
        Some([("app".to_owned(), "etcd".to_owned()), (CLUSTER_LABEL.to_owned(), name)].into());
    let scope = cluster.annotations().get(SCOPE).map(|scope| (SCOPE.to_owned(), scope.clone()));
    backup.metadata.annotations = Some(scope.into_iter().collect());
    Some(backup)
}
