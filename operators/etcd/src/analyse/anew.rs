//! Another incarnation: when one is to begin, and what becomes of the one before.
//!
//! The invariants are those of `docs/decisions/0021-etcd-incarnations.md`.

use serde_json::{Value, json};
use wheelhouse::{Event, Plan, Reference, Step, jiff::Timestamp, plan::Guard};

use super::{intend, next::remove_remains};
use crate::{
    act::Change,
    api::{EtcdClusterStatus, EtcdMember, INCARNATION, Intent, QuorumLoss, SEED, backup::RestoreFrom},
    children::{self, quorum},
    incarnation::{Incarnation, Requested, Source},
    positions::Position,
    view::{Member, View},
};

/// The record of the member that a restore is prepared on, if it has yet to be made.
pub(super) fn coming(view: &View<'_>) -> Option<EtcdMember> {
    let request = view.request.as_ref()?;
    if !view.coming.is_empty() || view.waits_for_former_pods() {
        return None;
    }
    let number = view.incarnation.number + 1;
    let mut record = children::record(
        &view.seen.cluster,
        view.next_ordinal(),
        Intent::Waiting,
        number,
        view.version_of_new(),
    );
    record.spec.source = Some(source_of(view, request));
    Some(record)
}

/// Clients of a cluster that has served know revisions that the backup does not have.
fn source_of(view: &View<'_>, request: &RestoreFrom) -> Source {
    let has_served = view.has_begun() || view.incarnation.number > 0;
    Source::Backup {
        place: request.place.clone(),
        sha256: request.sha256.clone(),
        moves_revisions: has_served,
    }
}

/// Begins the next incarnation, if its time has come. There is no way back from here.
pub(super) fn begin(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    if view.waits_for_former_pods() {
        return false;
    }
    let (next, because) = match restore(view) {
        Some(next) => (next, "the backup lies ready".to_owned()),
        None => match recovery(view) {
            Some(next) => (next, "the quorum is lost for good".to_owned()),
            None => return false,
        },
    };
    let source = next.source.as_ref().map(ToString::to_string).unwrap_or_default();
    plan.tell(Event::warning(
        "BeginningAnew",
        format!("The cluster begins anew from {source}: {}", next.loss),
    ));
    // What was made here is JSON.
    let text = serde_json::to_string(&next).unwrap_or_default();
    let fields = json!({"metadata": {"annotations": {INCARNATION: text, SEED: Value::Null}}});
    plan.step(Step::Update { target: Reference::of(&view.seen.cluster), fields }, because);
    true
}

/// A restore that is asked for, and whose data lies ready.
fn restore(view: &View<'_>) -> Option<Incarnation> {
    let request = view.request.as_ref()?;
    let source = source_of(view, request);
    let is_ready = |member: &&Member<'_>| {
        member.intent() == Some(Intent::Waiting) && member.source() == Some(&source) && member.is_prepared()
    };
    view.coming.iter().find(is_ready)?;
    let loss = match view.has_begun() {
        true => format!(
            "what was written after the backup of revision {} is gone, as was asked for",
            request.revision
        ),
        false => format!("it has what the backup of revision {} has", request.revision),
    };
    Some(Incarnation {
        number: view.incarnation.number + 1,
        source: Some(source),
        restore: Some(Requested { uid: request.uid.clone(), revision: request.revision }),
        loss,
    })
}

/// A quorum that is lost for good, where people want it to be restored, and have waited for as long as they want to.
fn recovery(view: &View<'_>) -> Option<Incarnation> {
    let policy = &view.seen.cluster.spec.recovery;
    // It was told before anything is done.
    let since = view.seen.cluster.status.as_ref()?.quorum_gone_since?;
    let is_due = view.seen.now.duration_since(since).as_secs() >= policy.restore_after_seconds;
    // Who was made ready for something else would begin it from that.
    let is_clear = view.request.is_none() && view.coming.is_empty();
    if policy.quorum_loss != QuorumLoss::Restore || !is_due || !is_clear {
        return None;
    }
    let (source, loss) = match aftermath(view)?.survivor {
        Some((member, position)) => {
            let source = Source::Survivor {
                member: member.name.clone(),
                claim: member.volume?.reference.name.clone(),
            };
            let loss = format!(
                "everything up to revision {} is kept (committed up to {} of its log), what was acknowledged after that is lost{}",
                position.revision,
                position.index,
                furthest(view)
            );
            (source, loss)
        }
        None => {
            let backup = view.seen.backup.as_ref()?;
            let source = Source::Backup {
                place: backup.place.clone(),
                sha256: backup.sha256.clone(),
                moves_revisions: true,
            };
            let loss = format!(
                "everything up to revision {} is kept, as it was backed up at {}, what was acknowledged after that is lost{}",
                backup.revision,
                backup.at,
                furthest(view)
            );
            (source, loss)
        }
    };
    Some(Incarnation { number: view.incarnation.number + 1, source: Some(source), restore: None, loss })
}

/// What is left of a cluster that cannot have a quorum again.
pub(super) struct Aftermath<'v, 'a> {
    /// Who has most of it, and how far it is; nobody, if everybody has lost everything.
    pub(super) survivor: Option<(&'v Member<'a>, Position)>,
    /// How many with a vote have their data.
    pub(super) left: usize,
    /// How many had a vote.
    pub(super) voters: usize,
}

/// What is left, if it is certain that there can be no quorum again: every member has lost its data, or is known to
/// follow nobody and is one of too few. Who does neither may be behind a partition with the others. Members that were not made here are
/// seen by there being more voters than members of ours.
pub(super) fn aftermath<'v, 'a>(view: &'v View<'a>) -> Option<Aftermath<'v, 'a>> {
    if !view.has_begun() || !view.is_without_a_list() {
        return None;
    }
    let began = view.members.iter().filter(|member| member.began() && member.intent() != Some(Intent::Left));
    let (lost, others): (Vec<_>, Vec<_>) = began.partition(|member| member.is_lost());
    if others.is_empty() {
        let is_everybody = !lost.is_empty() && lost.len() >= view.voter_count();
        return is_everybody.then(|| Aftermath { survivor: None, left: 0, voters: view.voter_count() });
    }
    let position = |member: &&Member<'_>| member.stranded_at();
    if !others.iter().all(|member| position(member).is_some()) {
        return None;
    }
    let has_vote = |member: &&Member<'_>| position(member).is_some_and(|known| !known.is_learner);
    let with_vote: Vec<_> = others.into_iter().filter(has_vote).collect();
    let member = with_vote.iter().copied().max_by_key(position)?;
    let position = position(&member)?;
    // Who is furthest knows best who the members are.
    let (left, voters) = (with_vote.len(), position.voters);
    let is_certain = lost.len() + left >= voters && left < quorum(voters);
    is_certain.then_some(Aftermath { survivor: Some((member, position)), left, voters })
}

/// Since when it is certain without a break that there can be no quorum again.
pub(super) fn gone_since(view: &View<'_>, last: &EtcdClusterStatus) -> Option<Timestamp> {
    let is_being_asked = view.seen.members.is_not_asked_yet() || view.members.iter().any(is_being_asked);
    // What was lost of the incarnation before is none of this one's.
    let known = last.quorum_gone_since.filter(|_| last.incarnation == view.incarnation.number);
    match aftermath(view) {
        Some(_) => known.or(Some(view.seen.now)),
        None if is_being_asked && view.list.is_none() => known,
        None => None,
    }
}

fn is_being_asked(member: &Member<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.etcd.is_not_asked_yet() || pod.standing.is_not_asked_yet())
}

/// How far any member was seen to be, in words.
pub(super) fn furthest(view: &View<'_>) -> String {
    view.seen.furthest.map_or_else(String::new, |seen| {
        format!("; the furthest that was seen was revision {} at {}", seen.position.revision, seen.at)
    })
}

/// What is left of incarnations that have ended: their pods at once, one after the other; their records once
/// this incarnation serves. Their volumes stay.
pub(super) fn end_former(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    if view.waits_for_former_pods() {
        let pods = view.former.iter().filter_map(|member| member.pod);
        if let Some(pod) = pods.into_iter().find(|pod| !pod.reference.terminating) {
            plan.delete(
                pod.reference.clone(),
                format!("its incarnation has ended: {}", view.incarnation.loss),
            );
        }
        return true;
    }
    let told = view.seen.cluster.status.as_ref().and_then(|status| status.last_ordinal);
    let is_of_no_use = |member: &&Member<'_>| view.list.is_some() && told >= Some(member.ordinal);
    let records = view.former.iter().filter(is_of_no_use).filter_map(|member| member.record);
    let Some(record) = records.into_iter().find(|record| !record.reference.terminating) else { return false };
    let step = Step::Delete { target: record.reference.clone(), guard: Guard::Unchanged };
    plan.step(step, "its incarnation has ended, and another serves");
    true
}

/// A restore that nobody asks for any more, or not like that: the member that was prepared for it goes.
pub(super) fn take_back(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let wanted = view.request.as_ref().map(|request| source_of(view, request));
    view.coming.iter().any(|member| match member.record {
        Some(record) if record.spec.intent.is_to_go() => remove_remains(plan, view, member, record),
        Some(record) if record.spec.source != wanted => {
            intend(plan, record, Intent::Leaving, "that restore is not asked for any more");
            true
        }
        Some(_) => false,
        // Nothing is decided on a record's absence but by writing one.
        None => {
            let number = view.incarnation.number + 1;
            let record = children::record(&view.seen.cluster, member.ordinal, Intent::Leaving, number, None);
            plan.create(&record, format!("{} has no record", member.name));
            true
        }
    })
}
