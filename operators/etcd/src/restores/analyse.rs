//! Analyse: from what was seen of an EtcdRestore to what is to be done. Pure.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use serde_json::json;
use wheelhouse::{
    Event, Plan, Step,
    jiff::{SignedDuration, Timestamp},
    plan::{Condition, ConditionStatus, Conditions},
};

use super::{ClusterSeen, Deed, Seen, checker};
use crate::{
    api::{
        EtcdCluster, EtcdClusterSpec, SCOPE,
        backup::{Content, EtcdRestoreStatus, RESTORE, RestoreFrom, RestorePhase, Trouble},
    },
    backup::Outcome,
    version::Version,
};

/// The first pause before a backup that could not be read is read again; each is twice as long as the one before.
const FIRST_PAUSE: i64 = 5;
/// The longest.
const LONGEST_PAUSE: i64 = 120;
/// What was written is looked at again so soon.
const SOON: Duration = Duration::from_millis(50);

/// How it goes on.
enum Turn {
    /// This is what there is to say, and nothing else to do.
    Say(RestorePhase, &'static str, String),
    /// The cluster is made, with what it is to begin from.
    Create(Box<EtcdCluster>),
    /// The cluster is told what to begin from.
    Tell(Box<ClusterSeen>, RestoreFrom),
}

/// What is to be done about one EtcdRestore.
pub(super) fn analyse(seen: &Seen) -> Plan<Deed> {
    let mut plan = Plan::new();
    if seen.restore.metadata.deletion_timestamp.is_some() || !seen.is_ours {
        return plan;
    }
    let last = seen.restore.status.clone().unwrap_or_default();
    let mut status = last.clone();
    hear(seen, &mut status);
    let turn = match (last.phase, &last.backup) {
        // What was decided for good stays so.
        (Some(phase @ (RestorePhase::Succeeded | RestorePhase::Refused)), _) => {
            Turn::Say(phase, reason_of(&last), last.reason.clone())
        }
        _ if status.phase == Some(RestorePhase::Refused) => {
            Turn::Say(RestorePhase::Refused, "BadBackup", status.reason.clone())
        }
        (_, None) => checking(seen, &mut plan, &status, &last),
        (_, Some(backup)) => restoring(seen, &last, backup),
    };
    let (phase, reason, message) = match turn {
        Turn::Say(phase, reason, message) => (phase, reason, message),
        Turn::Create(cluster) => {
            let name = cluster.name_any();
            plan.act(Deed::CreateCluster(cluster), "the backup is good, and there is no such cluster");
            (RestorePhase::Restoring, "Restoring", format!("EtcdCluster {name} is made from the backup"))
        }
        Turn::Tell(cluster, from) => {
            let name = cluster.reference.name.clone();
            let fields = json!({"metadata": {"annotations": {RESTORE: json!(from).to_string()}}});
            let step = Step::Update { target: cluster.reference, fields };
            plan.step(step, "the backup is good, and the cluster is to begin from it");
            (
                RestorePhase::Restoring,
                "Restoring",
                format!("EtcdCluster {name} is asked to begin from the backup"),
            )
        }
    };
    remember_cluster(seen, &mut status);
    remove_checker(seen, &mut plan, &last);
    tell(&mut plan, &last, phase, &message);
    status.phase = Some(phase);
    status.succeeded = phase == RestorePhase::Succeeded;
    status.reason.clone_from(&message);
    status.observed_generation = seen.restore.metadata.generation;
    let mut conditions = Conditions::from_last(&last.conditions, seen.restore.metadata.generation, seen.now);
    conditions.set(verified(&status));
    conditions.set(Condition {
        kind: "Ready",
        status: status.succeeded.into(),
        reason: reason.to_owned(),
        message: with_failure(seen, message),
    });
    status.conditions = conditions.into_vec();
    if status.backup != last.backup || status.failure != last.failure || status.phase != last.phase {
        plan.look_again_after(SOON);
    }
    plan.set_status(&status);
    plan
}

fn with_failure(seen: &Seen, message: String) -> String {
    match &seen.last_failure {
        Some(failure) => format!("{message}; the last attempt failed: {}", failure.message),
        None => message,
    }
}

/// The reason that was given before.
fn reason_of(last: &EtcdRestoreStatus) -> &'static str {
    let known =
        last.conditions.iter().find(|known| known.type_ == "Ready").map(|known| known.reason.as_str());
    let reasons = ["Restored", "BadBackup", "HasData", "TooNew", "ClusterGone", "Invalid"];
    reasons.into_iter().find(|reason| known == Some(*reason)).unwrap_or("Refused")
}

/// Takes what the pod said into the status.
fn hear(seen: &Seen, status: &mut EtcdRestoreStatus) {
    let Some((checker, ended)) = seen.checker.as_ref().and_then(|pod| Some((pod, pod.ended.as_ref()?)))
    else {
        return;
    };
    match &ended.outcome {
        Outcome::Good { content, .. } if status.backup.is_none() => {
            status.backup = Some(content.clone());
            status.failure = None;
        }
        Outcome::Refused { message } if status.backup.is_none() => {
            status.phase = Some(RestorePhase::Refused);
            status.reason.clone_from(message);
        }
        Outcome::Failed { message } => {
            let known = status.failure.as_ref();
            if known.is_none_or(|known| known.pod != checker.reference.uid) {
                status.failure = Some(Trouble {
                    attempts: known.map_or(0, |known| known.attempts) + 1,
                    at: ended.at,
                    message: message.clone(),
                    refused: false,
                    pod: checker.reference.uid.clone(),
                });
            }
        }
        _ => {}
    }
}

fn checking(
    seen: &Seen,
    plan: &mut Plan<Deed>,
    status: &EtcdRestoreStatus,
    last: &EtcdRestoreStatus,
) -> Turn {
    let Some(place) = seen.restore.spec.place() else {
        let why = "spec says no place, or two: either s3 or volume".to_owned();
        return Turn::Say(RestorePhase::Refused, "Invalid", why);
    };
    if seen.checker.is_none() && status.backup.is_none() && may_try_at(last) <= seen.now {
        plan.create(&checker(&seen.restore, &place, &seen.image), "the backup is to be verified first");
    }
    let waits = seen.checker.as_ref().and_then(|pod| pod.waits_for.as_ref());
    let message = match (&status.failure, waits) {
        (Some(failure), _) => format!("the backup cannot be read, and is tried again: {}", failure.message),
        (None, Some(why)) => format!("the backup is to be verified by a pod, which waits: {why}"),
        (None, None) => "the backup is being verified".to_owned(),
    };
    Turn::Say(RestorePhase::Checking, "Checking", message)
}

fn may_try_at(last: &EtcdRestoreStatus) -> Timestamp {
    let Some(failure) = &last.failure else { return Timestamp::MIN };
    let doubled = FIRST_PAUSE << failure.attempts.saturating_sub(1).min(10);
    let pause = SignedDuration::from_secs(doubled.min(LONGEST_PAUSE));
    failure.at.saturating_add(pause).unwrap_or(Timestamp::MAX)
}

/// What becomes of a backup that is good.
fn restoring(seen: &Seen, last: &EtcdRestoreStatus, backup: &Content) -> Turn {
    let spec = &seen.restore.spec;
    let name = &spec.etcd_cluster.name;
    let (uid, refuse) =
        (seen.restore.uid().unwrap_or_default(), |reason, why| Turn::Say(RestorePhase::Refused, reason, why));
    let wait = |reason, why| Turn::Say(RestorePhase::Waiting, reason, why);
    let Some(place) = spec.place() else { return refuse("Invalid", "spec says no place".to_owned()) };
    let from = RestoreFrom {
        name: seen.restore.name_any(),
        uid: uid.clone(),
        place,
        sha256: backup.sha256.clone(),
        revision: backup.revision,
        in_place: spec.in_place,
    };
    let has_data = |name: &str| {
        format!(
            "EtcdCluster {name} has data, and is left alone: restore into another one, or say inPlace: true, and lose what was written since the backup"
        )
    };
    let Some(cluster) = &seen.cluster else {
        return match (&last.cluster_uid, &spec.template) {
            (Some(_), _) => refuse("ClusterGone", format!("EtcdCluster {name} was deleted meanwhile")),
            (None, None) => wait(
                "NoCluster",
                format!(
                    "the backup is good, and there is no EtcdCluster {name}: make it, or a restore with a template"
                ),
            ),
            (None, Some(template)) => match too_new(backup, &template.version) {
                Some(why) => refuse("TooNew", why),
                None => Turn::Create(Box::new(new_cluster(seen, template, &from))),
            },
        };
    };
    if last.cluster_uid.as_ref().is_some_and(|known| *known != cluster.reference.uid) {
        return refuse("ClusterGone", format!("EtcdCluster {name} is another by now"));
    }
    let is_done = |uid: &str| cluster.restored.as_ref().is_some_and(|restored| restored.restore == uid);
    match &cluster.asked {
        _ if is_done(&uid) => {
            let message = format!("EtcdCluster {name} runs with the data of revision {}", backup.revision);
            return Turn::Say(RestorePhase::Succeeded, "Restored", message);
        }
        // It began before it was asked.
        Some(asked) if asked.uid == uid && cluster.has_begun && !asked.in_place => {
            return refuse("HasData", has_data(name));
        }
        Some(asked) if asked.uid == uid => {
            let paused = if cluster.paused { ", which is paused" } else { "" };
            let message =
                format!("waiting for EtcdCluster {name}{paused}, which is to begin from the backup");
            return Turn::Say(RestorePhase::Restoring, "Restoring", message);
        }
        Some(asked) if !is_done(&asked.uid) => {
            return wait("AnotherRestore", format!("EtcdRestore {} is under way there", asked.name));
        }
        _ => {}
    }
    match () {
        // It was asked, and somebody took that back.
        () if last.phase == Some(RestorePhase::Restoring)
            && last.cluster_uid.is_some()
            && cluster.asked.is_none() =>
        {
            refuse("Invalid", format!("somebody took the annotation {RESTORE} off EtcdCluster {name}"))
        }
        () if cluster.reference.terminating => {
            wait("ClusterGoes", format!("EtcdCluster {name} is being deleted"))
        }
        () if cluster.has_begun && !spec.in_place => refuse("HasData", has_data(name)),
        () => match too_new(backup, &cluster.version) {
            Some(why) => refuse("TooNew", why),
            None => Turn::Tell(Box::new(cluster.clone()), from),
        },
    }
}

/// etcd reads what an older one wrote, and not the other way round.
fn too_new(backup: &Content, runs: &str) -> Option<String> {
    let (made_by, runs) = backup.etcd_version.zip(runs.parse::<Version>().ok())?;
    let is_newer = (made_by.major, made_by.minor) > (runs.major, runs.minor);
    is_newer.then(|| {
        format!("the backup was made by etcd {made_by}, and the cluster runs {runs}: let it run {made_by} or newer")
    })
}

fn new_cluster(seen: &Seen, template: &EtcdClusterSpec, from: &RestoreFrom) -> EtcdCluster {
    let mut cluster = EtcdCluster::new(&seen.restore.spec.etcd_cluster.name, template.clone());
    let mut annotations = BTreeMap::from([(RESTORE.to_owned(), json!(from).to_string())]);
    // Whoever looks after the restore looks after the cluster.
    if let Some(scope) = seen.restore.annotations().get(SCOPE) {
        annotations.insert(SCOPE.to_owned(), scope.clone());
    }
    cluster.metadata.annotations = Some(annotations);
    cluster
}

/// The cluster that was asked is this very one, whatever is called like it later.
fn remember_cluster(seen: &Seen, status: &mut EtcdRestoreStatus) {
    let uid = seen.restore.uid();
    let is_ours = |cluster: &&ClusterSeen| cluster.asked.as_ref().map(|asked| &asked.uid) == uid.as_ref();
    if let Some(cluster) = seen.cluster.as_ref().filter(is_ours) {
        status.cluster_uid = Some(cluster.reference.uid.clone());
    }
}

/// The pod goes when what it said is in the status that was read, or when it is time for another attempt.
fn remove_checker(seen: &Seen, plan: &mut Plan<Deed>, last: &EtcdRestoreStatus) {
    let Some(checker) = seen.checker.as_ref().filter(|pod| !pod.reference.terminating) else { return };
    let Some(ended) = &checker.ended else { return };
    let since = match &ended.outcome {
        Outcome::Good { .. } => last.backup.as_ref().map(|_| Timestamp::MIN),
        Outcome::Refused { .. } => (last.phase == Some(RestorePhase::Refused)).then_some(Timestamp::MIN),
        _ => {
            let is_known = last.failure.as_ref().is_some_and(|known| known.pod == checker.reference.uid);
            is_known.then(|| may_try_at(last))
        }
    };
    match since {
        Some(since) if since <= seen.now => {
            plan.delete(checker.reference.clone(), "what it said is in the status");
        }
        Some(since) => {
            let seconds = since.duration_since(seen.now).as_secs().max(0).unsigned_abs();
            plan.look_again_after(Duration::from_secs(seconds + 1));
        }
        None => {}
    }
}

/// What people are told once, when it becomes so.
fn tell(plan: &mut Plan<Deed>, last: &EtcdRestoreStatus, phase: RestorePhase, message: &str) {
    if last.phase == Some(phase) {
        return;
    }
    match phase {
        RestorePhase::Checking | RestorePhase::Waiting => {}
        RestorePhase::Restoring => plan.tell(Event::normal("Restoring", message)),
        RestorePhase::Succeeded => plan.tell(Event::normal("Restored", message)),
        RestorePhase::Refused => plan.tell(Event::warning("Refused", message)),
    }
}

fn verified(status: &EtcdRestoreStatus) -> Condition {
    let (holds, reason, message) = match (&status.backup, status.phase) {
        (Some(backup), _) => (
            ConditionStatus::True,
            "Verified",
            format!("the backup is whole: revision {}, {} bytes", backup.revision, backup.size),
        ),
        (None, Some(RestorePhase::Refused)) => (ConditionStatus::False, "BadBackup", status.reason.clone()),
        (None, _) => (ConditionStatus::Unknown, "Checking", "the backup was not verified yet".to_owned()),
    };
    Condition { kind: "Verified", status: holds, reason: reason.to_owned(), message }
}
