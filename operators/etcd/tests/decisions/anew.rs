//! A cluster that begins anew: from a survivor, or from a backup.

use etcd_operator::{
    analyse::analyse,
    api::{EtcdMember, INCARNATION, Intent, QuorumLoss, backup::RESTORE},
    incarnation::{Incarnation, Source},
};
use rand::rngs::SmallRng;
use rstest::rstest;
use wheelhouse::{Step, kube::ResourceExt as _};

use super::{condition, is_ready, seen_without_a_quorum, settled, status, steps, turn};
use crate::model::World;

/// A cluster of three of which two have lost everything; what the third holds.
fn with_one_survivor(policy: QuorumLoss) -> (World, SmallRng, u64) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = policy;
    for name in ["db-0", "db-2"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    let held = world.volumes["db-1"].1.log.unwrap().1;
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    (world, random, held)
}

fn incarnation(world: &World) -> Option<Incarnation> {
    world.cluster.annotations().get(INCARNATION).map(|text| serde_json::from_str(text).unwrap())
}

#[test]
fn a_quorum_that_is_lost_for_good_waits_for_a_person_and_says_what_is_left() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Wait);
    world.now += std::time::Duration::from_secs(100_000);
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(incarnation(&world), None);
    let (status, reason, message) = condition(&world.observe(&mut random), "Available");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuorumGone"));
    assert!(message.contains(&format!("db-1 has everything up to revision {held}")), "{message}");
    assert!(message.contains("until somebody decides"), "{message}");
}

#[test]
fn who_opted_in_begins_anew_from_the_survivor_once_it_is_certain_for_long_enough() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    assert_eq!(incarnation(&world), None, "it is too early");
    world.now += std::time::Duration::from_secs(60);
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    let begun = incarnation(&world).unwrap();
    let survivor = Source::Survivor { member: "db-1".to_owned(), claim: "db-1".to_owned() };
    assert_eq!(begun.source, Some(survivor));
    assert!(world.acknowledged >= held, "what the survivor had is there");
    let (status, reason, message) = condition(&world.observe(&mut random), "Complete");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "BegunAnew"));
    assert!(message.contains(&format!("everything up to revision {held} is kept")), "{message}");
    for name in ["db-0", "db-1", "db-2"] {
        assert!(world.volumes.contains_key(name), "the volume of {name} stays");
    }
    assert_eq!((world.pods.len(), world.records.len()), (3, 3), "{:#?}", world.story);
}

/// The bound of what may be lost is told before anything is done.
#[test]
fn what_may_be_lost_is_told_in_an_event_before_the_cluster_begins_anew() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.now += std::time::Duration::from_secs(60);
    let event = loop {
        let plan = analyse(&world.observe(&mut random));
        if let Some(event) = plan.events.iter().find(|event| event.reason == "BeginningAnew") {
            assert_eq!(incarnation(&world), None, "nothing was done yet");
            break event.clone();
        }
        world.follow(&plan, None, &mut random);
    };
    assert!(event.note.contains(&format!("everything up to revision {held} is kept")), "{}", event.note);
    assert!(event.note.contains("what was acknowledged after that is lost"), "{}", event.note);
}

/// No other pod can read what is in the survivor's. That it would begin anew by itself is not said.
#[test]
fn from_data_in_a_pod_nothing_begins_anew_and_that_is_told() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.now += std::time::Duration::from_secs(600);
    let mut seen = seen_without_a_quorum(&mut world, &mut random);
    seen.cluster.spec.storage.empty_dir = true;
    seen.volumes.clear();
    assert_eq!(steps(&seen), [""; 0]);
    let (_, reason, message) = condition(&seen, "Available");
    assert_eq!(reason, "QuorumGone", "{message}");
    assert!(message.contains(&format!("db-1 has everything up to revision {held}")), "{message}");
    assert!(message.contains("restore a backup in place"), "{message}");
    assert!(!message.contains("the cluster begins anew"), "{message}");
}

/// Clients of a cluster that has served know later revisions than the backup has; those of a new one know none.
#[test]
fn revisions_are_moved_forward_where_clients_know_later_ones() {
    let moves = |world: &mut World, random: &mut SmallRng| {
        let plan = analyse(&world.observe(random));
        let made = plan.steps.into_iter().find_map(|planned| match planned.step {
            Step::Create(object) if object.kind.kind == "EtcdMember" => Some(object.content),
            _ => None,
        });
        let record: EtcdMember = serde_json::from_value(made.unwrap()).unwrap();
        match record.spec.source {
            Some(Source::Backup { moves_revisions, .. }) => moves_revisions,
            other => panic!("it begins from {other:?}"),
        }
    };
    let (mut running, mut random) = with_a_request();
    assert!(moves(&mut running, &mut random));
    let mut new = World::new(3);
    new.backup = Some(9);
    new.ask_for_the_backup(true);
    assert!(!moves(&mut new, &mut random));
}

#[test]
fn a_survivor_that_was_restarted_since_is_asked_by_way_of_its_supervisor() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    // etcd serves no client before it has found a quorum once.
    world.pods.get_mut("db-1").unwrap().runs = false;
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    let pod = &world.pods["db-1"];
    assert!(pod.runs && !pod.serves, "{:#?}", world.story);
    let (_, reason, message) = condition(&world.observe(&mut random), "Available");
    assert_eq!(reason, "QuorumGone", "{message}");
    assert!(message.contains(&format!("db-1 has everything up to revision {held}")), "{message}");
    world.now += std::time::Duration::from_secs(60);
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    let survivor = Source::Survivor { member: "db-1".to_owned(), claim: "db-1".to_owned() };
    assert_eq!(incarnation(&world).unwrap().source, Some(survivor));
}

#[test]
fn nobody_begins_anew_while_a_member_may_be_behind_a_partition() {
    let (mut world, mut random) = settled(5);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    for name in ["db-0", "db-1"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    world.pods.get_mut("db-2").unwrap().cut_off = true;
    for _ in 0..200 {
        turn(&mut world, &mut random);
        world.now += std::time::Duration::from_secs(60);
    }
    assert_eq!(incarnation(&world), None);
    assert!(!is_ready(&world));
}

#[test]
fn if_everything_is_lost_the_latest_backup_is_what_it_begins_from() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    world.backup = Some(4);
    for (_, disk) in world.volumes.values_mut() {
        disk.log = None;
    }
    world.pods.values_mut().for_each(|pod| pod.runs = false);
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    world.now += std::time::Duration::from_secs(60);
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    let (_, _, message) = condition(&world.observe(&mut random), "Complete");
    assert!(message.contains("everything up to revision 4 is kept, as it was backed up"), "{message}");
}

/// A settled cluster of which a backup is asked for.
fn with_a_request() -> (World, SmallRng) {
    let (mut world, random) = settled(3);
    world.backup = Some(2);
    world.ask_for_the_backup(true);
    (world, random)
}

#[test]
fn a_restore_leaves_a_running_cluster_alone_until_the_backup_lies_ready() {
    let (mut world, mut random) = with_a_request();
    let running = world.pods.clone();
    loop {
        turn(&mut world, &mut random);
        if incarnation(&world).is_some() {
            break;
        }
        for (name, pod) in &running {
            assert_eq!(world.pods[name].reference.uid, pod.reference.uid);
        }
        assert!(is_ready(&world) || condition(&world.observe(&mut random), "Ready").1 == "Restoring");
    }
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(status(&world).restored.unwrap().revision, 2);
    assert_eq!(status(&world).incarnation, 1);
    let again = steps(&world.observe(&mut random));
    assert_eq!(again, [""; 0], "each request is carried out once");
}

#[test]
fn a_restore_that_is_taken_back_in_time_leaves_nothing_behind() {
    let (mut world, mut random) = with_a_request();
    let before = world.pods.keys().cloned().collect::<Vec<_>>();
    turn(&mut world, &mut random);
    assert_eq!(world.records.len(), 4, "{:#?}", world.story);
    world.cluster.annotations_mut().remove(RESTORE);
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(world.pods.keys().cloned().collect::<Vec<_>>(), before);
    assert_eq!((world.records.len(), world.volumes.len(), incarnation(&world)), (3, 3, None));
}

#[test]
fn a_new_cluster_can_begin_from_a_backup() {
    let mut random = rand::SeedableRng::seed_from_u64(3);
    let mut world = World::new(3);
    world.backup = Some(9);
    world.ask_for_the_backup(true);
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    assert!(world.acknowledged >= 9 && !world.incarnations_begun.contains(&0), "it never began from nothing");
}

#[test]
fn what_nobody_can_read_is_told_and_nothing_is_done() {
    let (mut world, mut random) = settled(3);
    world.pods.clear();
    let mut seen = world.observe(&mut random);
    seen.cluster.annotations_mut().insert(INCARNATION.to_owned(), "one".to_owned());
    assert_eq!(steps(&seen), [""; 0]);
    let (_, reason, message) = condition(&seen, "Ready");
    assert!(reason == "Invalid" && message.contains(INCARNATION), "{message}");
}

/// As `kubectl replace` does. The number of the incarnation is in the status, too; what is there is not taken for one that is to
/// come, and nothing begins beside it.
#[test]
fn whoever_takes_the_annotations_off_begins_nothing_and_deletes_nothing() {
    let (mut world, mut random) = with_a_request();
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    let complete = condition(&world.observe(&mut random), "Complete");
    let (volumes, pods) = (world.volumes.len(), world.pods.clone());
    world.story.clear();
    world.cluster.metadata.annotations = None;
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.story, [""; 0]);
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true));
    assert_eq!((world.volumes.len(), world.pods.len()), (volumes, pods.len()));
    assert_eq!(condition(&world.observe(&mut random), "Complete"), complete, "what was lost stays lost");
}

#[test]
fn an_incarnation_that_is_said_to_be_another_than_there_is_is_told_and_nothing_is_done() {
    let (mut world, mut random) = with_a_request();
    for _ in 0..120 {
        turn(&mut world, &mut random);
    }
    let first = serde_json::to_string(&Incarnation::default()).unwrap();
    let mut seen = world.observe(&mut random);
    seen.cluster.annotations_mut().insert(INCARNATION.to_owned(), first.clone());
    assert_eq!(steps(&seen), [""; 0]);
    let (_, reason, message) = condition(&seen, "Ready");
    assert!(reason == "Invalid" && message.contains("incarnation 1 is there"), "{message}");
    // Nor where the status was lost with it: the members know what they are.
    seen.cluster.status = None;
    assert_eq!(steps(&seen), [""; 0]);
    let (_, reason, message) = condition(&seen, "Ready");
    assert!(reason == "Invalid" && message.contains("has begun as a member of incarnation 1"), "{message}");
}

/// What was made ready for the restore has another source.
#[test]
fn a_restore_that_was_taken_back_is_not_what_a_lost_cluster_begins_from() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.backup = Some(1);
    world.ask_for_the_backup(true);
    while !world.records.values().any(|record| record.spec.incarnation == 1) {
        turn(&mut world, &mut random);
    }
    world.cluster.annotations_mut().remove(RESTORE);
    world.now += std::time::Duration::from_secs(600);
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    let survivor = Source::Survivor { member: "db-1".to_owned(), claim: "db-1".to_owned() };
    assert_eq!(incarnation(&world).unwrap().source, Some(survivor));
    assert!(world.acknowledged >= held, "what the survivor had is there: {:#?}", world.story);
}

#[test]
fn a_cluster_that_began_before_it_was_asked_keeps_its_data() {
    let (mut world, mut random) = settled(3);
    world.backup = Some(2);
    world.ask_for_the_backup(false);
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert_eq!(
        (world.incarnation(), is_ready(&world), world.records.len()),
        (0, true, 3),
        "{:#?}",
        world.story
    );
}

/// A power cut of hours that ends with lost data is certain only when it ends.
#[test]
fn the_wait_counts_from_when_a_loss_is_certain() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    world.cluster.spec.recovery.restore_after_seconds = 3600;
    for name in ["db-0", "db-2"] {
        world.pods.get_mut(name).unwrap().cut_off = true;
    }
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    world.now += std::time::Duration::from_secs(7200);
    assert_eq!(status(&world).quorum_gone_since, None, "they may be behind a partition");
    world.heal();
    for name in ["db-0", "db-2"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.incarnation(), 0, "it is known for seconds only: {:#?}", world.story);
    assert!(status(&world).quorum_gone_since.is_some());
    world.now += std::time::Duration::from_secs(3600);
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.incarnation(), 1, "{:#?}", world.story);
}

/// How many voted, and since when they were lost, is what the incarnation before knew.
#[test]
fn an_incarnation_whose_only_member_lost_everything_is_waited_for_anew_and_then_begins_from_the_backup() {
    let (mut world, mut random, _) = with_one_survivor(QuorumLoss::Restore);
    world.backup = Some(1);
    world.now += std::time::Duration::from_secs(60);
    let survivor_has_begun = |world: &World| {
        world.records.values().any(|record| record.spec.incarnation == 1 && record.status.began)
    };
    while !survivor_has_begun(&world) {
        turn(&mut world, &mut random);
    }
    let alone = world.list[0].name.clone();
    world.volumes.get_mut(&alone).unwrap().1.log = None;
    world.pods.get_mut(&alone).unwrap().runs = false;
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.incarnation(), 1, "that is known for seconds only: {:#?}", world.story);
    let (_, reason, message) = condition(&world.observe(&mut random), "Available");
    assert_eq!(reason, "QuorumGone", "{message}");
    world.now += std::time::Duration::from_secs(60);
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (2, true), "{:#?}", world.story);
}

/// Addresses are dealt anew when nodes come back.
#[test]
fn what_another_member_says_at_an_address_is_not_taken_for_a_survivors() {
    let (mut world, mut random, _) = with_one_survivor(QuorumLoss::Restore);
    world.now += std::time::Duration::from_secs(600);
    let mut seen = seen_without_a_quorum(&mut world, &mut random);
    let (_, reason, _) = condition(&seen, "Available");
    assert_eq!(reason, "QuorumGone");
    for record in seen.records.iter_mut().filter(|record| record.reference.name == "db-1") {
        record.status.member_id = Some(etcd_operator::etcd::Id(0xbad));
    }
    let (_, _, message) = condition(&seen, "Available");
    assert!(message.contains("not everybody can be asked what is left"), "{message}");
    assert_eq!(steps(&seen), [""; 0]);
}

/// The pods of members that are to begin from that source.
fn pods_with(world: &World, wanted: impl Fn(&Source) -> bool) -> Vec<String> {
    let has_it = |name: &&String| {
        let record = world.records.get(*name);
        record.and_then(|record| record.spec.source.as_ref()).is_some_and(&wanted)
    };
    world.pods.keys().filter(has_it).cloned().collect()
}

fn is_survivor(source: &Source) -> bool {
    matches!(source, Source::Survivor { .. })
}

/// An incarnation that is to begin has no ID yet, but it will have data.
#[test]
fn a_restore_that_is_not_in_place_does_not_overtake_a_recovery() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.backup = Some(1);
    world.now += std::time::Duration::from_secs(60);
    while incarnation(&world).is_none() {
        turn(&mut world, &mut random);
    }
    world.ask_for_the_backup(false);
    for _ in 0..40 {
        // To copy what is left takes a while.
        for name in pods_with(&world, is_survivor) {
            world.pods.get_mut(&name).unwrap().cut_off = true;
        }
        turn(&mut world, &mut random);
    }
    world.heal();
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    assert!(world.acknowledged >= held, "what the survivor had is there: {:#?}", world.story);
}

/// Another version was asked for, and nobody went on to it before the quorum was lost.
#[rstest]
#[case::one_that_is_too_old("3.5.35", false)]
#[case::one_that_cannot_read_its_log("3.7.3", true)]
fn whoever_begins_anew_runs_what_wrote_the_data(#[case] wanted: &str, #[case] has_old_entries: bool) {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.cluster.spec.version = wanted.to_owned();
    world.volumes.values_mut().for_each(|(_, disk)| disk.has_old_entries = has_old_entries);
    world.now += std::time::Duration::from_secs(60);
    while world.list[0].name == "db-0" {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.pods[&world.list[0].name].version.to_string(), "3.6.16", "{:#?}", world.story);
    for _ in 0..250 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world) && world.acknowledged >= held, "{:#?}", world.story);
    assert!(world.pods.values().all(|pod| pod.version.to_string() == wanted), "{:#?}", world.story);
}

/// It went back to the version before since, and nobody took another backup.
#[test]
fn a_backup_of_a_newer_version_is_begun_from_with_that_one() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    (world.backup, world.backed_up_by) = (Some(4), Some("3.7.3".parse().unwrap()));
    for (_, disk) in world.volumes.values_mut() {
        disk.log = None;
    }
    world.pods.values_mut().for_each(|pod| pod.runs = false);
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    world.now += std::time::Duration::from_secs(60);
    for _ in 0..250 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    assert!(world.story.iter().any(|line| line.contains("runs 3.7.3 as")), "{:#?}", world.story);
    assert!(
        world.pods.values().all(|pod| pod.version.to_string() == "3.6.16"),
        "it goes back: {:#?}",
        world.story
    );
}

/// Its supervisor may have looked just before, and write that it begins right after.
#[test]
fn nobody_begins_beside_a_seed_that_may_yet_begin() {
    let (mut world, mut random) = (World::new(3), rand::SeedableRng::seed_from_u64(3));
    for _ in 0..2 {
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
    }
    world.pods.get_mut("db-0").unwrap().cut_off = true;
    world.backup = Some(9);
    world.ask_for_the_backup(false);
    let begins =
        |step: &Step<_>| matches!(step, Step::Update { target, .. } if target.kind.kind == "EtcdCluster");
    let plan = loop {
        let plan = analyse(&world.observe(&mut random));
        if plan.steps.iter().any(|planned| begins(&planned.step)) {
            break plan;
        }
        world.follow(&plan, None, &mut random);
        world.run_pods(&mut random);
    };
    let mut silent = world.clone();
    silent.records.get_mut("db-0").unwrap().status.began = true;
    let (_, _, message) = condition(&silent.observe(&mut random), "Ready");
    assert!(message.contains("the restore restore waits: db-0 began before"), "{message}");
    let mut late = world.clone();
    late.heal();
    while late.incarnations_begun.is_empty() {
        late.run_pods(&mut random);
    }
    late.follow(&plan, None, &mut random);
    assert_eq!(incarnation(&late), None, "it began first: {:#?}", late.story);
    for _ in 0..60 {
        turn(&mut late, &mut random);
    }
    assert_eq!((late.incarnation(), is_ready(&late)), (0, true), "{:#?}", late.story);
    world.follow(&plan, None, &mut random);
    world.heal();
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    assert!(world.acknowledged >= 9 && !world.incarnations_begun.contains(&0), "{:#?}", world.story);
}

#[test]
fn a_seed_on_a_node_that_is_gone_is_replaced_by_another_with_the_same_source() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    world.now += std::time::Duration::from_secs(60);
    let seed = loop {
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
        // Its supervisor has not said anything yet.
        if let Some(name) = pods_with(&world, is_survivor).pop() {
            break name;
        }
        world.run_pods(&mut random);
    };
    world.lose_the_node_of(&seed);
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.records[&seed].spec.intent, Intent::Waiting, "it may come back: {:#?}", world.story);
    world.now += std::time::Duration::from_secs(600);
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world) && world.acknowledged >= held, "{:#?}", world.story);
    assert_eq!(world.incarnation(), 1);
    let survivor = Source::Survivor { member: "db-1".to_owned(), claim: "db-1".to_owned() };
    assert_eq!(incarnation(&world).unwrap().source, Some(survivor));
}

/// Also one that is taken back by then, and also a recovery.
#[rstest]
#[case::the_same(false, false)]
#[case::another(true, false)]
#[case::a_recovery(true, true)]
fn what_is_left_of_a_restore_on_a_dead_node_blocks_no_other(
    #[case] is_taken_back: bool,
    #[case] is_lost: bool,
) {
    let (mut world, mut random) = with_a_request();
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    while !world.pods.contains_key("db-3") {
        turn(&mut world, &mut random);
    }
    world.lose_the_node_of("db-3");
    if is_taken_back {
        world.cluster.annotations_mut().remove(RESTORE);
        for _ in 0..10 {
            turn(&mut world, &mut random);
        }
    }
    if is_lost {
        for name in ["db-0", "db-2"] {
            world.volumes.get_mut(name).unwrap().1.log = None;
            world.pods.get_mut(name).unwrap().runs = false;
        }
    } else if is_taken_back {
        world.ask_for_the_backup(true);
    }
    for _ in 0..10 {
        turn(&mut world, &mut random);
    }
    world.now += std::time::Duration::from_secs(600);
    for _ in 0..200 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    assert_eq!(status(&world).restored.is_some(), !is_lost);
}

/// Nobody begins beside a pod that may yet serve, and so what serves is not ended before.
#[test]
fn a_restore_waits_for_the_replacement_of_a_member_whose_pod_does_not_go_and_no_longer() {
    let (mut world, mut random) = with_a_request();
    world.lose_the_node_of("db-1");
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert_eq!(incarnation(&world), None, "the others serve: {:#?}", world.story);
    let (_, _, message) = condition(&world.observe(&mut random), "Ready");
    assert!(message.contains("the pod of db-1 was to be gone and is not"), "{message}");
    world.now += std::time::Duration::from_secs(600);
    for _ in 0..200 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (1, true), "{:#?}", world.story);
    assert_eq!(world.records["db-1"].spec.intent, Intent::Left);
    let seen = world.observe(&mut random);
    assert_eq!(steps(&seen), [""; 0], "what its pod was is known by its record");
}

/// GitOps writes what a template does not say.
#[test]
fn a_version_that_is_wanted_while_a_restore_is_prepared_is_not_what_reads_it() {
    let (mut world, mut random) = (World::new(3), rand::SeedableRng::seed_from_u64(3));
    (world.backup, world.backed_up_by) = (Some(9), Some("3.6.16".parse().unwrap()));
    world.ask_for_the_backup(false);
    while incarnation(&world).is_none() {
        turn(&mut world, &mut random);
    }
    world.cluster.spec.version = "3.5.35".to_owned();
    for _ in 0..250 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world) && world.acknowledged >= 9, "{:#?}", world.story);
    assert!(world.story.iter().any(|line| line.contains("runs 3.6.16 as")), "{:#?}", world.story);
    assert!(world.pods.values().all(|pod| pod.version.to_string() == "3.5.35"), "it goes back");
}

/// The version that the next incarnation begins with.
fn begun_with(world: &mut World, random: &mut SmallRng) -> String {
    world.now += std::time::Duration::from_secs(60);
    while incarnation(world).is_none() {
        turn(world, random);
    }
    incarnation(world).unwrap().version.unwrap().to_string()
}

/// 3.4 has no program that restores.
#[test]
fn what_3_4_wrote_is_begun_from_with_3_5() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
    (world.backup, world.backed_up_by) = (Some(4), Some("3.4.40".parse().unwrap()));
    world.volumes.values_mut().for_each(|(_, disk)| disk.log = None);
    world.pods.values_mut().for_each(|pod| pod.runs = false);
    world.cluster.spec.version = "3.4.40".to_owned();
    world.cluster.status.as_mut().unwrap().current_version = "3.4.40".to_owned();
    world.records.values_mut().for_each(|record| record.spec.version = Some("3.4.40".parse().unwrap()));
    world.pods.values_mut().for_each(|pod| pod.version = "3.4.40".parse().unwrap());
    assert_eq!(begun_with(&mut world, &mut random), "3.5.35");
}

/// The image of that patch level may be gone.
#[test]
fn another_patch_level_may_be_wanted_of_who_begins_anew() {
    let (mut world, mut random, held) = with_one_survivor(QuorumLoss::Restore);
    assert_eq!(begun_with(&mut world, &mut random), "3.6.16");
    while pods_with(&world, is_survivor).is_empty() {
        world.run_pods(&mut random);
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
    }
    world.cluster.spec.version = "3.6.17".to_owned();
    let plan = analyse(&world.observe(&mut random));
    world.follow(&plan, None, &mut random);
    for _ in 0..150 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world) && world.acknowledged >= held, "{:#?}", world.story);
    let first = world.story.iter().find(|line| line.contains(" runs ")).unwrap();
    assert!(first.contains("runs 3.6.17 as"), "{:#?}", world.story);
}

/// Whoever has no record may have begun, and served.
#[test]
fn a_restore_that_is_not_in_place_begins_over_nobody_whose_record_is_gone() {
    let (mut world, mut random) = (World::new(3), rand::SeedableRng::seed_from_u64(3));
    for _ in 0..2 {
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
    }
    world.pods.get_mut("db-0").unwrap().cut_off = true;
    world.backup = Some(9);
    world.ask_for_the_backup(false);
    while !world.volumes.values().any(|(_, disk)| disk.prepared.is_some()) {
        turn(&mut world, &mut random);
    }
    // The operator is away: db-0 begins, serves, and loses its record.
    world.heal();
    while !world.has_quorum() {
        world.run_pods(&mut random);
    }
    world.write(&mut random);
    world.records.remove("db-0");
    for _ in 0..80 {
        turn(&mut world, &mut random);
    }
    assert_eq!((world.incarnation(), is_ready(&world)), (0, true), "{:#?}", world.story);
}
