//! The one step that can do harm, if any is to be done now.

use serde_json::json;
use wheelhouse::{Event, Known, Plan, Step, plan::Guard};

use super::{
    alarms, anew, certificates, defragmentation, intend, told_of_leaving,
    versions::{self, Obstacle},
    volumes,
};
use crate::{
    act::{Change, What},
    api::{Data, Intent},
    children,
    etcd::Id,
    observe::{PodSeen, RecordSeen},
    version::Version,
    view::{Member, View},
};

/// A member that nobody reaches is given up only if this very process has tried for so long.
const TRIED_FOR_SECONDS: i64 = 30;
/// Who ended before it was anybody is replaced after so long.
const TRIED_AGAIN_AFTER_SECONDS: i64 = 60;

/// Adds the step. In this order: another incarnation is begun, or one that has ended is cleared away; a pod that has ended is made anew; what is left of former members goes; who
/// is to leave is removed; who is lost, or too much, is made to leave; who joins gets its vote; who waits is
/// offered to etcd; last, members that are well are looked after, one after the other: pods that are not as people want
/// them are made anew, volumes become larger, and data is written anew.
pub(super) fn step(plan: &mut Plan<Change>, view: &View<'_>) {
    // A pod that is made anew without its certificates would not come back.
    let can_restart = certificates::are_ready(view);
    let _ = anew::begin(plan, view)
        || anew::end_former(plan, view)
        || anew::take_back(plan, view)
        || (can_restart && restart(plan, view))
        || clean_up(plan, view)
        || remove_who_leaves(plan, view)
        || give_up_the_lost(plan, view)
        || drop_surplus(plan, view)
        || finish_joining(plan, view)
        || take_in(plan, view)
        || (can_restart && replace_broken_pods(plan, view))
        || defragmentation::give_up(plan, view)
        || (defragmentation::who(view).is_none() && look_after(plan, view));
}

/// What is done for members that are well: one is away for a moment, and no other.
fn look_after(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    alarms::take_back(plan, view)
        || (certificates::are_ready(view) && roll(plan, view))
        || volumes::expand(plan, view)
        || defragmentation::begin(plan, view)
}

/// A pod that ran to its end is deleted, so that it is made anew. Its data stays, unless it was in the pod.
fn restart(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let pods = view.members.iter().chain(&view.coming).filter_map(|member| member.pod);
    let Some(pod) = pods.into_iter().find(|pod| pod.is_finished() && !pod.reference.terminating) else {
        return false;
    };
    let still = Guard::Still(vec![("/status/phase".to_owned(), json!(pod.phase))]);
    let step = Step::Delete { target: pod.reference.clone(), guard: still };
    plan.step(step, format!("{} has ended and does not start again", pod.reference.name));
    true
}

/// What belonged to a member that is none: its pod, then its volume, then its record.
fn clean_up(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    view.members.iter().any(|member| match member.record {
        Some(record) if record.spec.intent.is_to_go() && view.is_out(member) => {
            remove_remains(plan, view, member, record)
        }
        _ => false,
    })
}

pub(super) fn remove_remains(
    plan: &mut Plan<Change>,
    view: &View<'_>,
    member: &Member<'_>,
    record: &RecordSeen,
) -> bool {
    // A list that lacks it is wrong, or its answer is from before: that is seen at the next look.
    if member.follows() {
        return false;
    }
    let because = format!("{} is no member any more", member.name);
    // Written down first: should nobody be left to ask one day, what it has is not taken for the latest.
    intend(plan, record, Intent::Left, &because);
    if let Some(pod) = member.pod {
        if !pod.reference.terminating {
            plan.delete(pod.reference.clone(), because);
        }
        return !pod.reference.terminating;
    }
    if record.spec.intent != Intent::Left {
        return true;
    }
    let volume = member.volume.map(|volume| &volume.reference);
    let target = volume.unwrap_or(&record.reference);
    // A record goes only after the status says that its number was used.
    let told = view.seen.cluster.status.as_ref().and_then(|status| status.last_ordinal);
    if target.terminating || (volume.is_none() && told < Some(member.ordinal)) {
        return false;
    }
    if volume.is_none() && record.status.member_id.is_some() {
        plan.tell(Event::normal("MemberRemoved", format!("Member {} removed", member.name)));
    }
    plan.step(Step::Delete { target: target.clone(), guard: Guard::Unchanged }, because);
    true
}

/// Who is to leave, and whom the others can do without; and who was added by a request that took effect after it
/// was given up, or whose record somebody deleted before it started.
fn remove_who_leaves(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let is_ghost = |member: &&Member<'_>| {
        member.record.is_none() && member.listed.is_some_and(|listed| listed.name.is_empty())
    };
    if let Some(ghost) = view.members.iter().find(is_ghost) {
        let what = What::Remove { peer_url: view.peer_url(&ghost.name), unless_started: true };
        change(plan, view, ghost, what, "it has never started, and has no record to start by");
        return true;
    }
    let can_leave = |member: &&Member<'_>| {
        member.is_to_go()
            && member.listed.is_some_and(|listed| listed.is_learner || view.others_hold_quorum(listed.id))
    };
    match view.members.iter().find(can_leave) {
        Some(member) => remove(plan, view, member, "it is to leave"),
        None => false,
    }
}

/// A member without its data, one that is none any more, or one that nobody has reached for too long, leaves.
fn give_up_the_lost(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    view.members.iter().any(|member| {
        let Some(record) = member.record.filter(|record| !record.spec.intent.is_to_go()) else {
            return false;
        };
        match why_it_is_given_up(view, member, record) {
            Some(why) => leave(plan, view, member, record, &why),
            None => false,
        }
    })
}

fn why_it_is_given_up(view: &View<'_>, member: &Member<'_>, record: &RecordSeen) -> Option<String> {
    let is_seed = !view.has_begun() && view.seed() == Some(member.name.as_str());
    if member.is_lost() {
        // A seed that began may have served: only its own supervisor can say that it has nothing.
        let is_certain = !is_seed || record.status.data == Some(Data::Lost);
        let is_due = !member.is_lost_before_it_was_anybody() || view.age(record) >= TRIED_AGAIN_AFTER_SECONDS;
        return (is_certain && is_due).then(|| member.loss());
    }
    if let Some(why) = alarms::corruption(view, member) {
        return Some(why);
    }
    if !view.has_begun() && member.only_waits() && member.source() != view.source() {
        return Some("the cluster begins from something else".to_owned());
    }
    if let Some(why) = why_it_cannot_begin_anew(view, member) {
        return Some(why);
    }
    let was_member = record.status.began || record.spec.intent == Intent::Existing;
    if was_member && view.list.is_some() && member.listed.is_none() && !member.follows() {
        return Some("etcd does not list it any more".to_owned());
    }
    if !record.status.began
        && member.source().is_none()
        && member.listed.is_none()
        && view.age(record) >= view.patience()
        && !member.can_begin()
    {
        return Some(format!("it could not begin for {} s", view.age(record)));
    }
    has_been_gone_for_too_long(view, member)
}

/// Who is to begin anew, and whose pod was to be gone long ago: its node is gone, and nobody tells. Should its supervisor be there
/// after all, its record's word keeps it from beginning.
pub(super) fn why_it_cannot_begin_anew(view: &View<'_>, member: &Member<'_>) -> Option<String> {
    member.source().filter(|_| member.only_waits())?;
    let gone_by = member.pod.filter(|pod| !pod.is_finished())?.gone_by?;
    let late = view.seen.now.duration_since(gone_by).as_secs();
    (late >= view.patience()).then(|| format!("its pod was to be gone {late} s ago, and is not"))
}

/// Since when nobody has reached a member is in the status, so it survives this process; but this process, too, must
/// have tried for a while.
fn has_been_gone_for_too_long(view: &View<'_>, member: &Member<'_>) -> Option<String> {
    // Who writes its data anew does not answer, and is there all the same.
    member.listed.filter(|_| member.answer().is_none() && !defragmentation::is_under_way(member))?;
    let status = view.seen.cluster.status.as_ref()?;
    let gone_for = view.seen.now.duration_since(*status.unreachable.get(&member.name)?).as_secs();
    let has_been_tried = match member.pod.map(|pod| &pod.etcd) {
        Some(Known::Unknown { since, .. }) => {
            view.seen.now.duration_since(*since).as_secs() >= TRIED_FOR_SECONDS
        }
        _ => true,
    };
    (has_been_tried && gone_for >= view.patience()).then(|| format!("nobody has reached it for {gone_for} s"))
}

/// A member leaves, if the others hold quorum without it, or if it is none.
fn leave(
    plan: &mut Plan<Change>,
    view: &View<'_>,
    member: &Member<'_>,
    record: &RecordSeen,
    why: &str,
) -> bool {
    match member.listed {
        Some(listed) if !listed.is_learner && !view.others_hold_quorum(listed.id) => false,
        Some(_) => {
            told_of_leaving(plan, &member.name, why);
            intend(plan, record, Intent::Leaving, why);
            remove(plan, view, member, why)
        }
        // Before the cluster has begun the seed's record is all that keeps it from beginning.
        None if view.list.is_some() || !view.has_begun() => {
            intend(plan, record, Intent::Leaving, why);
            true
        }
        None => false,
    }
}

/// More members than are wanted: those first that cost least, the leader last.
fn drop_surplus(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let kept: Vec<_> = view.members.iter().filter(|member| member.is_kept()).collect();
    if kept.len() <= view.target() {
        return false;
    }
    let is_seed = |member: &Member<'_>| !view.has_begun() && view.seed() == Some(member.name.as_str());
    let leader = view.leader();
    let cost = |member: &Member<'_>| match member.listed {
        None if member.only_waits() => 0,
        None => 1,
        Some(listed) if listed.is_learner => 2,
        Some(_) if !member.is_healthy() => 3,
        Some(listed) if Some(listed.id) != leader => 4,
        Some(_) => 5,
    };
    let others = kept.into_iter().rev().filter(|member| !is_seed(member));
    // Of several that cost the same, the first in this order: the youngest.
    let Some((victim, record)) =
        others.min_by_key(|member| cost(member)).and_then(|member| Some((member, member.record?)))
    else {
        return false;
    };
    let because = format!("{} members are wanted", view.size);
    match victim.listed {
        Some(listed) if !listed.is_learner && !view.others_hold_quorum(listed.id) => false,
        Some(_) => {
            intend(plan, record, Intent::Leaving, &because);
            remove(plan, view, victim, &because)
        }
        None if view.is_out(victim) || victim.only_waits() => {
            intend(plan, record, Intent::Leaving, &because);
            true
        }
        None => false,
    }
}

/// Who learns gets its vote, and who was to be added is.
fn finish_joining(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    if view.list.is_none() {
        return false;
    }
    if let Some((learner, listed)) = view.learner().and_then(|learner| Some((learner, learner.listed?))) {
        // It has started: etcd itself knows whether it has caught up.
        let has_started =
            learner.is_kept() && learner.answer().is_some_and(|answer| answer.member == listed.id);
        if has_started {
            change(plan, view, learner, What::Promote { id: listed.id }, "it learns what the others know");
        }
        return has_started;
    }
    let is_next = |member: &&Member<'_>| {
        member.intent() == Some(Intent::Joining)
            && member.listed.is_none()
            && member.can_begin()
            && versions::begins_as_the_others(view, member)
    };
    match view.members.iter().find(is_next) {
        Some(member) if view.all_voters_are_healthy() && !view.has_learner() => add(plan, view, member),
        _ => false,
    }
}

/// The next member that waits is offered to etcd.
fn take_in(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let is_joining = |member: &Member<'_>| {
        member.intent() == Some(Intent::Joining) && member.listed.is_none() && member.is_kept()
    };
    let is_busy = view.has_learner() || view.members.iter().any(is_joining);
    if view.list.is_none() || is_busy || !view.all_voters_are_healthy() {
        return false;
    }
    let is_next = |member: &&Member<'_>| {
        member.is_kept()
            && member.only_waits()
            && member.can_begin()
            && versions::begins_as_the_others(view, member)
    };
    let Some((member, record)) =
        view.members.iter().find(is_next).and_then(|member| Some((member, member.record?)))
    else {
        return false;
    };
    intend(plan, record, Intent::Joining, "it is its turn to join");
    add(plan, view, member)
}

/// Whether a pod is not as people want it now, its version apart.
fn is_outdated(view: &View<'_>, member: &Member<'_>) -> bool {
    let wanted = children::wanted(&view.seen.cluster);
    let is = |pod: &PodSeen| pod.made_for.as_ref() == Some(&wanted);
    member.pod.is_some_and(|pod| !pod.reference.terminating && !is(pod))
        || certificates::trusts_others(view, member)
}

/// A pod that was made from a mistake, and serves nobody, is made anew once the mistake is mended.
fn replace_broken_pods(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let broken = view.members.iter().find(|member| is_broken(view, member));
    let Some((member, pod)) = broken.and_then(|member| Some((member, member.pod?))) else { return false };
    let because = format!("{} serves nobody, and is not as it is wanted", member.name);
    let is_written = let_run(plan, member, versions::to_come_back_with(view, member), &because);
    if let Some(record) = member.record.filter(|_| !is_written && !member.has_begun()) {
        // It may have begun by now, and have its data in that pod: under this version of its record it has not.
        plan.step(Step::Update { target: record.reference.clone(), fields: json!({}) }, &because);
    }
    let still = Guard::Still(vec![("/status/phase".to_owned(), json!(pod.phase))]);
    plan.step(Step::Delete { target: pod.reference.clone(), guard: still }, because);
    true
}

/// Whether another pod is worth a try: this one serves nobody, and the next would be another one.
fn is_broken(view: &View<'_>, member: &Member<'_>) -> bool {
    let serves = member.answer().is_some() || member.pod.is_some_and(|pod| pod.ready);
    let is_there = member.pod.is_some_and(|pod| !pod.reference.terminating);
    // Its record may say so already.
    let is_another = !member.has_begun() && !versions::begins_as_the_others(view, member);
    let runs_another = is_another || versions::to_come_back_with(view, member) != member.version();
    let can_go = has_never_said_anything(member) || versions::refused(member).is_some();
    !serves && !member.is_lost() && can_go && (is_outdated(view, member) || (is_there && runs_another))
}

/// Whether a member has no data yet, or its pod before this one was the last to say anything. Who has said who it is, and
/// is silent now, is unreachable: that is no mistake of its pod.
fn has_never_said_anything(member: &Member<'_>) -> bool {
    let said_last = member.record.map(|record| record.status.pod.as_str()).filter(|pod| !pod.is_empty());
    let was_another = said_last.zip(member.pod).is_some_and(|(last, pod)| last != pod.reference.uid);
    !member.has_begun() || was_another
}

/// Writes the version of a member into its record, before its pod is made with it; whether that was not there yet.
fn let_run(plan: &mut Plan<Change>, member: &Member<'_>, version: Option<Version>, because: &str) -> bool {
    let Some((record, version)) = member.record.zip(version) else { return false };
    let is_new = record.spec.version != Some(version);
    if is_new {
        let fields = json!({"spec": {"version": version}});
        plan.step(Step::Update { target: record.reference.clone(), fields }, because);
    }
    is_new
}

/// Whether all members that are wanted are there, well and ready, and nobody else.
pub(super) fn all_are_there(view: &View<'_>) -> bool {
    let mut kept = view.members.iter().filter(|member| member.is_kept());
    let is_there = |member: &Member<'_>| member.is_healthy() && member.pod.is_some_and(|pod| pod.ready);
    // Whose record is gone, or is to go, is a member for as long as etcd lists it.
    let is_nobody_else = view.members.iter().all(|member| member.listed.is_none() || member.is_kept());
    kept.clone().count() == view.size && kept.all(is_there) && is_nobody_else && view.all_voters_are_healthy()
}

/// Pods that are not as people want them are made anew: one at a time, while all are well, the leader last
/// and after it has handed over.
fn roll(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    if !all_are_there(view) {
        return false;
    }
    if versions::unwanted_way_back(view).is_some() {
        versions::cancel_way_back(plan, view, "another version is wanted");
        return true;
    }
    let kept: Vec<_> = view.members.iter().filter(|member| member.is_kept()).collect();
    let to = view.next_version();
    // Somebody meant it to run that, and was kept from it: by then something else is wanted.
    let is_mistaken = |member: &&&Member<'_>| {
        let intended = member.intended_version();
        intended.is_some() && intended != member.version() && intended != to
    };
    if let Some(member) = kept.iter().find(is_mistaken) {
        let_run(plan, member, member.version(), "its record says what it neither runs nor is to run");
        return true;
    }
    let leader = view.leader();
    let leads = |member: &Member<'_>| member.listed.map(|listed| listed.id) == leader;
    let followers_first =
        kept.iter().filter(|member| !leads(member)).chain(kept.iter().filter(|one| leads(one)));
    for member in followers_first {
        let obstacle =
            to.filter(|to| member.version() != Some(*to)).map(|to| versions::obstacle(view, member, to));
        let version = match obstacle {
            Some(None) => to,
            Some(Some(Obstacle::First(to))) => {
                versions::allow_way_back(plan, view, to);
                return true;
            }
            Some(Some(Obstacle::OldEntries)) => {
                versions::fill_logs(plan, view);
                return true;
            }
            _ if is_outdated(view, member) && certificates::can_lose_a_pod(view) => member.version(),
            _ => continue,
        };
        return match hand_over(plan, view, member) {
            true => true,
            false => make_anew(plan, view, member, version),
        };
    }
    false
}

/// Lets another member lead, if this one does and there is another.
pub(super) fn hand_over(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>) -> bool {
    let leader = view.leader();
    if member.listed.map(|listed| listed.id) != leader {
        return false;
    }
    let mut others = view.members.iter().filter(|other| other.is_kept() && other.is_healthy());
    let Some((successor, id)) = others.find_map(|other| Some((other, id_unless(leader, other)?))) else {
        return false;
    };
    let because = format!("{} is to be away for a moment", member.name);
    change(plan, view, successor, What::Lead { id }, &because);
    true
}

fn make_anew(
    plan: &mut Plan<Change>,
    view: &View<'_>,
    member: &Member<'_>,
    version: Option<Version>,
) -> bool {
    let Some(pod) = member.pod else { return false };
    let because = format!("{} is not as it is wanted", member.name);
    let what = match (member.version(), version) {
        (Some(from), Some(to)) if from != to => {
            format!("Updating member {} from {from} to {to}", member.name)
        }
        _ => format!("Updating member {}", member.name),
    };
    plan.tell(Event::normal("Updating", what));
    let check = match (member.version(), version) {
        (Some(from), Some(to)) if to.minor > from.minor => Some(What::CheckUpgrade { to }),
        (Some(from), Some(to)) if to.minor < from.minor => Some(What::CheckDowngrade { to }),
        _ => None,
    };
    if let Some(check) = check {
        ask_the_cluster(plan, view, check, "data meets nothing that cannot read it");
    }
    let_run(plan, member, version, &because);
    match view.size {
        // Of one or two the budget lets nobody go.
        1 | 2 => plan.delete(pod.reference.clone(), because),
        _ => plan.step(Step::Evict { target: pod.reference.clone() }, because),
    }
    true
}

/// The ID of a member, unless it is this one.
fn id_unless(leader: Option<Id>, member: &Member<'_>) -> Option<Id> {
    member.listed.map(|listed| listed.id).filter(|id| Some(*id) != leader)
}

fn add(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>) -> bool {
    if versions::way_back(view).is_some() {
        versions::cancel_way_back(plan, view, &format!("{} is to join", member.name));
        return true;
    }
    let what = What::AddLearner { peer_url: view.peer_url(&member.name) };
    change(plan, view, member, what, &format!("{} members are wanted", view.size));
    true
}

fn remove(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>, because: &str) -> bool {
    let what = What::Remove { peer_url: view.peer_url(&member.name), unless_started: false };
    change(plan, view, member, what, because);
    true
}

/// Asks something of etcd that is about no member in particular.
pub(super) fn ask_the_cluster(plan: &mut Plan<Change>, view: &View<'_>, what: What, because: &str) {
    let member = view.name.clone();
    plan.act(Change { what, member, cluster: view.cluster_id(), through: view.addresses() }, because);
}

fn change(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>, what: What, because: &str) {
    // etcd may say "not yet": that somebody came or went is told when it is seen.
    if matches!(what, What::Lead { .. }) {
        plan.tell(Event::normal("LeaderMoved", format!("Member {} leads now: {because}", member.name)));
    }
    let change =
        Change { what, member: member.name.clone(), cluster: view.cluster_id(), through: view.addresses() };
    plan.act(change, because);
}
