//! Writing the data of members anew, without the space that is free. Pure.
//!
//! A member that does so serves nobody. So: one at a time, the leader last and after it has handed over, and only while
//! all are well. It can take minutes, so nobody waits for it: that it is wanted is written into the member's
//! record, its supervisor does it and writes there what came of it. After a while it is given up.

use serde_json::json;
use wheelhouse::{
    Event, Plan, Step,
    plan::{Condition, ConditionStatus},
};

use super::{alarms, next, versions};
use crate::{
    act::Change,
    api::{Defragment, Defragmented},
    asking::AlarmKind,
    size::Size,
    view::{Member, View},
};

pub(super) const DEFRAGMENTED: &str = "Defragmented";
/// After so long nobody waits for it any more.
const GIVEN_UP_AFTER_SECONDS: i64 = 1200;
/// A member is left in peace for so long.
const REST_SECONDS: i64 = 3600;
/// And for so long while writes are refused for want of space; if half of its file is free by then, only for as long as it takes
/// to say so.
const REST_WITHOUT_SPACE_SECONDS: i64 = 300;
const REST_WITH_MUCH_FREE_SECONDS: i64 = 10;
const MUCH_FREE_PERCENT: u64 = 50;
/// How many hundredths must be free while writes are refused for want of space.
const FREE_WITHOUT_SPACE_PERCENT: u64 = 10;

fn wish<'a>(member: &Member<'a>) -> Option<&'a Defragment> {
    member.record.and_then(|record| record.spec.defragment.as_ref())
}

fn result<'a>(member: &Member<'a>) -> Option<&'a Defragmented> {
    member.record.and_then(|record| record.status.defragmented.as_ref())
}

/// Whether a member writes its data anew, or is about to.
pub(super) fn is_under_way(member: &Member<'_>) -> bool {
    let is_done = |wish: &Defragment| result(member).is_some_and(|result| result.asked == wish.asked);
    wish(member).is_some_and(|wish| !wish.given_up && !is_done(wish))
}

/// Who does so now.
pub(super) fn who<'a, 'b>(view: &'a View<'b>) -> Option<&'a Member<'b>> {
    view.members.iter().find(|member| is_under_way(member))
}

/// Whether much of a member's file is free.
fn is_fragmented(view: &View<'_>, member: &Member<'_>) -> bool {
    let policy = &view.seen.cluster.spec.maintenance.defragment;
    let Some(upkeep) = member.answer().map(|answer| &answer.upkeep) else { return false };
    match alarms::is_raised(view, AlarmKind::NoSpace) {
        true => is_free(member, FREE_WITHOUT_SPACE_PERCENT),
        false => {
            let least = Size::of(&policy.minimum_size).unwrap_or(Size(u64::MAX));
            upkeep.size >= least && is_free(member, u64::from(policy.free_percent))
        }
    }
}

/// Whether so many hundredths of a member's file are free.
fn is_free(member: &Member<'_>, percent: u64) -> bool {
    member.answer().is_some_and(|answer| {
        let upkeep = &answer.upkeep;
        Size(upkeep.size.0.saturating_sub(upkeep.in_use.0)) >= upkeep.size.percent(percent)
    })
}

fn has_rested(view: &View<'_>, member: &Member<'_>) -> bool {
    let rest = match alarms::is_raised(view, AlarmKind::NoSpace) {
        true if is_free(member, MUCH_FREE_PERCENT) => REST_WITH_MUCH_FREE_SECONDS,
        true => REST_WITHOUT_SPACE_SECONDS,
        false => REST_SECONDS,
    };
    let since = |wish: &Defragment| view.seen.now.duration_since(wish.asked).as_secs();
    wish(member).is_none_or(|wish| since(wish) >= rest)
}

/// Gives up what has taken too long.
pub(super) fn give_up(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let Some((member, record, wish)) =
        who(view).and_then(|member| Some((member, member.record?, wish(member)?)))
    else {
        return false;
    };
    let seconds = view.seen.now.duration_since(wish.asked).as_secs();
    if seconds < GIVEN_UP_AFTER_SECONDS {
        return false;
    }
    let note = format!("Member {} has not written its data anew within {seconds} s", member.name);
    plan.tell(Event::warning("DefragmentationGivenUp", note));
    let fields = json!({"spec": {"defragment": {"givenUp": true}}});
    plan.step(Step::Update { target: record.reference.clone(), fields }, "nobody waits for it any more");
    true
}

/// Lets the next member whose file is mostly free write its data anew.
pub(super) fn begin(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let is_wanted = view.seen.cluster.spec.maintenance.defragment.enabled;
    if !is_wanted || !next::all_are_there(view) || view.has_learner() || versions::is_changing(view) {
        return false;
    }
    let is_next = |member: &&Member<'_>| is_fragmented(view, member) && has_rested(view, member);
    let mut candidates: Vec<_> = view.members.iter().filter(is_next).collect();
    candidates.sort_by_key(|member| member.listed.map(|listed| listed.id) == view.leader());
    let Some((member, record)) = candidates.first().and_then(|member| Some((member, member.record?))) else {
        return false;
    };
    if next::hand_over(plan, view, member) {
        return true;
    }
    let sizes = member.answer().map(|answer| &answer.upkeep);
    let sizes =
        sizes.map_or_else(String::new, |upkeep| format!(": {} of {} are in use", upkeep.in_use, upkeep.size));
    let because = format!("much of the file of {} is free{sizes}", member.name);
    plan.tell(Event::normal("Defragmenting", format!("Member {} writes its data anew{sizes}", member.name)));
    let wish = Defragment { asked: view.seen.now, drain: view.size > 1, given_up: false };
    let fields = json!({"spec": {"defragment": wish}});
    plan.step(Step::Update { target: record.reference.clone(), fields }, because);
    true
}

/// What came of it the last time.
pub(super) fn condition(view: &View<'_>) -> Condition {
    let condition = |status, reason: &str, message: String| Condition {
        kind: DEFRAGMENTED,
        status,
        reason: reason.to_owned(),
        message,
    };
    if let Some(member) = who(view) {
        let message = format!("{} writes its data anew, and serves nobody meanwhile", member.name);
        return condition(ConditionStatus::Unknown, "UnderWay", message);
    }
    let results = view.members.iter().filter_map(|member| Some((member, result(member)?)));
    match results.max_by_key(|(_, result)| result.asked) {
        None => {
            condition(ConditionStatus::True, "NotNeeded", "no member had to write its data anew".to_owned())
        }
        Some((member, result)) if result.problem.is_empty() => {
            let (name, before, after) = (&member.name, result.before, result.after);
            let message = format!("{name} was the last to write its data anew: {before} became {after}");
            condition(ConditionStatus::True, "Done", message)
        }
        Some((member, result)) => {
            let message = format!("{} could not write its data anew: {}", member.name, result.problem);
            condition(ConditionStatus::False, "Failed", message)
        }
    }
}
