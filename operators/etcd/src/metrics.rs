//! What `/metrics` of the operator tells of each cluster: its status, as numbers. What etcd says of itself is
//! told by the members, on the port `metrics` of their pods.

use kube::ResourceExt as _;
use wheelhouse::{
    Mode,
    jiff::Timestamp,
    metrics::{ResourceMetrics, Samples},
};

use crate::{
    Scope,
    api::{EtcdCluster, EtcdClusterStatus},
};

/// The metrics of the clusters that an operator of this scope looks after.
pub(crate) fn of_clusters(scope: Scope) -> ResourceMetrics<EtcdCluster> {
    ResourceMetrics::labelled("cluster")
        .only(move |cluster: &EtcdCluster| scope.includes(cluster.annotations()))
        .gauge("etcd_operator_phase", "1 for the phase that a cluster is in", with_status(phase))
        .gauge("etcd_operator_paused", "1 where the operator keeps its hands off", |cluster, samples| {
            let is_paused = cluster.spec.paused || Mode::of(cluster.annotations()) != Mode::Act;
            samples.tell(u8::from(is_paused));
        })
        .gauge("etcd_operator_members_wanted", "Members that are wanted", |cluster, samples| {
            samples.tell(cluster.spec.size);
        })
        .gauge(
            "etcd_operator_members_voting",
            "Members that have a vote",
            with_status(|status, samples| samples.tell(status.size)),
        )
        .gauge(
            "etcd_operator_members_ready",
            "Members that have a vote, and answer",
            with_status(|status, samples| samples.tell(status.ready_members)),
        )
        .gauge(
            "etcd_operator_unreachable_seconds",
            "For how long nobody has reached the member that is silent for longest; 0 if all answer",
            with_status(|status, samples| {
                let since = status.unreachable.values().min();
                let silent = since.map_or(0.0, |since| Timestamp::now().duration_since(*since).as_secs_f64());
                samples.tell(silent.max(0.0));
            }),
        )
        .gauge(
            "etcd_operator_condition",
            "What a condition of the status says: 1 for True, 0 for False, -1 for Unknown",
            with_status(conditions),
        )
        .counter(
            "etcd_operator_members_made",
            "Members that were ever made; of which each has a number of its own",
            with_status(|status, samples| samples.tell(status.last_ordinal.map_or(0, |last| last + 1))),
        )
        .looks(
            "etcd_operator_last_look_timestamp_seconds",
            "When the operator last looked at a cluster without a failure",
        )
}

/// Of a cluster that has no status yet nothing is told.
fn with_status(tell: impl Fn(&EtcdClusterStatus, &mut Samples)) -> impl Fn(&EtcdCluster, &mut Samples) {
    move |cluster, samples| {
        if let Some(status) = &cluster.status {
            tell(status, samples);
        }
    }
}

fn phase(status: &EtcdClusterStatus, samples: &mut Samples) {
    if let Some(phase) = status.phase {
        samples.tell_as("phase", format!("{phase:?}"), 1);
    }
}

fn conditions(status: &EtcdClusterStatus, samples: &mut Samples) {
    for condition in &status.conditions {
        let value = match condition.status.as_str() {
            "True" => 1,
            "False" => 0,
            _ => -1,
        };
        samples.tell_as("condition", condition.type_.clone(), value);
    }
}
