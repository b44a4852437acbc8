//! Another incarnation: when one is to begin, and what becomes of the one before.
//!
//! The invariants are those of `docs/decisions/0021-etcd-incarnations.md`.

use serde_json::{Value, json};
use wheelhouse::{Event, Plan, Reference, Step, jiff::Timestamp, plan::Guard};

use super::{
    intend,
    next::{remove_remains, why_it_cannot_begin_anew},
    told_of_leaving,
};
use crate::{
    act::Change,
    api::{EtcdClusterStatus, EtcdMember, INCARNATION, Intent, QuorumLoss, SEED, backup::RestoreFrom},
    children::{self, quorum},
    incarnation::{Incarnation, Requested, Source},
    observe::RecordSeen,
    positions::Position,
    version::Version,
    view::{Member, View},
};

/// The record of the member that a restore is prepared on, if it has yet to be made.
pub(super) fn coming(view: &View<'_>) -> Option<EtcdMember> {
    let request = view.request.as_ref()?;
    let is_there = view.coming.iter().any(|member| !member.is_to_go());
    if is_there || view.waits_for_former_pods() {
        return None;
    }
    let number = view.incarnation.number + 1;
    let mut record = children::record(
        &view.seen.cluster,
        view.next_ordinal(),
        Intent::Waiting,
        number,
        reader(request.etcd_version, view.version_of_the_others()),
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
    // Its supervisor may be about to write that it begins, under the version of the same record: one of the two is refused.
    if let Some(record) = seed_that_may_begin(view) {
        intend(plan, record, Intent::Leaving, "the cluster begins from something else");
    }
    // What was made here is JSON.
    let text = serde_json::to_string(&next).unwrap_or_default();
    let fields = json!({"metadata": {"annotations": {INCARNATION: text, SEED: Value::Null}}});
    plan.step(Step::Update { target: Reference::of(&view.seen.cluster), fields }, because);
    true
}

/// The seed of this incarnation, as long as it can begin.
fn seed_that_may_begin<'a>(view: &View<'a>) -> Option<&'a RecordSeen> {
    let seed = view.member(view.seed()?).filter(|seed| !view.has_begun() && seed.only_waits());
    seed?.record
}

/// A restore that is asked for, and whose data lies ready.
fn restore(view: &View<'_>) -> Option<Incarnation> {
    // Whoever has just begun has an ID soon: then it is known to have data. Who has no record may have been anybody.
    let may_serve = |member: &Member<'_>| member.may_have_served() || member.is_a_riddle();
    let may_go = |request: &&RestoreFrom| request.in_place || !view.members.iter().any(may_serve);
    let request = view.request.as_ref().filter(may_go)?;
    // What serves would be away until that pod is gone; as long as it serves, its member is replaced.
    if !view.is_without_a_list() && view.stuck().is_some() {
        return None;
    }
    let source = source_of(view, request);
    let is_ready = |member: &&Member<'_>| {
        member.intent() == Some(Intent::Waiting) && member.source() == Some(&source) && member.is_prepared()
    };
    let ready = view.coming.iter().find(is_ready)?;
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
        // What made it ready, whatever is wanted by now.
        version: ready.version(),
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
    let is_clear = view.request.is_none() && view.coming.iter().all(Member::is_to_go);
    if policy.quorum_loss != QuorumLoss::Restore || !is_due || !is_clear {
        return None;
    }
    let (source, version, loss) = match aftermath(view)?.survivor {
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
            (source, member.version().map(Version::that_restores), loss)
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
            (source, reader(backup.etcd_version, view.version_of_new()), loss)
        }
    };
    let number = view.incarnation.number + 1;
    Some(Incarnation { number, source: Some(source), version, restore: None, loss })
}

/// The version that a backup is begun from with: that of the members, or what the backup was taken from, if that is of a newer
/// minor version. Nobody has anything that this one could not read.
fn reader(taken_from: Option<Version>, members: Option<Version>) -> Option<Version> {
    let minor = |version: &Version| (version.major, version.minor);
    let newer = taken_from.filter(|from| members.is_none_or(|members| minor(from) > minor(&members)));
    newer.or(members).map(Version::that_restores)
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
        if let Some(pod) = view.former_pods().find(|pod| !pod.reference.terminating) {
            plan.delete(
                pod.reference.clone(),
                format!("its incarnation has ended: {}", view.incarnation.loss),
            );
        }
        return true;
    }
    let told = view.seen.cluster.status.as_ref().and_then(|status| status.last_ordinal);
    // What a pod that is still there was is known by its record.
    let is_of_no_use =
        |member: &&Member<'_>| member.pod.is_none() && view.list.is_some() && told >= Some(member.ordinal);
    let records = view.former.iter().filter(is_of_no_use).filter_map(|member| member.record);
    let Some(record) = records.into_iter().find(|record| !record.reference.terminating) else { return false };
    let step = Step::Delete { target: record.reference.clone(), guard: Guard::Unchanged };
    plan.step(step, "its incarnation has ended, and another serves");
    true
}

/// A restore that nobody asks for any more, or not like that, or that is prepared on a node that is gone: the member that was
/// prepared for it goes.
pub(super) fn take_back(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let wanted = view.request.as_ref().map(|request| source_of(view, request));
    view.coming.iter().any(|member| match member.record {
        Some(record) if record.spec.intent.is_to_go() => remove_remains(plan, view, member, record),
        Some(record) if record.spec.source != wanted => {
            intend(plan, record, Intent::Leaving, "that restore is not asked for any more");
            true
        }
        Some(record) => match why_it_cannot_begin_anew(view, member) {
            Some(why) => {
                told_of_leaving(plan, &member.name, &why);
                intend(plan, record, Intent::Leaving, &why);
                true
            }
            None => false,
        },
        // Nothing is decided on a record's absence but by writing one.
        None => {
            let number = view.incarnation.number + 1;
            let record = children::record(&view.seen.cluster, member.ordinal, Intent::Leaving, number, None);
            plan.create(&record, format!("{} has no record", member.name));
            true
        }
    })
}
