//! Analyse: from what was seen of an EtcdRestore to what is to be done. Pure.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use wheelhouse::{
    Event, Plan, Reference, Step,
    jiff::{SignedDuration, Timestamp},
    plan::{Condition, ConditionStatus, Conditions},
};

use super::{ClusterSeen, Deed, Seen, checker};
use crate::{
    api::{
        EtcdCluster, EtcdClusterSpec, SCOPE,
        backup::{
            CALLED_OFF, Content, EtcdRestore, EtcdRestoreStatus, RESTORE, RestoreFrom, RestorePhase, Trouble,
        },
    },
    backup::Outcome,
    version::Version,
};

/// The first pause before a backup that could not be read is read again; each is twice as long as the one before.
const FIRST_PAUSE: i64 = 5;
/// The longest.
const LONGEST_PAUSE: i64 = 120;
/// That another restore was deleted is seen so soon.
const WAITED_FOR: SignedDuration = SignedDuration::from_secs(10);
/// What was written is looked at again so soon.
const SOON: Duration = Duration::from_millis(50);

/// A restore that has it does not go before it was called off.
const CALLED_OFF_FIRST: &str = "etcd.database.coreos.com/restore-is-called-off";

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
    // Also where it is somebody else's by now: whoever holds it lets it go.
    if seen.restore.metadata.deletion_timestamp.is_some() {
        if seen.is_ours || is_held(&seen.restore) {
            call_off(seen, &mut plan);
        }
        return plan;
    }
    if !seen.is_ours {
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
        (_, Some(backup)) => restoring(seen, &mut plan, &last, backup),
    };
    let asks = matches!(turn, Turn::Tell(..));
    let (phase, reason, message) = match turn {
        Turn::Say(phase, reason, message) => (phase, reason, message),
        Turn::Create(cluster) => {
            let name = cluster.name_any();
            plan.act(Deed::CreateCluster(cluster), "the backup is good, and there is no such cluster");
            (RestorePhase::Restoring, "Restoring", format!("EtcdCluster {name} is made from the backup"))
        }
        Turn::Tell(cluster, from) => {
            let name = cluster.reference.name.clone();
            if cluster.holds_data && !hold(seen, &mut plan) {
                // Who was held before may be deleted by now: under this version it is not.
                let step = Step::Update { target: Reference::of(&seen.restore), fields: json!({}) };
                plan.step(step, "nobody has called it off");
            }
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
    let can_be_spared = who_can_be_spared(seen).is_some();
    if can_be_spared {
        // It may have begun only after it was asked.
        hold(seen, &mut plan);
    }
    remove_checker(seen, &mut plan, &last);
    let ends = plan.steps.iter().any(|planned| planned.step.is_destructive());
    // Who waits may have been about to ask.
    if !can_be_spared && !asks && !ends && phase != RestorePhase::Waiting {
        let_go(seen, &mut plan, "it cannot be called off any more");
    }
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

/// The cluster that keeps the data that it has, if this restore is called off now. A new one would begin with nothing instead.
fn who_can_be_spared(seen: &Seen) -> Option<&ClusterSeen> {
    let uid = seen.restore.uid()?;
    who_holds_data(seen).filter(|cluster| cluster.is_asked_for(&uid))
}

/// The cluster, if it has data that this is to take the place of.
fn who_holds_data(seen: &Seen) -> Option<&ClusterSeen> {
    seen.cluster.as_ref().filter(|cluster| cluster.holds_data && seen.restore.spec.in_place)
}

/// Whether it was not held yet.
fn hold(seen: &Seen, plan: &mut Plan<Deed>) -> bool {
    let is_new = !is_held(&seen.restore);
    if is_new {
        let step = Step::AddFinalizer(CALLED_OFF_FIRST.to_owned());
        plan.step(step, "until the cluster begins from the backup this can be called off");
    }
    is_new
}

fn is_held(restore: &EtcdRestore) -> bool {
    restore.finalizers().iter().any(|known| known == CALLED_OFF_FIRST)
}

/// Whether something is decided for good on what the cluster does not say.
pub(super) fn is_decided_by_absence(restore: &EtcdRestore, cluster: Option<&ClusterSeen>) -> bool {
    let (uid, status) = (restore.uid().unwrap_or_default(), restore.status.clone().unwrap_or_default());
    let is_over = matches!(status.phase, Some(RestorePhase::Succeeded | RestorePhase::Refused));
    let was_asked = is_held(restore) || status.cluster_uid.is_some() && !is_over;
    was_asked && !cluster.is_some_and(|cluster| cluster.is_asked_for(&uid) || cluster.is_begun_with(&uid))
}

/// The other restore that the cluster is asked for, if this one would have to wait for it.
pub(super) fn comes_first<'a>(restore: &EtcdRestore, cluster: &'a ClusterSeen) -> Option<&'a RestoreFrom> {
    let status = restore.status.as_ref().filter(|status| status.cluster_uid.is_none())?;
    let is_verified = status.backup.is_some() && status.phase != Some(RestorePhase::Refused);
    let other = cluster.asked.as_ref().filter(|asked| Some(&asked.uid) != restore.uid().as_ref())?;
    (is_verified && !cluster.is_begun_with(&other.uid)).then_some(other)
}

/// Somebody has deleted it: the cluster is not asked any more, if what it has is still there. It is written to also
/// if it is not asked, so that nobody asks it on what was seen before.
fn call_off(seen: &Seen, plan: &mut Plan<Deed>) {
    let uid = seen.restore.uid().unwrap_or_default();
    let is_open = |cluster: &&ClusterSeen| {
        let may_be_asked = is_held(&seen.restore) && cluster.called_off.as_ref() != Some(&uid);
        cluster.is_asked_for(&uid) || may_be_asked && !cluster.is_begun_with(&uid)
    };
    if let Some(cluster) = who_holds_data(seen).filter(is_open) {
        let name = &cluster.reference.name;
        plan.tell(Event::normal("CalledOff", format!("EtcdCluster {name} keeps the data that it has")));
        let mut annotations = json!({CALLED_OFF: uid});
        if cluster.is_asked_for(&uid) {
            wheelhouse::overrides::merge(&mut annotations, &json!({RESTORE: Value::Null}));
        }
        let fields = json!({"metadata": {"annotations": annotations}});
        let step = Step::Update { target: cluster.reference.clone(), fields };
        plan.step(step, "the restore was deleted before the cluster began from it");
    }
    let_go(seen, plan, "the cluster is not asked for it");
}

fn let_go(seen: &Seen, plan: &mut Plan<Deed>, because: &str) {
    if is_held(&seen.restore) {
        plan.step(Step::RemoveFinalizer(CALLED_OFF_FIRST.to_owned()), because);
    }
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
    let reasons =
        ["Restored", "BadBackup", "HasData", "TooNew", "ClusterGone", "Invalid", "TakenBack", "Overtaken"];
    reasons.into_iter().find(|reason| known == Some(*reason)).unwrap_or("Refused")
}

/// Takes what the pod said into the status.
fn hear(seen: &Seen, status: &mut EtcdRestoreStatus) {
    let Some((checker, ended)) = seen.checker().and_then(|pod| Some((pod, pod.ended.as_ref()?))) else {
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
        Outcome::Failed { message } if status.backup.is_none() => {
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
    let there = seen.checker().filter(|pod| !pod.is_stuck(seen.now));
    if there.is_none() && status.backup.is_none() && may_try_at(last) <= seen.now {
        plan.create(&checker(seen, &place), "the backup is to be verified first");
    }
    if let Some(by) = there.and_then(|pod| pod.gone_by) {
        // By then it is gone, or stuck.
        look_again_at(plan, seen, by);
    }
    let waits = there.and_then(|pod| pod.waits_for.as_ref());
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
fn restoring(seen: &Seen, plan: &mut Plan<Deed>, last: &EtcdRestoreStatus, backup: &Content) -> Turn {
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
        etcd_version: backup.etcd_version,
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
    let paused = if cluster.paused { ", which is paused" } else { "" };
    let is_done = |uid: &str| cluster.restored.as_ref().is_some_and(|restored| restored.restore == uid);
    match &cluster.asked {
        _ if is_done(&uid) => {
            let message = format!("EtcdCluster {name} runs with the data of revision {}", backup.revision);
            return Turn::Say(RestorePhase::Succeeded, "Restored", message);
        }
        // From here there is no way back, whoever asks for what by now.
        _ if cluster.begins_with.as_ref() == Some(&uid) => {
            let message = format!("waiting for EtcdCluster {name}{paused}, which begins from the backup");
            return Turn::Say(RestorePhase::Restoring, "Restoring", message);
        }
        // It was asked for, and is not any more: it does not come back when others are done, with what was before them.
        None if last.cluster_uid.is_some() => {
            return refuse(
                "TakenBack",
                format!("somebody took the annotation {RESTORE} off EtcdCluster {name}"),
            );
        }
        Some(asked) if last.cluster_uid.is_some() && asked.uid != uid => {
            let why = format!("EtcdCluster {name} was asked for EtcdRestore {} instead", asked.name);
            return refuse("Overtaken", why);
        }
        // Where it never comes to an end, whoever says that what there is may go is the way out.
        _ if cluster.begins_with.as_ref().is_some_and(|other| !is_done(other)) && !spec.in_place => {
            return wait("AnotherRestore", "another EtcdRestore is under way there".to_owned());
        }
        // It began before it was asked.
        Some(asked) if asked.uid == uid && cluster.holds_data && !asked.in_place => {
            return refuse("HasData", has_data(name));
        }
        Some(asked) if asked.uid == uid => {
            let way_out = match who_can_be_spared(seen) {
                Some(_) => "; until then deleting this EtcdRestore calls it off",
                None => "",
            };
            let message =
                format!("waiting for EtcdCluster {name}{paused}, which is to begin from the backup{way_out}");
            return Turn::Say(RestorePhase::Restoring, "Restoring", message);
        }
        Some(asked) if !cluster.is_begun_with(&asked.uid) && !cluster.asked_in_vain => {
            look_again_at(plan, seen, seen.now.saturating_add(WAITED_FOR).unwrap_or(Timestamp::MAX));
            let why = "this one goes on when that has ended, or was deleted";
            return wait("AnotherRestore", format!("EtcdRestore {} is under way there: {why}", asked.name));
        }
        _ => {}
    }
    match () {
        () if cluster.reference.terminating => {
            wait("ClusterGoes", format!("EtcdCluster {name} is being deleted"))
        }
        () if cluster.holds_data && !spec.in_place => refuse("HasData", has_data(name)),
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
    let Some(checker) = seen.checker().filter(|pod| !pod.reference.terminating) else { return };
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
        Some(since) => look_again_at(plan, seen, since),
        None => {}
    }
}

fn look_again_at(plan: &mut Plan<Deed>, seen: &Seen, time: Timestamp) {
    let seconds = time.duration_since(seen.now).as_secs().max(0).unsigned_abs();
    plan.look_again_after(Duration::from_secs(seconds + 1));
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use wheelhouse::Kind;

    use super::*;
    use crate::worker::WorkerSeen;

    /// A pod that was to be gone by then; one that stays, if that is not said.
    fn pod(name: &str, gone_by: Option<&str>) -> WorkerSeen {
        let reference = Reference {
            kind: Kind::of::<Pod>(&()),
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
            uid: format!("{name}-uid").replace("back-check", "one"),
            resource_version: "1".to_owned(),
            terminating: gone_by.is_some(),
        };
        WorkerSeen {
            reference,
            generation: Some(1),
            path: None,
            ended: None,
            gone_by: gone_by.map(|time| time.parse().unwrap()),
            is_running: true,
            waits_for: None,
        }
    }

    /// What is seen of a restore with that status, and of the cluster that it is for.
    fn seen(status: Value, cluster: Option<ClusterSeen>) -> Seen {
        let restore = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdRestore",
            "metadata": {"name": "back", "namespace": "n", "uid": "u", "generation": 1},
            "spec": {"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "c", "path": "db"}},
            "status": status,
        });
        Seen {
            restore: serde_json::from_value(restore).unwrap(),
            is_ours: true,
            image: "i".to_owned(),
            cluster,
            checkers: Vec::new(),
            last_failure: None,
            now: "2026-05-02T04:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_check_on_a_node_that_is_gone_is_made_again() {
        let plan = |checkers: Vec<WorkerSeen>| {
            analyse(&Seen { checkers, ..seen(json!({"phase": "Checking"}), None) })
        };
        let made = |checkers: Vec<WorkerSeen>| match plan(checkers).steps.as_slice() {
            [] => None,
            [planned] => Some(planned.step.to_string()),
            steps => panic!("{steps:?}"),
        };
        assert_eq!(made(vec![]).unwrap(), "create Pod back-check");
        let going = || pod("back-check", Some("2026-05-02T04:00:30Z"));
        assert_eq!(made(vec![going()]), None, "it may be gone in a moment");
        assert_eq!(plan(vec![going()]).look_again_after, Some(Duration::from_secs(31)));
        let stuck = |name| pod(name, Some("2026-05-02T03:20:00Z"));
        assert_eq!(made(vec![stuck("back-check")]).unwrap(), "create Pod back-check-one-u");
        assert_eq!(made(vec![stuck("back-check"), pod("back-check-one-u", None)]), None);
    }

    fn asked_for(uid: &str) -> RestoreFrom {
        let place = json!({"volume": {"claim": "c", "path": "db"}});
        let request = json!({
            "name": format!("restore-{uid}"), "uid": uid, "place": place, "sha256": "ab", "revision": 7, "inPlace": true,
        });
        serde_json::from_value(request).unwrap()
    }

    /// A cluster with data: what it was asked for, begins with, and has the data of.
    fn cluster(asked: Option<&str>, begins_with: Option<&str>, done: Option<&str>) -> Option<ClusterSeen> {
        let restored = |uid| json!({"restore": uid, "revision": 7, "at": "2026-05-02T03:00:00Z"});
        Some(ClusterSeen {
            reference: Reference { kind: Kind::of::<EtcdCluster>(&()), ..pod("db", None).reference },
            holds_data: true,
            version: "3.6.16".to_owned(),
            paused: false,
            begins_with: begins_with.map(str::to_owned),
            asked: asked.map(asked_for),
            asked_in_vain: false,
            called_off: None,
            restored: done.map(|uid| serde_json::from_value(restored(uid)).unwrap()),
        })
    }

    /// What a verified restore says, and does.
    fn turn(was_asked: bool, cluster: Option<ClusterSeen>) -> (String, Vec<String>) {
        let content =
            json!({"size": 1, "sha256": "ab", "revision": 7, "etcdVersion": "3.6.16", "clusterID": "c1"});
        let mut status = json!({"phase": "Waiting", "backup": content});
        if was_asked {
            status["clusterUID"] = json!("db-uid");
        }
        let plan = analyse(&seen(status, cluster));
        let told: EtcdRestoreStatus = serde_json::from_value(plan.status.unwrap()).unwrap();
        let ready = told.conditions.into_iter().find(|known| known.type_ == "Ready").unwrap();
        (ready.reason, plan.steps.iter().map(|planned| planned.step.to_string()).collect())
    }

    #[test]
    fn a_restore_that_another_took_the_place_of_does_not_come_back() {
        for (asked, begins_with, done) in
            [(Some("v"), Some("v"), None), (Some("v"), Some("v"), Some("v")), (Some("v"), None, None)]
        {
            let (reason, steps) = turn(true, cluster(asked, begins_with, done));
            assert_eq!((reason.as_str(), steps.len()), ("Overtaken", 0), "{steps:?}");
        }
        assert_eq!(turn(true, cluster(None, Some("v"), Some("v"))).0, "TakenBack");
        assert_eq!(turn(true, cluster(Some("v"), Some("u"), None)).0, "Restoring", "it has begun from it");
    }

    #[test]
    fn in_place_is_the_way_out_of_a_restore_that_never_comes_to_an_end() {
        let (reason, steps) = turn(false, cluster(Some("v"), Some("v"), None));
        assert_eq!(reason, "Restoring");
        assert!(steps.contains(&"update EtcdCluster db".to_owned()), "{steps:?}");
        assert_eq!(turn(false, cluster(Some("v"), None, None)).0, "AnotherRestore", "that one has not begun");
    }

    #[test]
    fn nobody_waits_for_a_restore_that_is_not_there_any_more() {
        let in_vain = |begins_with| {
            cluster(Some("v"), begins_with, None)
                .map(|cluster| ClusterSeen { asked_in_vain: true, ..cluster })
        };
        let (reason, steps) = turn(false, in_vain(None));
        assert_eq!(reason, "Restoring");
        assert!(steps.contains(&"update EtcdCluster db".to_owned()), "{steps:?}");
        let known =
            seen(json!({"phase": "Waiting", "backup": {"size": 1, "sha256": "ab", "revision": 7}}), None);
        let comes_first =
            |cluster: Option<ClusterSeen>| comes_first(&known.restore, &cluster.unwrap()).is_some();
        assert!(comes_first(cluster(Some("v"), None, None)));
        assert!(!comes_first(cluster(Some("v"), Some("v"), None)), "it begins from it");
        assert!(!comes_first(cluster(Some("v"), None, Some("v"))), "it is done");
        assert!(!comes_first(cluster(Some("u"), None, None)), "that is this one");
    }

    #[test]
    fn what_can_be_called_off_is_held_before_its_pod_goes() {
        let content = json!({"size": 1, "sha256": "ab", "revision": 7, "clusterID": "c1"});
        let mut outcome = json!({"outcome": "Good", "path": "db", "at": "2026-05-02T03:30:00Z"});
        wheelhouse::overrides::merge(&mut outcome, &content);
        let ended = json!({"outcome": outcome, "at": "2026-05-02T03:30:00Z"});
        let ended = serde_json::from_value(ended).unwrap();
        let checker = WorkerSeen { ended, is_running: false, ..pod("back-check", None) };
        let status = json!({"phase": "Restoring", "backup": content, "clusterUID": "db-uid"});
        let plan = analyse(&Seen { checkers: vec![checker], ..seen(status, cluster(Some("u"), None, None)) });
        let steps: Vec<_> = plan.steps.iter().map(|planned| planned.step.to_string()).collect();
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(steps[1].starts_with("delete Pod back-check"), "what is destructive comes last: {steps:?}");
    }

    /// A restore that was to ask the cluster, and is held; deleted, or not.
    fn held(is_deleted: bool, cluster: Option<ClusterSeen>) -> Seen {
        let backup = json!({"size": 1, "sha256": "ab", "revision": 7});
        let mut seen = seen(json!({"phase": "Restoring", "backup": backup}), cluster);
        seen.restore.metadata.finalizers = Some(vec![CALLED_OFF_FIRST.to_owned()]);
        let time = is_deleted.then(|| serde_json::from_value(json!("2026-05-02T03:50:00Z")).unwrap());
        seen.restore.metadata.deletion_timestamp = time;
        seen
    }

    fn steps(seen: &Seen) -> Vec<String> {
        analyse(seen).steps.iter().map(|planned| planned.step.to_string()).collect()
    }

    /// It may have been decided on before, by one who looked when nobody had called it off.
    #[test]
    fn a_request_that_is_still_on_its_way_when_it_is_called_off_meets_another_version() {
        let off = format!("remove finalizer {CALLED_OFF_FIRST}");
        for cluster in [cluster(None, None, None), cluster(Some("v"), None, Some("v"))] {
            let mut called_off = held(true, cluster);
            assert_eq!(steps(&called_off), ["update EtcdCluster db", &off]);
            let plan = analyse(&called_off);
            let Step::Update { fields, .. } = &plan.steps[0].step else { panic!("{plan:?}") };
            assert_eq!(fields["metadata"]["annotations"], json!({CALLED_OFF: "u"}));
            called_off.cluster.as_mut().unwrap().called_off = Some("u".to_owned());
            assert_eq!(steps(&called_off), [off.as_str()], "once is enough");
        }
        assert_eq!(steps(&held(true, cluster(Some("u"), Some("u"), None))), [off.as_str()], "it has begun");
        let asking = steps(&held(false, cluster(None, None, None)));
        assert_eq!(
            asking,
            ["update EtcdRestore back", "update EtcdCluster db"],
            "only if nobody calls it off"
        );
    }

    #[test]
    fn what_is_decided_for_good_on_what_is_not_there_is_looked_at_live() {
        let mut seen = seen(json!({"phase": "Restoring", "clusterUID": "db-uid"}), None);
        let decides = |seen: &Seen, cluster: Option<ClusterSeen>| {
            is_decided_by_absence(&seen.restore, cluster.as_ref())
        };
        assert!(decides(&seen, None), "it would be refused: the cluster is gone");
        assert!(decides(&seen, cluster(None, None, None)), "it was taken back");
        assert!(decides(&seen, cluster(Some("v"), None, None)), "another was asked for");
        for known in
            [cluster(Some("u"), None, None), cluster(None, Some("u"), None), cluster(None, None, Some("u"))]
        {
            assert!(!decides(&seen, known), "that is there");
        }
        seen.restore.status.as_mut().unwrap().phase = Some(RestorePhase::Refused);
        assert!(!decides(&seen, None), "it was decided");
        assert!(decides(&held(true, None), cluster(None, None, None)), "it would be let go");
    }

    #[test]
    fn what_is_held_is_let_go_by_whoever_held_it() {
        let mut seen = seen(json!({"phase": "Restoring"}), cluster(Some("u"), None, None));
        seen.is_ours = false;
        assert_eq!(analyse(&seen), Plan::new());
        seen.restore.metadata.finalizers = Some(vec![CALLED_OFF_FIRST.to_owned()]);
        assert_eq!(analyse(&seen), Plan::new());
        seen.restore.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-05-02T03:50:00Z")).unwrap());
        assert_eq!(analyse(&seen).steps.len(), 2, "the cluster is not asked any more, and the restore goes");
    }
}
