//! What the page on etcd promises of the status, of waiting and of going other ways, one sentence a test.

use etcd_operator::{
    analyse::analyse,
    api::{Data, EtcdClusterStatus, Phase, QuorumLoss},
    observe::{PodWait, Seen},
};
use rand::{SeedableRng as _, rngs::SmallRng};
use rstest::rstest;
use wheelhouse::{Known, Plan, jiff::Timestamp};

use super::{condition, is_ready, model::World, observed, seen_without_a_quorum, settled, steps, turn};

/// What people are told of what was seen.
fn told(seen: &Seen) -> EtcdClusterStatus {
    serde_json::from_value(analyse(seen).status.unwrap()).unwrap()
}

fn turns(world: &mut World, random: &mut SmallRng, times: usize) {
    for _ in 0..times {
        turn(world, random);
    }
}

fn pass(world: &mut World, seconds: u64) {
    world.now += std::time::Duration::from_secs(seconds);
}

/// A cluster that began with that version.
fn settled_with(size: i32, version: &str) -> (World, SmallRng) {
    let mut random = SmallRng::seed_from_u64(11);
    let mut world = World::new(size);
    world.cluster.spec.version = version.to_owned();
    turns(&mut world, &mut random, 100);
    assert!(is_ready(&world), "{:#?}", world.story);
    world.story.clear();
    (world, random)
}

fn names(members: &[&str]) -> Vec<String> {
    members.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn before_it_has_begun_a_cluster_is_being_created_and_says_where_it_will_be() {
    let (mut world, mut random) = (World::new(3), SmallRng::seed_from_u64(1));
    turn(&mut world, &mut random);
    let told = told(&world.observe(&mut random));
    assert_eq!(told.phase, Some(Phase::Creating));
    assert_eq!((told.members.ready, told.members.unready), (names(&[]), names(&["db-0", "db-1", "db-2"])));
    assert_eq!((told.size, told.ready_members), (0, 0));
    assert_eq!((told.current_version.as_str(), told.target_version.as_str()), ("", "3.6.16"));
    assert_eq!((told.service_name.as_str(), told.client_port), ("db-client", 2379));
    assert_eq!(told.selector, "app=etcd,etcd_cluster=db");
}

#[test]
fn the_status_names_who_is_ready_and_who_is_not() {
    let (mut world, mut random) = settled(3);
    let well = told(&observed(&mut world, &mut random));
    assert_eq!(well.phase, Some(Phase::Running));
    assert_eq!((well.members.ready, well.members.unready), (names(&["db-0", "db-1", "db-2"]), names(&[])));
    assert_eq!((well.size, well.ready_members, well.last_ordinal), (3, 3, Some(2)));
    assert!(well.cluster_id.is_some() && well.unreachable.is_empty());
    world.pods.get_mut("db-1").unwrap().cut_off = true;
    let one_is_away = told(&observed(&mut world, &mut random));
    assert_eq!(one_is_away.phase, Some(Phase::Running));
    assert_eq!(one_is_away.members.ready, names(&["db-0", "db-2"]));
    assert_eq!(one_is_away.members.unready, names(&["db-1"]));
    assert_eq!((one_is_away.size, one_is_away.ready_members), (3, 2), "it still has a vote");
    assert!(one_is_away.unreachable.contains_key("db-1"));
    assert_eq!(condition(&observed(&mut world, &mut random), "Ready").1, "Recovering");
}

#[test]
fn every_condition_is_of_the_generation_that_was_seen() {
    let (mut world, mut random) = settled(3);
    world.cluster.metadata.generation = Some(12);
    let told = told(&observed(&mut world, &mut random));
    assert_eq!(told.observed_generation, Some(12));
    let kinds: Vec<_> = told.conditions.iter().map(|known| known.type_.as_str()).collect();
    for kind in ["Available", "Ready", "Durable", "MembersKnown", "NoAlarm", "Complete", "UpToDate"] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    assert!(told.conditions.iter().all(|known| known.observed_generation == Some(12)));
}

/// The current version is the oldest that a member runs, and the target is told until it is reached.
#[rstest]
#[case::up("3.7.3")]
#[case::down("3.5.35")]
fn the_versions_are_told_on_every_step_of_the_way(#[case] wanted: &str) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = wanted.to_owned();
    let mut seen_on_the_way = false;
    for _ in 0..150 {
        turn(&mut world, &mut random);
        let seen = observed(&mut world, &mut random);
        let told = told(&seen);
        let answering = seen.pods.iter().filter_map(|pod| pod.etcd.value()?.version);
        let Some(oldest) = answering.min() else { continue };
        // Who answers and is not counted as well is on its way in or out.
        if told.members.unready.is_empty() {
            assert_eq!(told.current_version, oldest.to_string(), "{:#?}", world.story);
        }
        let is_there = told.current_version == wanted;
        seen_on_the_way |= !is_there;
        assert_eq!(told.target_version, if is_there { "" } else { wanted });
    }
    assert!(seen_on_the_way && is_ready(&world), "{:#?}", world.story);
    assert_eq!(super::status(&world).current_version, wanted);
}

#[test]
fn a_lost_quorum_is_told_at_the_next_look_and_heals_when_pods_come_back() {
    let (mut world, mut random) = settled(3);
    let members: Vec<_> = world.list.iter().map(|listed| listed.id).collect();
    for name in ["db-1", "db-2"] {
        world.pods.remove(name);
    }
    let seen = seen_without_a_quorum(&mut world, &mut random);
    let (status, reason, message) = condition(&seen, "Available");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuorumLost"));
    assert_eq!(message, "1 of the 2 members that a quorum takes are running");
    let events = analyse(&seen).events;
    let event = events.iter().find(|event| event.reason == "QuorumLost").unwrap();
    assert_eq!(event.note, message);
    assert_eq!(told(&seen).phase, Some(Phase::Running), "it served, and will again");
    assert_eq!(steps(&seen), ["create Pod db-1", "create Pod db-2"]);
    turns(&mut world, &mut random, 40);
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(world.list.iter().map(|listed| listed.id).collect::<Vec<_>>(), members);
    assert_eq!(world.incarnations_begun.len(), 1);
}

#[test]
fn a_cluster_that_needs_a_person_has_failed_and_says_so_in_an_event() {
    let (mut world, mut random) = settled(3);
    for name in ["db-1", "db-2"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    world.run_pods(&mut random);
    let seen = seen_without_a_quorum(&mut world, &mut random);
    assert_eq!(told(&seen).phase, Some(Phase::Failed));
    let events = analyse(&seen).events;
    let event = events.iter().find(|event| event.reason == "QuorumLost").unwrap();
    assert!(event.note.contains("the data of db-1, db-2 is lost"), "{}", event.note);
}

#[rstest]
#[case::sooner_than_it_is_by_default(120)]
#[case::later(5000)]
fn a_member_is_given_up_after_as_long_as_people_want(#[case] seconds: u64) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.replace_after_seconds = i64::try_from(seconds).unwrap();
    world.pods.get_mut("db-2").unwrap().cut_off = true;
    turns(&mut world, &mut random, 20);
    // A turn takes a second.
    pass(&mut world, seconds - 60);
    turns(&mut world, &mut random, 10);
    assert!(world.list.iter().any(|listed| listed.name == "db-2"), "{:#?}", world.story);
    pass(&mut world, 60);
    // Whoever takes its place may die as it begins, and is made anew a minute later.
    turns(&mut world, &mut random, 150);
    assert!(world.list.iter().all(|listed| listed.name != "db-2"), "{:#?}", world.story);
    assert!(is_ready(&world), "{:#?}", world.story);
}

#[rstest]
#[case::at_once(0, 0)]
#[case::later_than_it_is_by_default(3000, 2900)]
fn a_cluster_begins_anew_after_as_long_as_people_want(#[case] seconds: i64, #[case] too_early: u64) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    world.cluster.spec.recovery.restore_after_seconds = seconds;
    for name in ["db-0", "db-2"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    turns(&mut world, &mut random, 10);
    pass(&mut world, too_early);
    turns(&mut world, &mut random, 10);
    assert_eq!(world.incarnation(), u32::from(too_early == 0), "{:#?}", world.story);
    pass(&mut world, 200);
    turns(&mut world, &mut random, 120);
    assert_eq!(world.incarnation(), 1, "{:#?}", world.story);
    assert!(is_ready(&world), "{:#?}", world.story);
}

/// A member that this operator did not make stays, whatever becomes of the others, and is told all the time.
#[test]
fn strangers_stay_while_others_are_replaced_and_sizes_change() {
    let (mut world, mut random) = settled(5);
    let mut stranger = world.list[0].clone();
    stranger.id = etcd_operator::etcd::Id(0xbad);
    stranger.name = "somebody".to_owned();
    stranger.peer_urls = vec!["http://elsewhere:2380".to_owned()];
    world.list.push(stranger);
    world.volumes.get_mut("db-1").unwrap().1.log = None;
    world.pods.get_mut("db-1").unwrap().runs = false;
    turns(&mut world, &mut random, 60);
    assert!(
        world.list.iter().all(|listed| listed.name != "db-1"),
        "it has lost its data: {:#?}",
        world.story
    );
    let seen = observed(&mut world, &mut random);
    assert_eq!(condition(&seen, "Ready").1, "Strangers");
    assert!(condition(&seen, "MembersKnown").2.contains("bad (somebody)"));
    for size in [3, 7, 1] {
        world.cluster.spec.size = size;
        turns(&mut world, &mut random, 60);
        let is_there = world.list.iter().any(|listed| listed.name == "somebody");
        assert!(is_there && world.has_quorum(), "{size}: {:#?}", world.story);
    }
}

/// A minor version is left upwards from the patch level that is tested, by every member.
#[test]
fn the_next_minor_version_is_reached_by_way_of_the_patch_level_that_it_requires() {
    let (mut world, mut random) = settled_with(3, "3.5.19");
    world.cluster.spec.version = "3.6.16".to_owned();
    turns(&mut world, &mut random, 200);
    assert!(is_ready(&world), "{:#?}", world.story);
    let began = |version: &str| {
        let lines = world.story.iter().enumerate();
        let lines = lines.filter(|(_, line)| line.contains(&format!(" runs {version} ")));
        lines.map(|(number, _)| number).collect::<Vec<_>>()
    };
    let (before, after) = (began("3.5.35"), began("3.6.16"));
    assert_eq!((before.len(), after.len()), (3, 3), "{:#?}", world.story);
    assert!(before.last() < after.first(), "{:#?}", world.story);
}

/// Whoever gets past admission goes one minor version at a time all the same.
#[test]
fn two_minor_versions_are_gone_one_after_the_other() {
    let (mut world, mut random) = settled_with(3, "3.5.35");
    world.cluster.spec.version = "3.7.3".to_owned();
    turns(&mut world, &mut random, 300);
    assert!(is_ready(&world), "{:#?}", world.story);
    let ran =
        |version: &str| world.story.iter().filter(|line| line.contains(&format!(" runs {version} "))).count();
    assert_eq!((ran("3.6.16"), ran("3.7.3")), (3, 3), "{:#?}", world.story);
}

/// And where etcd has no way at all, nothing is tried, and that is told.
#[test]
fn a_version_that_etcd_has_no_way_to_is_told_and_nothing_is_done() {
    let (mut world, mut random) = settled_with(3, "3.5.35");
    world.cluster.spec.version = "3.4.30".to_owned();
    let seen = observed(&mut world, &mut random);
    assert_eq!(steps(&seen), [""; 0]);
    let (status, reason, message) = condition(&seen, "UpToDate");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoWay"), "{message}");
    assert!(message.contains("from 3.5.35 to 3.4.30"), "{message}");
}

#[test]
fn a_cluster_that_is_deleted_is_left_to_the_garbage_collector() {
    let (mut world, mut random) = settled(3);
    world.pods.clear();
    let mut seen = world.observe(&mut random);
    seen.cluster.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert_eq!(analyse(&seen), Plan::new());
}

/// The supervisor knows best why there is no data; people are told in its words.
#[test]
fn why_a_member_is_replaced_is_told_in_the_words_of_its_supervisor() {
    let (mut world, mut random) = settled(3);
    let mut seen = observed(&mut world, &mut random);
    let words = "this member had data, and its folder is empty";
    (seen.records[1].status.data, seen.records[1].status.message) = (Some(Data::Lost), words.to_owned());
    seen.pods[1].etcd = Known::Unknown { why: "connection refused".to_owned(), since: seen.now };
    let events = analyse(&seen).events;
    let event = events.iter().find(|event| event.reason == "ReplacingMember").unwrap();
    assert_eq!(event.note, format!("Replacing member db-1: {words}"));
    let (_, reason, message) = condition(&seen, "Ready");
    assert!(reason == "Recovering" && message.contains(words), "{message}");
}

/// What a record says may be what the pod before this one said.
#[test]
fn nobody_is_offered_to_etcd_on_the_word_of_a_pod_that_is_gone() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.size = 4;
    let is_offered = |seen: &Seen| steps(seen).iter().any(|step| step == "add member db-3 as a learner");
    let mut seen = loop {
        let seen = observed(&mut world, &mut random);
        if is_offered(&seen) {
            break seen;
        }
        turn(&mut world, &mut random);
    };
    let record = seen.records.iter_mut().find(|record| record.reference.name == "db-3").unwrap();
    record.status.pod = "another".to_owned();
    assert!(!is_offered(&seen), "{:?}", steps(&seen));
}

/// Before a member is anybody, what its pod waits for is all that there is to say.
#[test]
fn what_a_pod_waits_for_is_told() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.size = 4;
    turns(&mut world, &mut random, 1);
    let mut seen = observed(&mut world, &mut random);
    let mut new = seen.pods[0].clone();
    new.reference.name = "db-3".to_owned();
    (new.etcd, new.ready, new.address) = (Known::Absent, false, None);
    new.waits_for = Some(PodWait::Node("0/3 nodes are available".to_owned()));
    seen.pods.push(new);
    let (_, _, message) = condition(&seen, "Ready");
    assert!(message.contains("waiting for db-3 (0/3 nodes are available)"), "{message}");

    let (mut world, mut random) = settled(3);
    world.backup = Some(2);
    world.ask_for_the_backup(true);
    while !world.pods.contains_key("db-3") {
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
    }
    let mut seen = observed(&mut world, &mut random);
    let coming = seen.pods.iter_mut().find(|pod| pod.reference.name == "db-3").unwrap();
    let words = "containers with incomplete status: [fetch]".to_owned();
    coming.waits_for = Some(PodWait::Preparation(words.clone()));
    let said = seen.records.iter_mut().find(|record| record.reference.name == "db-3").unwrap();
    (said.status.pod, said.status.message) = ("the one before".to_owned(), "half of it is there".to_owned());
    let (_, reason, message) = condition(&seen, "Ready");
    assert_eq!(reason, "Restoring");
    assert!(message.contains(&format!("its pod has not started: {words}")), "{message}");
}
