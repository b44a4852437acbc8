//! What people are told about a cluster. Pure.
//!
//! What has not been asked yet, because this process or a pod has just started, is no news: it stays
//! as it was.

use std::collections::BTreeMap;

use wheelhouse::{
    Event,
    plan::{Condition, ConditionStatus, Conditions},
};

use super::{
    New, alarms,
    anew::{Aftermath, aftermath, furthest, gone_since},
    certificates, defragmentation, versions, volumes,
};
use crate::{
    api::{EtcdClusterStatus, MembersStatus, Phase, QuorumLoss, Restored},
    children::{self, quorum},
    layout,
    observe::{PodSeen, PodWait},
    view::{Member, View},
};

const AVAILABLE: &str = "Available";
const COMPLETE: &str = "Complete";
pub(super) const READY: &str = "Ready";

pub(super) fn status(view: &View<'_>, new: &New) -> EtcdClusterStatus {
    let cluster = &view.seen.cluster;
    let generation = cluster.metadata.generation;
    let last = cluster.status.clone().unwrap_or_default();
    let counted: Vec<_> = view.members.iter().filter(|member| counts(member)).collect();
    let (ready, unready): (Vec<_>, Vec<_>) = counted.iter().partition(|member| is_ready(member, &last));
    let names = |members: &[&&Member<'_>]| members.iter().map(|member| member.name.clone()).collect();
    let members = MembersStatus { ready: names(&ready), unready: names(&unready) };
    let size = count(view.voter_count());
    let answering = view.members.iter().filter(|member| member.is_healthy());
    let current =
        answering.filter_map(|member| member.answer()?.version).min().map(|version| version.to_string());
    // What is to begin anew reads what that one wrote.
    let current_version = current.unwrap_or(last.current_version.clone());
    let wanted = view.wanted_version().map(|version| version.to_string()).unwrap_or_default();
    let target_version = if current_version == wanted { String::new() } else { wanted };
    let availability = availability(view, &last);
    let readiness = readiness(view, new, &members, &availability);
    let mut conditions = Conditions::from_last(&last.conditions, generation, view.seen.now);
    conditions.set(durability(view));
    conditions.set(strangers(view, &last));
    conditions.set(alarms::condition(view));
    conditions.set(completeness(view, &last));
    conditions.set(defragmentation::condition(view));
    let others = [certificates::condition(view, &last), versions::condition(view), volumes::condition(view)];
    for condition in others.into_iter().flatten() {
        conditions.set(condition);
    }
    conditions.set(availability.clone());
    conditions.set(readiness);
    EtcdClusterStatus {
        phase: Some(phase(view, &last, &availability)),
        observed_generation: generation,
        size,
        ready_members: count(members.ready.len()),
        members,
        current_version,
        target_version,
        service_name: children::client_service_name(&view.name),
        client_port: i32::from(layout::CLIENT_PORT),
        selector: format!("app=etcd,{}={}", children::CLUSTER_LABEL, view.name),
        cluster_id: view.cluster_id(),
        incarnation: view.incarnation.number,
        restored: restored(view, &last),
        // Not of those that are about to be made: that may fail.
        last_ordinal: view.last_ordinal(),
        unreachable: unreachable(view, &last),
        quorum_gone_since: gone_since(view, &last),
        conditions: conditions.into_vec(),
    }
}

/// What people are told once, when it becomes so.
pub(super) fn events(view: &View<'_>, status: &EtcdClusterStatus) -> Vec<Event> {
    let last = view.seen.cluster.status.clone().unwrap_or_default();
    status.conditions.iter().filter_map(|now| event(last_condition(&last, &now.type_), now)).collect()
}

type Told = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

fn event(before: Option<&Told>, now: &Told) -> Option<Event> {
    let was = |status: &str| before.is_some_and(|before| before.status == status);
    let is_same = before.is_some_and(|before| before.reason == now.reason);
    let is_same_result = is_same && before.is_some_and(|before| before.message == now.message);
    match (now.type_.as_str(), now.reason.as_str()) {
        (AVAILABLE, _) if now.status == "True" && !was("True") => {
            Some(Event::normal("Available", "A quorum of the members answers"))
        }
        (AVAILABLE, _) if now.status == "False" && was("True") => {
            Some(Event::warning("QuorumLost", now.message.clone()))
        }
        (alarms::NO_ALARM, reason) if now.status == "False" && !is_same => {
            Some(Event::warning(reason, now.message.clone()))
        }
        (alarms::NO_ALARM, _) if was("False") && now.status == "True" => {
            Some(Event::normal("AlarmGone", "No member complains any more"))
        }
        (defragmentation::DEFRAGMENTED, "Done") if !is_same_result => {
            Some(Event::normal("Defragmented", now.message.clone()))
        }
        (defragmentation::DEFRAGMENTED, "Failed") if !is_same_result => {
            Some(Event::warning("DefragmentationFailed", now.message.clone()))
        }
        _ => None,
    }
}

/// The restore that this incarnation began with, once it has.
fn restored(view: &View<'_>, last: &EtcdClusterStatus) -> Option<Restored> {
    let requested = view.incarnation.restore.as_ref().filter(|_| view.has_begun());
    match (requested, &last.restored) {
        (Some(requested), Some(restored)) if restored.restore == requested.uid => Some(restored.clone()),
        (Some(requested), _) => {
            Some(Restored { restore: requested.uid.clone(), revision: requested.revision, at: view.seen.now })
        }
        (None, known) => known.clone(),
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A member that etcd lists, or that is to be one.
fn counts(member: &Member<'_>) -> bool {
    member.listed.is_some() || member.is_kept()
}

/// Whether a member answers; or, if it has not been asked yet, did.
fn is_ready(member: &Member<'_>, last: &EtcdClusterStatus) -> bool {
    let was_ready = last.members.ready.contains(&member.name);
    match member.pod {
        Some(pod) if pod.etcd.is_not_asked_yet() => was_ready && pod.ready,
        // Who the members are is being asked, and it answers.
        Some(pod) if member.listed.is_none() => {
            was_ready
                && !pod.reference.terminating
                && pod.etcd.value().is_some_and(|answer| answer.leader.is_some())
        }
        _ => member.is_healthy(),
    }
}

/// Since when nobody reaches members that etcd lists. The clock runs only while a quorum answers, so that it
/// is not this operator that reaches nobody; and kubelet's word that a pod is ready counts, too.
fn unreachable(view: &View<'_>, last: &EtcdClusterStatus) -> BTreeMap<String, wheelhouse::jiff::Timestamp> {
    let listed = view.members.iter().filter(|member| match view.seen.members.is_not_asked_yet() {
        true => last.unreachable.contains_key(&member.name),
        false => member.listed.is_some(),
    });
    let silent = listed.filter(|member| match member.pod {
        Some(pod) if pod.etcd.is_not_asked_yet() => last.unreachable.contains_key(&member.name),
        Some(pod) if pod.ready => false,
        _ => member.answer().is_none(),
    });
    let since = |name: &String| last.unreachable.get(name).copied().unwrap_or(view.seen.now);
    silent.map(|member| (member.name.clone(), since(&member.name))).collect()
}

fn phase(view: &View<'_>, last: &EtcdClusterStatus, availability: &Condition) -> Phase {
    match () {
        () if !view.has_begun() => Phase::Creating,
        () if availability.reason == "QuorumGone" => Phase::Failed,
        () if availability.status == ConditionStatus::True => Phase::Running,
        () if last.phase == Some(Phase::Creating) => Phase::Creating,
        () => Phase::Running,
    }
}

fn availability(view: &View<'_>, last: &EtcdClusterStatus) -> Condition {
    let condition = |status, reason: &str, message: String| Condition {
        kind: AVAILABLE,
        status,
        reason: reason.to_owned(),
        message,
    };
    if let Some(list) = view.list {
        let voters = list.iter().filter(|listed| !listed.is_learner).count();
        return condition(ConditionStatus::True, "QuorumHolds", format!("{voters} members have a vote"));
    }
    if !view.has_begun() {
        return match &view.incarnation.source {
            Some(source) => condition(
                ConditionStatus::False,
                "Restoring",
                format!("the cluster begins anew from {source}"),
            ),
            None => condition(ConditionStatus::False, "NotBegun", "the cluster has not begun yet".to_owned()),
        };
    }
    if let (true, Some(known)) = (view.seen.members.is_not_asked_yet(), last_condition(last, AVAILABLE)) {
        return condition(status_of(&known.status), &known.reason, known.message.clone());
    }
    let began: Vec<_> = view.members.iter().filter(|member| member.began()).collect();
    let lost: Vec<_> =
        began.iter().filter(|member| member.is_lost()).map(|member| member.name.as_str()).collect();
    let aftermath = aftermath(view);
    // Who has survived knows best how many there were.
    let (could, needed) = match &aftermath {
        Some(aftermath) => (aftermath.left, quorum(aftermath.voters)),
        None => {
            let voters = usize::try_from(last.size).unwrap_or(began.len());
            (began.len() - lost.len(), quorum(voters.max(1)))
        }
    };
    let running = began.iter().filter(|member| member.pod.is_some_and(|pod| pod.phase == "Running")).count();
    match () {
        () if could < needed && !lost.is_empty() => condition(
            ConditionStatus::False,
            "QuorumGone",
            format!(
                "the data of {} is lost, and {could} of the {needed} members that a quorum takes are left: {}",
                lost.join(", "),
                what_now(view, aftermath.as_ref())
            ),
        ),
        () if running < needed => condition(
            ConditionStatus::False,
            "QuorumLost",
            format!("{running} of the {needed} members that a quorum takes are running"),
        ),
        () if view.members.iter().any(|member| member.answer().is_some()) => condition(
            ConditionStatus::False,
            "QuorumLost",
            format!("members answer, and no quorum: {}", view.why_unknown()),
        ),
        () => condition(
            ConditionStatus::Unknown,
            "Unreachable",
            format!("no member answers: {}", view.why_unknown()),
        ),
    }
}

/// What becomes of a cluster that has lost its quorum for good.
fn what_now(view: &View<'_>, aftermath: Option<&Aftermath<'_, '_>>) -> String {
    let recovery = &view.seen.cluster.spec.recovery;
    let left = match aftermath.map(|aftermath| aftermath.survivor) {
        Some(Some((member, position))) => {
            format!("{} has everything up to revision {}", member.name, position.revision)
        }
        Some(None) => match &view.seen.backup {
            Some(backup) => {
                format!("nobody has anything, and the latest backup has revision {}", backup.revision)
            }
            None => "nobody has anything, and there is no backup".to_owned(),
        },
        None => "not everybody can be asked what is left".to_owned(),
    };
    let survivor = aftermath.and_then(|aftermath| aftermath.survivor);
    // Who was made ready for something else would begin it from that.
    let comes_first = view.request.is_some() || view.coming.iter().any(|member| !member.is_to_go());
    let then = match recovery.quorum_loss {
        QuorumLoss::Wait => "nothing is written or removed until somebody decides".to_owned(),
        // Another pod cannot read what is in this one.
        QuorumLoss::Restore if survivor.is_some_and(|(member, _)| member.volume.is_none()) => {
            "its data is in its pod, from where no other can begin: restore a backup in place".to_owned()
        }
        QuorumLoss::Restore if comes_first => {
            "a restore that was asked for is prepared, or cleared away, first".to_owned()
        }
        QuorumLoss::Restore => format!(
            "if that is certain for {} s, the cluster begins anew from what is left",
            recovery.restore_after_seconds
        ),
    };
    format!("{left}{}; {then}", furthest(view))
}

/// Whether anything is known to be lost.
fn completeness(view: &View<'_>, last: &EtcdClusterStatus) -> Condition {
    // Somebody took off what it began from: what was said of that stays true.
    if let (1.., None, Some(known)) =
        (view.incarnation.number, &view.incarnation.source, last_condition(last, COMPLETE))
    {
        return Condition {
            kind: COMPLETE,
            status: status_of(&known.status),
            reason: known.reason.clone(),
            message: known.message.clone(),
        };
    }
    let is_whole = view.incarnation.source.is_none();
    Condition {
        kind: COMPLETE,
        status: is_whole.into(),
        reason: if is_whole { "NothingLost" } else { "BegunAnew" }.to_owned(),
        message: match &view.incarnation.source {
            None => "nothing that was acknowledged is known to be lost".to_owned(),
            Some(source) => format!("the cluster began anew from {source}: {}", view.incarnation.loss),
        },
    }
}

/// How a restore that is asked for comes along, if there is one.
fn preparation(view: &View<'_>) -> Option<String> {
    let request = view.request.as_ref()?;
    // It may have data by now, which this may not take the place of.
    if let Some(first) = view.members.iter().find(|member| !request.in_place && member.may_have_served()) {
        return Some(format!(
            "the restore {} waits: {} began before, and has not said yet what it has; another restore with inPlace: true would let that go, once this one is deleted",
            request.name, first.name
        ));
    }
    if let Some(member) = view.stuck().filter(|_| !view.is_without_a_list()) {
        return Some(format!(
            "the restore {} waits: the pod of {} was to be gone and is not, and nobody begins beside it; it goes on once {} is replaced, or that pod is gone: if its node is gone for good, delete the Node, and the pod goes with it",
            request.name, member.name, member.name
        ));
    }
    let said = view.coming.iter().filter(|member| !member.is_to_go()).map(how_it_prepares).next();
    let said = said.unwrap_or_else(|| "its pod is made".to_owned());
    Some(format!("the restore {} is being prepared: {said}", request.name))
}

/// A member that is waited for, and why no node takes it, if none does: nothing comes of waiting then. What else a pod waits
/// for passes.
fn with_what_it_waits_for(view: &View<'_>, name: &str) -> String {
    match view.member(name).and_then(|member| member.pod?.waits_for.as_ref()) {
        Some(PodWait::Node(why)) => format!("{name} ({why})"),
        _ => name.to_owned(),
    }
}

/// A pod that is waited for; and since when in vain, if it is.
fn how_it_goes(view: &View<'_>, pod: &PodSeen) -> String {
    let name = &pod.reference.name;
    match pod.gone_by.filter(|by| *by <= view.seen.now) {
        Some(by) => format!(
            "{name} (it was to be gone by {by}: if its node is gone for good, delete the Node, and the pod goes with it)"
        ),
        None => name.clone(),
    }
}

/// How far a member is that is to begin anew: as its supervisor says; or why its pod has none yet.
fn how_it_prepares(member: &Member<'_>) -> String {
    let Some(pod) = member.pod else { return "its pod is made".to_owned() };
    let said = member.record.filter(|record| record.status.pod == pod.reference.uid);
    let said = said.map(|record| record.status.message.as_str()).filter(|message| !message.is_empty());
    match (said, &pod.waits_for) {
        (Some(said), _) => said.to_owned(),
        (None, Some(why)) => format!("its pod has not started: {why}"),
        (None, None) => "its pod starts".to_owned(),
    }
}

/// What it waits for, if it does.
fn readiness(view: &View<'_>, new: &New, members: &MembersStatus, availability: &Condition) -> Condition {
    let cluster = &view.seen.cluster;
    let condition = |reason: &str, message: String| Condition {
        kind: READY,
        status: (reason == "Ready").into(),
        reason: reason.to_owned(),
        message,
    };
    let ready = members.ready.len();
    let waiting = format!("{ready} of {} members are ready", view.size);
    let for_whom = match members.unready.is_empty() {
        true => String::new(),
        false => {
            let who = members.unready.iter().map(|name| with_what_it_waits_for(view, name));
            format!("; waiting for {}", who.collect::<Vec<_>>().join(", "))
        }
    };
    let listed = view.members.iter().filter(|member| member.listed.is_some()).count();
    let listed = if view.list.is_some() { listed } else { ready };
    // That a volume may not become larger is told elsewhere.
    let failure = view.seen.last_failure.as_ref().filter(|failure| !volumes::is_refusal(failure));
    match () {
        () if cluster.spec.paused => {
            condition("Paused", "the operator keeps its hands off this cluster: spec.paused".to_owned())
        }
        () if view.wanted_version().is_none() => {
            condition("Invalid", format!("{} is no version of etcd", cluster.spec.version))
        }
        () if view.confusion.is_some() => condition("Invalid", view.confusion.clone().unwrap_or_default()),
        () if view.waits_for_former_pods() => {
            let pods: Vec<_> = view.former_pods().map(|pod| how_it_goes(view, pod)).collect();
            condition(
                "Restoring",
                format!("waiting until these pods of before are gone: {}", pods.join(", ")),
            )
        }
        () if new.problem.is_some() => condition("Invalid", new.problem.clone().unwrap_or_default()),
        () if ready < view.size && certificates::problem(view).is_some() => {
            condition("CertificatesMissing", certificates::problem(view).unwrap_or_default())
        }
        () if failure.is_some() => {
            let why = failure.map(|failure| failure.message.clone()).unwrap_or_default();
            condition("Failing", format!("{waiting}{for_whom}; the last attempt failed: {why}"))
        }
        () if preparation(view).is_some() => condition("Restoring", preparation(view).unwrap_or_default()),
        () if !view.has_begun() => match &view.incarnation.source {
            Some(source) => {
                let seed = view.members.iter().find(|member| !member.is_to_go());
                let how = seed.map_or_else(String::new, |seed| format!(": {}", how_it_prepares(seed)));
                condition("Restoring", format!("the cluster begins anew from {source}{how}"))
            }
            None => condition("Creating", format!("{waiting}{for_whom}")),
        },
        () if availability.status != ConditionStatus::True => {
            condition(&availability.reason, availability.message.clone())
        }
        () if !view.strangers.is_empty() => condition(
            "Strangers",
            format!(
                "{waiting}; nobody joins while members that were not made here are among them: see MembersKnown"
            ),
        ),
        () if listed > view.size => {
            condition("Scaling", format!("{listed} members, {} are wanted", view.size))
        }
        () if ready < view.size && view.members.iter().any(Member::is_lost) => {
            let lost = view.members.iter().find(|member| member.is_lost());
            let why = lost.map(|member| format!("; {}: {}", member.name, member.loss())).unwrap_or_default();
            condition("Recovering", format!("{waiting}{why}"))
        }
        () if listed < view.size => condition("Scaling", format!("{waiting}{for_whom}")),
        () if ready < view.size && defragmentation::who(view).is_some() => {
            condition("Defragmenting", format!("{waiting}{for_whom}; one writes its data anew"))
        }
        () if ready < view.size => condition("Recovering", format!("{waiting}{for_whom}")),
        () if versions::is_changing(view) => {
            condition("Upgrading", format!("on the way to {}", cluster.spec.version))
        }
        () => condition("Ready", format!("{ready} members are ready")),
    }
}

fn durability(view: &View<'_>) -> Condition {
    let in_pods = view.seen.cluster.spec.storage.empty_dir;
    let stays = match certificates::can_lose_a_pod(view) {
        true => "",
        false => {
            "; of one or two members nobody can be replaced so, and their pods are left as they are, whatever is wanted of them"
        }
    };
    Condition {
        kind: "Durable",
        status: (!in_pods).into(),
        reason: if in_pods { "EmptyDir" } else { "Volumes" }.to_owned(),
        message: match in_pods {
            true => format!(
                "the data is in the pods: a member whose pod is deleted has lost its data and is replaced, and if most pods go at once, everything is lost{stays}"
            ),
            false => "the data is on volumes".to_owned(),
        },
    }
}

fn strangers(view: &View<'_>, last: &EtcdClusterStatus) -> Condition {
    let kind = "MembersKnown";
    let condition = |status, reason: &str, message: String| Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message,
    };
    if let (true, Some(known)) = (view.seen.members.is_not_asked_yet(), last_condition(last, kind)) {
        return condition(status_of(&known.status), &known.reason, known.message.clone());
    }
    if view.list.is_none() {
        let message = "no quorum has said who the members are".to_owned();
        return condition(ConditionStatus::Unknown, "NoQuorum", message);
    }
    let names: Vec<_> =
        view.strangers.iter().map(|listed| format!("{} ({})", listed.id, listed.name)).collect();
    match names.is_empty() {
        true => {
            let message = "every member that etcd lists was made by this operator".to_owned();
            condition(ConditionStatus::True, "MadeHere", message)
        }
        false => {
            let names = names.join(", ");
            let message =
                format!("these members were not made by this operator, and are left alone: {names}");
            condition(ConditionStatus::False, "Strangers", message)
        }
    }
}

pub(super) fn last_condition<'a>(last: &'a EtcdClusterStatus, kind: &str) -> Option<&'a Told> {
    last.conditions.iter().find(|known| known.type_ == kind)
}

pub(super) fn status_of(text: &str) -> ConditionStatus {
    match text {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    }
}
