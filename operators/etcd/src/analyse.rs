//! Analyse: from what was seen of an EtcdCluster to what is to be done. Pure.
//!
//! The invariants are those of `docs/decisions/0016-etcd-records-and-supervisors.md`. What can be done
//! without harm (records, volumes and pods that are missing) is done at once. Of what can do harm at
//! most one step is in a plan, and it is the last: `next` says which.

mod alarms;
mod anew;
mod backup;
mod certificates;
mod defragmentation;
mod next;
mod status;
mod versions;
mod volumes;

use std::time::Duration;

use serde_json::json;
use wheelhouse::{Event, Plan, Reference, Step};

use crate::{
    act::Change,
    api::{Data, DeletionPolicy, EtcdClusterStatus, Intent, Join, SEED},
    children::{self, Images, member_name, ordinal_in},
    observe::{RecordSeen, Seen},
    view::{Member, View},
};

/// How often the world is looked at when all is well.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// And while something is to change.
const LOOK_OFTEN: Duration = Duration::from_millis(200);
/// What has not changed for a while is not about to: it is looked at after so small a part of that while.
const PART_OF_THE_WAIT: u32 = 20;

pub(crate) use self::versions::depends_on_hashes;

/// What is to be done about one cluster.
pub fn analyse(seen: &Seen) -> Plan<Change> {
    let mut plan = Plan::new();
    if seen.cluster.metadata.deletion_timestamp.is_some() || !seen.is_ours {
        return plan;
    }
    let view = View::of(seen);
    let new = match seen.cluster.spec.paused || view.confusion.is_some() {
        true => New::default(),
        false => act_on(&mut plan, &view),
    };
    let status = status::status(&view, &new);
    let only_applies = plan.steps.iter().all(|planned| matches!(planned.step, Step::Apply(_)));
    let is_well = status.ready_members == seen.cluster.spec.size;
    plan.look_again_after(match only_applies {
        true if is_well => LOOK_EVERY,
        // There is nothing to do but to wait: for a node, say, together with a thousand other clusters.
        true => (waiting_for(seen, &status) / PART_OF_THE_WAIT).clamp(LOOK_OFTEN, LOOK_EVERY),
        false => LOOK_OFTEN,
    });
    for event in status::events(&view, &status) {
        plan.tell(event);
    }
    plan.set_status(&status);
    plan
}

/// For how long the cluster has not been ready.
fn waiting_for(seen: &Seen, status: &EtcdClusterStatus) -> Duration {
    let ready = status.conditions.iter().find(|known| known.type_ == status::READY && known.status != "True");
    let waiting = ready.map(|known| seen.now.duration_since(known.last_transition_time.0));
    waiting.and_then(|waiting| Duration::try_from(waiting).ok()).unwrap_or_default()
}

/// Members that are made now.
#[derive(Clone, Debug, Default)]
pub(crate) struct New {
    /// Their numbers.
    pub(crate) ordinals: Vec<u32>,
    /// What keeps pods from being made, in words.
    pub(crate) problem: Option<String>,
}

fn act_on(plan: &mut Plan<Change>, view: &View<'_>) -> New {
    let mut new = New::default();
    certificates::look_after(plan, view);
    apply_children(plan, view, &mut new);
    write_lost_records_again(plan, view);
    for ordinal in &new.ordinals {
        let (number, version) = (view.incarnation.number, view.version_of_new());
        let mut record = children::record(&view.seen.cluster, *ordinal, Intent::Waiting, number, version);
        record.spec.source = view.source().cloned();
        plan.create(&record, format!("{} of {} members are there", kept(view), view.target()));
    }
    if let Some(record) = anew::coming(view).filter(|_| new.ordinals.is_empty()) {
        plan.create(&record, "the cluster is to be restored");
    }
    let to_run = view.members.iter().filter(|member| is_to_run(view, member));
    let to_come = view.coming.iter().filter(|member| member.is_kept());
    for member in to_run.chain(to_come) {
        if view.waits_for_former_pods() && member.pod.is_none() {
            continue;
        }
        keep_volume(plan, view, member);
        new.problem = make_pod(plan, view, member).or(new.problem);
    }
    offer(plan, view);
    next::step(plan, view);
    backup::look_after(plan, view.seen);
    new
}

fn kept(view: &View<'_>) -> usize {
    view.members.iter().filter(|member| member.is_kept()).count()
}

fn apply_children(plan: &mut Plan<Change>, view: &View<'_>, new: &mut New) {
    let cluster = &view.seen.cluster;
    // Who ended before it was anybody is replaced later: whatever ended it would end the next one, too.
    let stays = |member: &&Member<'_>| !member.is_to_go();
    let never_were = view.members.iter().filter(|member| member.is_lost_before_it_was_anybody());
    let never_were = never_were.filter(stays).count();
    let missing = match view.waits_for_former_pods() {
        true => 0,
        false => view.target().saturating_sub(kept(view) + never_were),
    };
    new.ordinals = (view.next_ordinal()..).take(missing).collect();
    plan.apply(&children::peer_service(cluster), "members find each other by it");
    plan.apply(&children::client_service(cluster), "clients find the members by it");
    plan.apply(
        &children::disruption_budget(cluster, view.voter_count()),
        "a quorum stays when nodes are drained",
    );
    let all = view.members.iter().chain(&view.former).chain(&view.coming);
    let old = all.filter(|member| member.record.is_some()).map(|member| member.ordinal);
    let names: Vec<_> =
        old.chain(new.ordinals.iter().copied()).map(|ordinal| member_name(&view.name, ordinal)).collect();
    plan.apply(&children::service_account(cluster), "the supervisors are somebody of their own");
    plan.apply(&children::role(cluster, &names), "the supervisors may say what they find");
    plan.apply(&children::role_binding(cluster), "the supervisors may say what they find");
    if let Some(seed) = new_seed(view, new) {
        let step = Step::Update {
            target: Reference::of(cluster),
            fields: json!({"metadata": {"annotations": {SEED: seed}}}),
        };
        plan.step(step, format!("the cluster is to begin with {seed}"));
    }
}

/// The member with which a cluster that has not begun is to begin, if that has yet to be said.
///
/// Whoever began may have served, whatever the annotation says: it is the seed. Another is named only after
/// the record of the one before says that it leaves, so that it cannot begin any more.
fn new_seed(view: &View<'_>, new: &New) -> Option<String> {
    if view.has_begun() || view.waits_for_former_pods() {
        return None;
    }
    if let Some(member) = view.members.iter().find(|member| member.may_have_served()) {
        return (view.seed() != Some(&member.name)).then(|| member.name.clone());
    }
    let is_first =
        |name: &str| new.ordinals.first().is_some_and(|ordinal| member_name(&view.name, *ordinal) == name);
    let stands = |name: &str| match view.member(name) {
        Some(member) => !member.is_to_go(),
        // It is about to be made.
        None => is_first(name),
    };
    // A cluster that is to begin from a backup does not begin without it meanwhile.
    if view.seed().is_some_and(stands) || view.request.is_some() {
        return None;
    }
    let begins_as_wanted =
        |member: &&Member<'_>| member.is_kept() && member.only_waits() && member.source() == view.source();
    let waiting = view.members.iter().find(begins_as_wanted);
    let name = waiting.map(|member| member.name.clone());
    name.or_else(|| new.ordinals.first().map(|ordinal| member_name(&view.name, *ordinal)))
}

/// A record that is not there is written again, if etcd lists its member, or there is a pod or a volume of it:
/// nothing is decided on a record's absence but by writing one, which fails if it is there after all. A member that is
/// known to be none leaves; of others nobody may take an empty folder for a beginning.
fn write_lost_records_again(plan: &mut Plan<Change>, view: &View<'_>) {
    for member in view.members.iter().filter(|member| member.record.is_none()) {
        let is_member = member.listed.is_some_and(|listed| !listed.name.is_empty());
        let has_something = member.pod.is_some() || member.volume.is_some();
        let intent = match view.is_out(member) {
            true if has_something => Intent::Leaving,
            false if is_member || (has_something && view.is_without_a_list()) => Intent::Existing,
            _ => continue,
        };
        let version = member.version().or(view.version_of_new());
        let number = view.incarnation.number;
        let record = children::record(&view.seen.cluster, member.ordinal, intent, number, version);
        plan.create(&record, format!("{} has no record", member.name));
    }
    // A seed of which nothing is there can begin no more once its record says so.
    if let Some(seed) = view.seed().filter(|seed| !view.has_begun() && view.member(seed).is_none())
        && let Some(ordinal) = ordinal_in(&view.name, seed).filter(|ordinal| *ordinal < view.next_ordinal())
    {
        let number = view.incarnation.number;
        let record = children::record(&view.seen.cluster, ordinal, Intent::Leaving, number, None);
        plan.create(&record, format!("{seed} was to be the first, and is not there"));
    }
}

/// Whether a member is to have a pod: if it is to be one; if it leaves and etcd still counts on it; or if only its
/// supervisor can say that it has nothing.
fn is_to_run(view: &View<'_>, member: &Member<'_>) -> bool {
    let may_be_one =
        view.is_without_a_list() && !view.is_out(member) && member.intent() != Some(Intent::Left);
    let still_counts = member.is_to_go() && (member.listed.is_some() || may_be_one);
    member.is_kept() || (still_counts && !member.is_lost()) || is_seed_that_was_not_heard(view, member)
}

/// A seed that began and whose volume is gone, before anybody knew the cluster: it is given up only on the word of its
/// supervisor, which needs a pod to say so. In an empty folder it starts nothing.
fn is_seed_that_was_not_heard(view: &View<'_>, member: &Member<'_>) -> bool {
    let is_seed = !view.has_begun() && view.seed() == Some(member.name.as_str());
    let has_said_so = member.record.is_none_or(|record| record.status.data == Some(Data::Lost));
    is_seed && !member.is_to_go() && member.is_lost() && !has_said_so
}

/// A volume is made as a child, which fails if somebody else has one of that name, and is let go if it is to
/// stay when the cluster goes.
fn keep_volume(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>) {
    let cluster = &view.seen.cluster;
    if cluster.spec.storage.empty_dir {
        return;
    }
    let goes = cluster.spec.deletion_policy == DeletionPolicy::Delete;
    match member.volume {
        None => {
            let incarnation = member.record.map_or(0, |record| record.spec.incarnation);
            let wish = children::volume(cluster, &member.name, incarnation);
            plan.apply(&wish, format!("{} needs a place", member.name));
        }
        Some(volume) if goes && !volume.goes_with_the_cluster => {
            let target = volume.reference.clone();
            plan.step(Step::Adopt { target }, "the volumes are to go with the cluster");
        }
        Some(volume) if !goes && volume.goes_with_the_cluster => {
            let fields = json!({"metadata": {"ownerReferences": volume.other_owners}});
            let target = volume.reference.clone();
            plan.step(Step::Update { target, fields }, "the volumes are to stay when the cluster goes");
        }
        Some(_) => {}
    }
}

/// Makes the pod of a member that has none; what keeps it from being made, in words.
fn make_pod(plan: &mut Plan<Change>, view: &View<'_>, member: &Member<'_>) -> Option<String> {
    if member.pod.is_some() || !certificates::are_ready(view) {
        return None;
    }
    let images = Images { repository: &view.seen.repository, supervisor: &view.seen.supervisor_image };
    let version = member.intended_version().or(view.version_of_new())?;
    let record = member.record?;
    let made = children::pod(&view.seen.cluster, &member.name, version, &images);
    let mut spec = record.spec.clone();
    // Who began has what it began with.
    spec.source.take_if(|_| record.status.began);
    match made.and_then(|pod| children::seed_pod(&pod, &spec, images.supervisor)) {
        Ok(pod) => {
            plan.create(&pod, format!("{} has no pod", member.name));
            None
        }
        Err(why) => Some(why),
    }
}

/// Tells members that etcd lists how to join.
fn offer(plan: &mut Plan<Change>, view: &View<'_>) {
    for member in &view.members {
        let (Some(record), Some(listed)) = (member.record, member.listed) else { continue };
        if record.spec.intent == Intent::Joining && record.spec.join.is_none() {
            let join = Join { member_id: listed.id, initial_cluster: initial_cluster(view, member) };
            let fields = json!({"spec": {"join": join}});
            plan.tell(Event::normal("MemberAdded", format!("Member {} added as {}", member.name, listed.id)));
            plan.step(
                Step::Update { target: record.reference.clone(), fields },
                format!("etcd lists {} as {}", member.name, listed.id),
            );
        }
    }
}

/// With whom a member starts: everybody that has started, and itself.
fn initial_cluster(view: &View<'_>, joining: &Member<'_>) -> String {
    let mut all = Vec::new();
    for listed in view.list.unwrap_or_default() {
        let is_it = joining.listed.is_some_and(|itself| itself.id == listed.id);
        let name = if is_it { joining.name.as_str() } else { listed.name.as_str() };
        all.extend(listed.peer_urls.iter().map(|url| format!("{name}={url}")));
    }
    all.sort();
    all.join(",")
}

/// An update of what is intended of a member, under the version of its record.
pub(crate) fn intend(plan: &mut Plan<Change>, record: &RecordSeen, intent: Intent, because: &str) {
    if record.spec.intent != intent {
        let step =
            Step::Update { target: record.reference.clone(), fields: json!({"spec": {"intent": intent}}) };
        plan.step(step, because);
    }
}

/// What people are told when a member leaves for good.
pub(crate) fn told_of_leaving(plan: &mut Plan<Change>, member: &str, why: &str) {
    plan.tell(Event::warning("ReplacingMember", format!("Replacing member {member}: {why}")));
}
