//! From one version of etcd to another: one member at a time, one minor version at a time, in either direction.
//! Pure.
//!
//! Invariants:
//! - No member changes its version unless all are well, none has raised an alarm, and all hold the same.
//! - There are never three minor versions in a cluster.
//! - Data never meets an etcd of a minor version that cannot read it. Upwards any can. Downwards etcd has to be told
//!   first; it then lets the cluster work as the older version does, and each member says when its data is so. Right
//!   before a pod goes, a quorum is asked once more.
//! - No log meets an etcd that cannot read it. 3.7 cannot read some entries that were written before 3.6, so a member goes on
//!   to it only after they are in a snapshot of its log, which etcd takes only after many entries: they are written for that.
//! - Data that is in a pod is not given up for a version: where nobody else has it, or where who comes instead would begin
//!   with the version of before.
//! - Nobody joins while the cluster is allowed to go back: etcd would not let them.
//!
//! The version of a member is written into its record before its pod is made anew, so it stays with the member
//! whatever happens to pods, operators and the wish of people meanwhile.

use std::cmp::Ordering;

use wheelhouse::{
    Event, Known, Plan,
    plan::{Condition, ConditionStatus},
};

use super::{alarms, certificates, next};
use crate::{
    act::{Change, What},
    asking::AlarmKind,
    version::{READS_OLD_ENTRIES, TESTED, Version},
    view::{Member, View},
};

/// Whether anything depends on what hashes the members have: a change of versions that could go on, or an
/// alarm that says that data is corrupt. To compute them costs all of the members' attention, and writes wait.
pub(crate) fn depends_on_hashes(view: &View<'_>) -> bool {
    let is_corrupt = alarms::is_raised(view, AlarmKind::Corrupt);
    let is_to_change = is_changing(view) && next::all_are_there(view) && alarms::alarms(view).is_empty();
    !view.seen.cluster.spec.paused && (is_corrupt || is_to_change)
}

/// Whether a member is to run another version than it does, as far as there is a way. Nothing else waits for who stays as it is.
pub(super) fn is_changing(view: &View<'_>) -> bool {
    let Some(next) = view.next_version() else { return false };
    let changes = |member: &Member<'_>| {
        member.version().is_some_and(|version| version != next)
            && stays_in_its_pod(view, member, next).is_none()
    };
    view.members.iter().filter(|member| member.is_kept() && member.has_begun()).any(changes)
}

/// What keeps a member from running a version.
pub(super) enum Obstacle {
    /// etcd has to allow the way back to this one first.
    First(Version),
    /// The log has entries that it cannot read.
    OldEntries,
    /// This has to become so.
    Wait(String),
}

/// What keeps a member from changing to that version, if anything does.
pub(super) fn obstacle(view: &View<'_>, member: &Member<'_>, to: Version) -> Option<Obstacle> {
    let wait = |why: String| Some(Obstacle::Wait(why));
    if let Some(why) = stays_in_its_pod(view, member, to) {
        return wait(why);
    }
    if let Some(alarm) = alarms::alarms(view).first() {
        return wait(match alarm.kind {
            AlarmKind::NoSpace => "an alarm says that space ran out".to_owned(),
            AlarmKind::Corrupt => "an alarm says that data is corrupt".to_owned(),
        });
    }
    match &view.seen.hashes {
        Known::Value { value, .. } if value.agree(view.voters().map(|voter| voter.id)) => {}
        Known::Value { .. } => return wait("the members do not hold the same".to_owned()),
        Known::Absent => return wait("the hashes of the members are to be compared".to_owned()),
        Known::Unknown { why, .. } => return wait(format!("the hashes of the members are not known: {why}")),
    }
    match member.version() {
        Some(from) if to.minor > from.minor => {
            obstacle_on_the_way_up(view, to).or_else(|| obstacle_in_the_log(member, from))
        }
        Some(from) if to.minor < from.minor => obstacle_on_the_way_back(view, member, to),
        _ => None,
    }
}

/// What keeps a member from another version whose data would go with its pod, in words. Another member comes instead; it
/// can have another patch level at once, and begins with the minor version of the others.
fn stays_in_its_pod(view: &View<'_>, member: &Member<'_>, to: Version) -> Option<String> {
    let is_near = member.version().is_some_and(|from| from.minor == to.minor);
    let stays = view.seen.cluster.spec.storage.empty_dir && !(is_near && certificates::can_lose_a_pod(view));
    stays.then(|| {
        "its data is in its pod and would go with it: restore a backup into another cluster".to_owned()
    })
}

/// The cluster works as the version before only some seconds after the last member came up with that.
fn obstacle_on_the_way_up(view: &View<'_>, to: Version) -> Option<Obstacle> {
    let healthy = view.members.iter().filter(|member| member.is_healthy());
    let storage = healthy.filter_map(|member| member.answer()?.upkeep.storage_version);
    let behind = storage.into_iter().find(|storage| storage.minor + 1 < to.minor)?;
    Some(Obstacle::Wait(format!("the cluster works as {} yet", behind.minor_text())))
}

fn obstacle_in_the_log(member: &Member<'_>, from: Version) -> Option<Obstacle> {
    let record = member.record.filter(|_| from.minor == READS_OLD_ENTRIES)?;
    // What was said of it before its pod was made anew is of the past.
    let is_of_now = member.pod.is_some_and(|pod| pod.reference.uid == record.status.pod);
    match record.status.old_entries.filter(|_| is_of_now) {
        Some(false) => None,
        Some(true) => Some(Obstacle::OldEntries),
        None => Some(Obstacle::Wait(format!("{} has not said yet what is in its log", member.name))),
    }
}

/// Lets the members take snapshots of their logs.
pub(super) fn fill_logs(plan: &mut Plan<Change>, view: &View<'_>) {
    next::ask_the_cluster(
        plan,
        view,
        What::FillLogs,
        "a log has entries of before 3.6, which 3.7 cannot read",
    );
}

fn obstacle_on_the_way_back(view: &View<'_>, member: &Member<'_>, to: Version) -> Option<Obstacle> {
    if others_hold_it_back(view, member, to) {
        return reads(member, to).map(Obstacle::Wait);
    }
    let said: Vec<_> = view.members.iter().filter(|member| member.is_healthy()).map(allowed).collect();
    match said.iter().all(|allowed| allowed.is_some_and(|allowed| allowed.minor == to.minor)) {
        true => reads(member, to).map(Obstacle::Wait),
        false => Some(Obstacle::First(to)),
    }
}

/// The version that the cluster may go back to, as this member knows.
fn allowed(member: &Member<'_>) -> Option<Version> {
    member.answer()?.upkeep.downgrade_to
}

/// Whether another member runs that minor version, or an older one: then the cluster works as that version does,
/// and goes on to do so.
fn others_hold_it_back(view: &View<'_>, member: &Member<'_>, to: Version) -> bool {
    let others = view.members.iter().filter(|other| other.ordinal != member.ordinal && other.is_healthy());
    others.filter_map(|other| other.answer()?.version).any(|version| version.minor <= to.minor)
}

/// What is still in the way of that version's reading the data of a member, in words.
fn reads(member: &Member<'_>, to: Version) -> Option<String> {
    let storage = member.answer().and_then(|answer| answer.upkeep.storage_version);
    match storage {
        Some(storage) if storage.minor <= to.minor => None,
        _ => Some(format!("{} has yet to make its data fit for {}", member.name, to.minor_text())),
    }
}

/// The version with which a member that serves nobody comes back. First what it must go back to, because it cannot read its log;
/// then what it must go on to, because the others have. Else the next on the way to what people want, or that of
/// the others, or the oldest that ran, the first of them that may be tried: who is silent, and has data, never goes up. Else its own.
pub(super) fn to_come_back_with(view: &View<'_>, member: &Member<'_>) -> Option<Version> {
    let next = if member.has_begun() { view.next_version() } else { view.version_of_new() };
    let others = [next, view.version_of_new(), last_told(view)].into_iter().flatten();
    let may_be_tried = others.into_iter().find(|next| may_try(view, member, *next));
    refused(member).or(stranded_below(view, member)).or(may_be_tried).or(member.version())
}

/// Whether a member that does not answer may be made anew with that version. If it has data, never upwards: much is to be
/// looked at before that, and nobody who is silent can be. Downwards where the cluster never worked as a newer one.
fn may_try(view: &View<'_>, member: &Member<'_>, to: Version) -> bool {
    let Some(from) = member.version().filter(|_| member.has_begun()) else { return true };
    let never_was_newer = last_told(view).is_some_and(|told| told.minor <= to.minor);
    match to.minor.cmp(&from.minor) {
        Ordering::Greater => false,
        Ordering::Equal => true,
        Ordering::Less => {
            others_hold_it_back(view, member, to) || (view.voter_count() <= 1 && never_was_newer)
        }
    }
}

/// The oldest version that a member ran when somebody last answered.
fn last_told(view: &View<'_>) -> Option<Version> {
    view.seen.cluster.status.as_ref()?.current_version.parse().ok()
}

/// Whether etcd in a pod begins as the others do. What people wanted may have changed since the pod was made, and the cluster
/// may have begun meanwhile: an etcd that is newer by two minor versions could not join, and an older one could not read.
pub(super) fn begins_as_the_others(view: &View<'_>, member: &Member<'_>) -> bool {
    let begins_with = member.pod.and_then(|pod| pod.version);
    begins_with.zip(view.version_of_new()).is_none_or(|(pod, others)| pod.minor == others.minor)
}

/// The version that a member goes back to which was to run one that cannot read its log: its supervisor looked, and has
/// not started etcd. So nothing of it was written by the newer one.
pub(super) fn refused(member: &Member<'_>) -> Option<Version> {
    let (record, pod) = member.record.zip(member.pod)?;
    let says_so =
        record.status.old_entries == Some(true) && record.status.pod == pod.reference.uid && !pod.ready;
    let is_newer = pod.version.is_some_and(|version| version.minor > READS_OLD_ENTRIES);
    let reads_it = TESTED.into_iter().find(|tested| tested.minor == READS_OLD_ENTRIES);
    reads_it.filter(|_| says_so && is_newer && member.answer().is_none())
}

/// The version that a member can run with again whose own is older than what the cluster works as by now: that of the
/// others. Of two operators one may have let the last of the others go on while this one went back.
fn stranded_below(view: &View<'_>, member: &Member<'_>) -> Option<Version> {
    let version = member.version().filter(|_| member.has_begun() && member.answer().is_none())?;
    let others: Vec<_> =
        view.members.iter().filter(|other| other.is_healthy()).filter_map(Member::answer).collect();
    let are_above = others.iter().all(|answer| {
        let storage = answer.upkeep.storage_version;
        storage.is_some_and(|storage| storage.minor > version.minor)
    });
    others.iter().filter_map(|answer| answer.version).min().filter(|_| are_above)
}

/// The way back that etcd is on, if that is not the one that people want.
pub(super) fn unwanted_way_back(view: &View<'_>) -> Option<Version> {
    let way = way_back(view)?;
    let is_wanted = view.next_version().is_some_and(|next| next.minor == way.minor);
    (!is_wanted).then_some(way)
}

/// The way back that etcd is on.
pub(super) fn way_back(view: &View<'_>) -> Option<Version> {
    view.members.iter().filter(|member| member.is_healthy()).find_map(allowed)
}

/// Lets the cluster go back to a version.
pub(super) fn allow_way_back(plan: &mut Plan<Change>, view: &View<'_>, to: Version) {
    let note = format!("Letting the cluster go back to {}", to.minor_text());
    plan.tell(Event::normal("DowngradeAllowed", note));
    let because = format!("{} is wanted", view.seen.cluster.spec.version);
    next::ask_the_cluster(plan, view, What::AllowDowngrade { to }, &because);
}

/// Keeps the cluster from going back.
pub(super) fn cancel_way_back(plan: &mut Plan<Change>, view: &View<'_>, because: &str) {
    plan.tell(Event::normal("DowngradeCancelled", format!("The cluster does not go back now: {because}")));
    next::ask_the_cluster(plan, view, What::CancelDowngrade, because);
}

/// How far the members are on their way.
pub(super) fn condition(view: &View<'_>) -> Option<Condition> {
    let condition = |status, reason: &str, message: String| {
        Some(Condition { kind: "UpToDate", status, reason: reason.to_owned(), message })
    };
    let (to, wanted) = (view.next_version()?, view.wanted_version()?);
    let begun: Vec<_> = view.members.iter().filter(|member| member.is_kept() && member.has_begun()).collect();
    let there = begun.iter().filter(|member| member.version() == Some(to)).count();
    let Some(next) = begun.iter().find(|member| member.version() != Some(to)) else {
        return match to == wanted {
            true => condition(ConditionStatus::True, "AsWanted", format!("all members are to run {to}")),
            false if !next::all_are_there(view) => condition(
                ConditionStatus::False,
                "Waiting",
                format!("all members run {to}, and are not all there"),
            ),
            false => {
                condition(ConditionStatus::False, "NoWay", format!("etcd has no way from {to} to {wanted}"))
            }
        };
    };
    let from = next.version()?;
    let reason = match is_changing(view) {
        false => "NoWay",
        true if to < from => "Downgrading",
        true => "Upgrading",
    };
    let why = match obstacle(view, next, to) {
        _ if !next::all_are_there(view) => "waits until all members are there and well".to_owned(),
        Some(Obstacle::Wait(why)) => format!("waits: {why}"),
        Some(Obstacle::First(_)) => "waits until etcd allows the way back".to_owned(),
        Some(Obstacle::OldEntries) => {
            "waits until what was written before 3.6 is in a snapshot of its log: nobody else can read it"
                .to_owned()
        }
        None => "is next".to_owned(),
    };
    let (all, name) = (begun.len(), &next.name);
    condition(
        ConditionStatus::False,
        reason,
        format!(
            "{there} of {all} members run {to}, on the way to {wanted}; {name} goes from {from} to {to}, and {why}"
        ),
    )
}
