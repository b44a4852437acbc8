//! The pods that do the work of backups and restores, as operators see them: each has one container, and says in
//! its termination message what came of it.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use wheelhouse::{Reference, jiff::Timestamp};

use crate::backup::Outcome;

/// The label by which pods of an EtcdBackup are found.
pub const BACKUP_LABEL: &str = "etcd_backup";
/// The label by which pods of an EtcdRestore are found.
pub const RESTORE_LABEL: &str = "etcd_restore";
/// The generation of the resource that a pod was made for.
pub const GENERATION: &str = "etcd.database.coreos.com/generation";

/// The path of the backup that a pod takes.
pub const PATH: &str = "etcd.database.coreos.com/path";

wheelhouse::projection! {
    /// The fields of such a pod that are read.
    pub struct WorkerView of Pod {
        status: WorkerState,
    }
}

/// How such a pod is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerState {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
}

/// A pod that works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSeen {
    /// This very one.
    pub reference: Reference,
    /// The generation of the resource that it was made for.
    #[serde(default)]
    pub generation: Option<i64>,
    /// The path of the backup that it takes, if it takes one.
    #[serde(default)]
    pub path: Option<String>,
    /// What came of it, if it has ended.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// By when it is to be gone, if it goes.
    #[serde(default)]
    pub gone_by: Option<Timestamp>,
    /// Whether its container runs.
    #[serde(default)]
    pub is_running: bool,
    /// What it waits for, if it has not begun.
    #[serde(default)]
    pub waits_for: Option<String>,
}

/// What came of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// What it says; that it failed, if it said nothing.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
}

/// The pods that do the work for which this name stands: of that name, or beside one of it that is stuck.
pub fn of_name<'p>(base: &str, pods: &'p [WorkerSeen]) -> impl Iterator<Item = &'p WorkerSeen> {
    pods.iter().filter(move |pod| {
        pod.reference.name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// Of these pods the one whose word counts: the one that stays, rather than one that goes.
pub fn foremost<'p>(pods: impl Iterator<Item = &'p WorkerSeen>, now: Timestamp) -> Option<&'p WorkerSeen> {
    pods.min_by_key(|pod| (pod.is_stuck(now), pod.reference.terminating))
}

/// The name of the next pod for that work: after whoever has the name and is stuck. It can be told again, so that two operators
/// make one pod.
pub fn name_beside(base: &str, pods: &[WorkerSeen]) -> String {
    let mut uids: Vec<_> = of_name(base, pods).map(|pod| pod.reference.uid.as_str()).collect();
    uids.sort_unstable();
    let beside = uids.into_iter().map(|uid| format!("{base}-{}", uid.chars().take(5).collect::<String>()));
    let is_taken = |name: &String| pods.iter().any(|pod| pod.reference.name == *name);
    std::iter::once(base.to_owned()).chain(beside).find(|name| !is_taken(name)).unwrap_or(base.to_owned())
}

impl WorkerSeen {
    /// Whether it works, or is about to. One that goes does not any more: where nobody reaches its kubelet, it may never be gone.
    pub fn is_at_it(&self) -> bool {
        self.ended.is_none() && !self.reference.terminating
    }

    /// Whether it should be gone by now, and has not said what came of it: nobody reaches its kubelet. It may stay like
    /// that for ever, so its work is another's.
    pub fn is_stuck(&self, now: Timestamp) -> bool {
        self.ended.is_none() && self.gone_by.is_some_and(|by| by < now)
    }

    /// What is known of a pod.
    pub fn of(pod: &WorkerView, now: Timestamp) -> Self {
        let container = pod.status.container_statuses.first().and_then(|container| container.state.as_ref());
        let terminated = container.and_then(|state| state.terminated.as_ref());
        let waiting = container.and_then(|state| state.waiting.as_ref());
        let said = terminated.and_then(|terminated| terminated.message.as_ref());
        let said = said.and_then(|text| serde_json::from_str(text).ok());
        let at = terminated.and_then(|terminated| terminated.finished_at.as_ref()).map_or(now, |time| time.0);
        let ended = match (pod.status.phase.as_deref(), said) {
            (Some("Succeeded"), Some(outcome)) => Some(outcome),
            (Some("Failed"), Some(outcome @ (Outcome::Refused { .. } | Outcome::Failed { .. }))) => {
                Some(outcome)
            }
            (Some("Succeeded" | "Failed"), _) => Some(Outcome::Failed { message: last_words(pod) }),
            _ => None,
        };
        let waits_for = waiting.map(|waiting| {
            let words = [waiting.reason.clone(), waiting.message.clone()];
            words.into_iter().flatten().collect::<Vec<_>>().join(": ")
        });
        Self {
            reference: Reference::of(pod),
            generation: pod.annotations().get(GENERATION).and_then(|text| text.parse().ok()),
            path: pod.annotations().get(PATH).cloned(),
            ended: ended.map(|outcome| Ended { outcome, at }),
            gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            is_running: container.is_some_and(|state| state.running.is_some()),
            waits_for,
        }
    }
}

/// Why a pod ended that did not say so itself.
fn last_words(pod: &WorkerView) -> String {
    let container = pod.status.container_statuses.first().and_then(|container| container.state.as_ref());
    let terminated = container.and_then(|state| state.terminated.as_ref());
    let said = [
        pod.status.reason.clone(),
        pod.status.message.clone(),
        terminated.and_then(|terminated| terminated.reason.clone()),
        terminated.and_then(|terminated| terminated.message.clone()),
    ];
    let said: Vec<_> = said.into_iter().flatten().collect();
    format!("pod {} ended without a word of its own: {}", pod.name_any(), said.join(": "))
}
