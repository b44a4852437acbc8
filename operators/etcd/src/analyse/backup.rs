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

/// Keeps it, or removes it when nobody asks for it any more; what it has stored stays. This is for the end of a plan, and
/// only if nothing that can do harm is to be done: should the API server refuse the EtcdBackup, because somebody has
/// one of that name, then members are looked after all the same.
pub(super) fn look_after(plan: &mut Plan<Change>, seen: &Seen) {
    if plan.steps.iter().any(|planned| planned.step.is_destructive()) {
        return;
    }
    match &seen.cluster.spec.backup {
        None => plan.prune(&seen.backups, |_| false),
        Some(wish) => {
            if let Some(wish) = backup(&seen.cluster, wish) {
                plan.apply(&wish, "spec.backup asks for it");
            }
        }
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
