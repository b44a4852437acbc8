//! The alarms of etcd: that space ran out, and that data is corrupt. Pure.
//!
//! Invariants:
//! - Writes are taken again after space ran out, once every member has room. That data is corrupt is never taken back by
//!   this operator: a person has to look.
//! - A member is corrupt if its hash is not that of a majority, twice in a row. An alarm alone is no proof: 3.5
//!   names nobody, and a leader that is corrupt itself names its followers. Where there is no majority nothing is
//!   removed, and a person is asked.

use wheelhouse::{Plan, plan::Condition};

use super::{certificates, next};
use crate::{
    act::{Change, ROOM_PERCENT, What},
    asking::{Alarm, AlarmKind},
    children,
    etcd::Id,
    size::Size,
    view::{Member, View},
};

pub(super) const NO_ALARM: &str = "NoAlarm";

/// The alarms that members tell of.
pub(super) fn alarms(view: &View<'_>) -> Vec<Alarm> {
    let listed = view.members.iter().filter(|member| member.listed.is_some());
    let mut alarms: Vec<_> = listed.filter_map(Member::answer).flat_map(|answer| answer.alarms()).collect();
    alarms.sort();
    alarms.dedup();
    alarms
}

/// Whether there is an alarm of that kind.
pub(super) fn is_raised(view: &View<'_>, kind: AlarmKind) -> bool {
    alarms(view).iter().any(|alarm| alarm.kind == kind)
}

/// Why the data of a member is taken for corrupt, in words, if it is.
pub(super) fn corruption(view: &View<'_>, member: &Member<'_>) -> Option<String> {
    let hashes = view.seen.hashes.value()?;
    let voters: Vec<_> = view.voters().map(|voter| voter.id).collect();
    let is_outvoted = hashes.is_outvoted(member.listed?.id, &voters);
    is_outvoted.then(|| "its data is corrupt: a majority of the members holds something else".to_owned())
}

/// How large the data of a member may become, where that is known.
fn quota(view: &View<'_>, member: &Member<'_>) -> Option<Size> {
    let is_as_wanted = member.pod?.made_for.as_deref() == Some(children::wanted(&view.seen.cluster).as_str());
    let set = Some(view.seen.cluster.spec.options.quota()).filter(|_| is_as_wanted);
    member.answer()?.upkeep.quota.or(set)
}

/// Takes the alarm back that space ran out, once every member has room again.
pub(super) fn take_back(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let has_room = |id: Id| {
        let member = view.members.iter().find(|member| member.listed.is_some_and(|listed| listed.id == id));
        let known = member.and_then(|member| Some((member.answer()?.upkeep.size, quota(view, member)?)));
        // What is known roughly may be a sixteenth more.
        known.is_some_and(|(size, quota)| size.percent(107) <= quota.percent(ROOM_PERCENT))
    };
    let all_have = view.list.is_some_and(|list| list.iter().all(|listed| has_room(listed.id)));
    if !is_raised(view, AlarmKind::NoSpace) || !all_have {
        return false;
    }
    let what = What::TakeBackNoSpace { quota: view.seen.cluster.spec.options.quota() };
    next::ask_the_cluster(plan, view, what, "every member has room again");
    true
}

/// What etcd itself complains about: that its quota is used up, or that its data is not what the others have.
pub(super) fn condition(view: &View<'_>) -> Condition {
    let alarms = alarms(view);
    let mut told: Vec<_> = alarms.iter().map(|alarm| words(view, *alarm)).collect();
    let reason = match alarms.last().map(|alarm| alarm.kind) {
        Some(AlarmKind::Corrupt) => "Corrupt",
        Some(AlarmKind::NoSpace) => "NoSpace",
        None => NO_ALARM,
    };
    if is_raised(view, AlarmKind::NoSpace) {
        told.push(advice_on_space(view));
    }
    if is_raised(view, AlarmKind::Corrupt) {
        told.push(advice_on_corruption(view));
    }
    Condition {
        kind: NO_ALARM,
        status: alarms.is_empty().into(),
        reason: reason.to_owned(),
        message: if told.is_empty() { "no member complains".to_owned() } else { told.join("; ") },
    }
}

fn words(view: &View<'_>, alarm: Alarm) -> String {
    let id = alarm.member;
    let member = id.and_then(|id| {
        view.members.iter().find(|member| member.listed.is_some_and(|listed| listed.id == id))
    });
    let name = match (member, id) {
        (Some(member), _) => member.name.clone(),
        (None, Some(id)) => format!("{id}, which is no member any more,"),
        (None, None) => "a member that etcd cannot name".to_owned(),
    };
    let upkeep = member.and_then(Member::answer).map(|answer| &answer.upkeep);
    match (alarm.kind, upkeep) {
        (AlarmKind::Corrupt, _) => {
            format!("{name} holds something else than the others, and etcd refuses writes")
        }
        (AlarmKind::NoSpace, Some(upkeep)) => {
            let quota = member.and_then(|member| quota(view, member));
            let quota = quota.map_or_else(String::new, |quota| format!(" of {quota}"));
            let (size, in_use) = (upkeep.size, upkeep.in_use);
            format!("{name} has used its quota up ({size}{quota}, {in_use} in use), and etcd refuses writes")
        }
        (AlarmKind::NoSpace, None) => format!("{name} has used its quota up, and etcd refuses writes"),
    }
}

/// Who is never made anew stays with the quota that it has; and until 3.6 nobody but the options that it was made with tells that.
fn advice_on_space(view: &View<'_>) -> String {
    let larger = match certificates::can_lose_a_pod(view) {
        true => ", or raise options.quotaBackendBytes",
        false => {
            " (the quota cannot be raised: pods of one or two members that have their data in them are never made anew, so let spec.options be what it was)"
        }
    };
    format!(
        "delete or compact what is not needed (options.compaction does so regularly){larger}; writes are taken again once every member has room"
    )
}

fn advice_on_corruption(view: &View<'_>) -> String {
    let corrupt: Vec<_> = view
        .members
        .iter()
        .filter(|member| corruption(view, member).is_some())
        .map(|member| member.name.as_str())
        .collect();
    let all: Vec<_> = view.voters().map(|voter| voter.id).collect();
    match view.seen.hashes.value() {
        _ if !corrupt.is_empty() => {
            format!("{} is replaced, as a majority holds something else", corrupt.join(", "))
        }
        Some(hashes) if hashes.agree(all) => {
            "all members hold the same by now: look, and then let etcd take writes again with etcdctl alarm disarm".to_owned()
        }
        Some(_) => {
            "no majority of the members holds the same: nothing is removed until somebody decides".to_owned()
        }
        None => "what each member holds is being compared".to_owned(),
    }
}
