//! What is done for running members: versions, alarms, defragmentation, volumes.

use etcd_operator::{
    api::{Defragment, Defragmented},
    asking::Hashes,
    observe::Seen,
    size::Size,
};
use rand::rngs::SmallRng;
use rstest::rstest;
use serde_json::json;
use wheelhouse::{Category, Known, world::Failure};

use super::{condition, is_ready, model::World, observed, settled, steps, turn};

fn turns(world: &mut World, random: &mut SmallRng, times: usize) {
    for _ in 0..times {
        turn(world, random);
    }
}

fn runs(world: &World) -> Vec<String> {
    world.pods.values().map(|pod| pod.version.to_string()).collect()
}

/// All members complain in these words.
fn complain(seen: &mut Seen, words: &str) {
    for pod in &mut seen.pods {
        if let Known::Value { value, .. } = &mut pod.etcd {
            value.errors = vec![words.to_owned()];
        }
    }
}

/// Members hold different things, by their place in the list: `0 1 | 2` is two that hold the same, and one that does not.
fn differ(seen: &mut Seen, groups: &str) {
    let list = seen.members.value().unwrap().clone();
    let place = |text: &str| list[text.parse::<usize>().unwrap()].id;
    let groups = groups.split('|').map(|group| group.split_whitespace().map(place).collect()).collect();
    seen.hashes = Known::Value { value: Hashes { groups }, at: seen.now };
}

fn sizes(seen: &mut Seen, name: &str, size: u64, in_use: u64) {
    let pod = seen.pods.iter_mut().find(|pod| pod.reference.name == name).unwrap();
    if let Known::Value { value, .. } = &mut pod.etcd {
        (value.upkeep.size, value.upkeep.in_use) = (Size(size << 20), Size(in_use << 20));
    }
}

/// The name of the leader, and that of the first follower.
fn leader_and_follower(seen: &Seen) -> (String, String) {
    let leader = seen.pods.iter().find_map(|pod| pod.etcd.value()?.leader).unwrap();
    let list = seen.members.value().unwrap();
    let name = |leads: bool| list.iter().find(|listed| (listed.id == leader) == leads).unwrap().name.clone();
    (name(true), name(false))
}

#[rstest]
#[case::up(&["3.7.3"], "3.7.3")]
#[case::down(&["3.5.35"], "3.5.35")]
#[case::up_and_down_by_two(&["3.7.3", "3.6.16", "3.5.35"], "3.5.35")]
fn a_cluster_gets_to_another_version_and_back(
    #[values(1, 2, 3)] size: i32,
    #[case] way: &[&str],
    #[case] end: &str,
) {
    let (mut world, mut random) = settled(size);
    for wanted in way {
        world.cluster.spec.version = (*wanted).to_owned();
        turns(&mut world, &mut random, 120);
        assert!(is_ready(&world), "{:#?}", world.story);
    }
    assert!(runs(&world).iter().all(|version| version == end), "{:#?}", world.story);
    assert_eq!((world.list.len(), world.way_back), (usize::try_from(size).unwrap(), None));
}

/// Whoever changes their mind in the middle gets what they want last, whatever was reached by then.
#[rstest]
#[case::of_going_up("3.7.3", "3.6.16")]
#[case::of_going_down("3.5.35", "3.6.16")]
#[case::of_going_up_and_wants_to_go_down("3.7.3", "3.5.35")]
#[case::of_going_down_and_wants_to_go_up("3.5.35", "3.7.3")]
fn a_change_of_mind_in_the_middle_is_followed(
    #[case] first: &str,
    #[case] then: &str,
    #[values(2, 5, 8, 11, 14, 17, 20, 25, 30)] after: usize,
) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = first.to_owned();
    turns(&mut world, &mut random, after);
    world.cluster.spec.version = then.to_owned();
    turns(&mut world, &mut random, 250);
    assert!(is_ready(&world), "{:#?}", world.story);
    assert!(runs(&world).iter().all(|version| version == then), "{:#?}", world.story);
}

/// It had been written down that a member goes back, and the operator ended before its pod went.
#[rstest]
#[case::and_it_is_still_wanted("3.5.35")]
#[case::and_it_is_wanted_no_more("3.6.16")]
#[case::and_the_other_direction_is_wanted("3.7.3")]
fn what_was_written_down_and_not_done_is_looked_at_again(#[case] wanted: &str) {
    let (mut world, mut random) = settled(3);
    (world.works_as, world.way_back) = (5, Some(5));
    world.records.get_mut("db-1").unwrap().spec.version = Some("3.5.35".parse().unwrap());
    world.cluster.spec.version = wanted.to_owned();
    let mut seen = observed(&mut world, &mut random);
    complain(&mut seen, "alarm:CORRUPT");
    assert!(!steps(&seen).iter().any(|step| step.starts_with("evict")), "{:?}", steps(&seen));
    turns(&mut world, &mut random, 150);
    assert!(is_ready(&world), "{:#?}", world.story);
    assert!(runs(&world).iter().all(|version| version == wanted), "{:#?}", world.story);
    let recorded = world.records.values().map(|record| record.spec.version.unwrap().to_string());
    assert_eq!(recorded.collect::<Vec<_>>(), [wanted; 3]);
}

#[test]
fn the_way_back_is_allowed_before_any_pod_goes_and_checked_once_more() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = "3.5.35".to_owned();
    assert_eq!(steps(&observed(&mut world, &mut random)), ["let the cluster go back to 3.5"]);
    world.way_back = Some(5);
    assert_eq!(steps(&observed(&mut world, &mut random)), [""; 0], "no data is fit for 3.5 yet");
    let (status, reason, message) = condition(&observed(&mut world, &mut random), "UpToDate");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Downgrading"));
    assert!(message.contains("has yet to make its data fit for 3.5"), "{message}");
    world.works_as = 5;
    world.volumes.values_mut().for_each(|(_, disk)| disk.storage = 5);
    let planned = steps(&observed(&mut world, &mut random));
    assert_eq!(planned[0], "check that the cluster works as 3.5");
    assert!(
        planned[1].starts_with("update EtcdMember") && planned[2].starts_with("evict Pod"),
        "{planned:?}"
    );
}

#[test]
fn no_log_meets_a_version_that_cannot_read_it() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = "3.7.3".to_owned();
    let mut seen = observed(&mut world, &mut random);
    let mut with = |old_entries| {
        seen.records.iter_mut().for_each(|record| record.status.old_entries = old_entries);
        (steps(&seen), condition(&seen, "UpToDate").2)
    };
    let (steps, message) = with(Some(true));
    assert_eq!(steps, ["fill the logs until the members take snapshots of them"]);
    assert!(message.contains("waits until what was written before 3.6 is in a snapshot"), "{message}");
    let (steps, message) = with(None);
    assert_eq!(steps, [""; 0]);
    assert!(message.contains("has not said yet what is in its log"), "{message}");
    let (steps, _) = with(Some(false));
    assert!(steps[0].starts_with("check that the cluster can go on to 3.7"), "{steps:?}");
}

/// A pod that was made anew is silent at first. What is looked at before a member goes up nobody can look at then.
#[test]
fn nobody_who_is_silent_goes_up() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = "3.7.3".to_owned();
    world.volumes.values_mut().for_each(|(_, disk)| disk.has_old_entries = true);
    let seen = observed(&mut world, &mut random);
    for silent in ["db-0", "db-1", "db-2"] {
        let mut seen = seen.clone();
        for pod in seen.pods.iter_mut().filter(|pod| pod.reference.name == silent) {
            pod.reference.uid = "just made".to_owned();
            (pod.ready, pod.etcd) = (false, Known::Absent);
            pod.made_for = Some("something else".to_owned());
        }
        let planned = steps(&seen);
        assert_eq!(planned, [format!("delete Pod {silent}")], "with the version that its record says");
    }
    // Nor is what its log was before of any use.
    let mut seen = seen;
    seen.records.iter_mut().for_each(|record| record.status.old_entries = Some(false));
    assert!(steps(&seen)[0].starts_with("check that the cluster can go on to 3.7"));
    seen.records.iter_mut().for_each(|record| record.status.pod = "the one before".to_owned());
    assert_eq!(steps(&seen), [""; 0]);
    assert!(condition(&seen, "UpToDate").2.contains("has not said yet what is in its log"));
}

/// However that came about: its supervisor has looked, and has not started etcd.
#[rstest]
#[case::of_one(1)]
#[case::of_three(3)]
fn a_log_that_3_7_cannot_read_costs_a_member_nothing(#[case] size: i32) {
    let (mut world, mut random) = settled(size);
    world.cluster.spec.version = "3.7.3".to_owned();
    world.volumes.values_mut().for_each(|(_, disk)| disk.has_old_entries = true);
    let volumes: Vec<_> = world.volumes.values().map(|(reference, _)| reference.uid.clone()).collect();
    let members = world.list.clone();
    let version = "3.7.3".parse().unwrap();
    world.records.get_mut("db-0").unwrap().spec.version = Some(version);
    let pod = world.pods.get_mut("db-0").unwrap();
    (pod.version, pod.runs, pod.serves) = (version, false, false);
    pod.reference.uid = "made with 3.7".to_owned();
    turns(&mut world, &mut random, 1);
    assert!(
        world.story.iter().any(|what| what == "db-0 does not start 3.7 with its log"),
        "{:#?}",
        world.story
    );
    turns(&mut world, &mut random, 200);
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(runs(&world), vec!["3.7.3"; usize::try_from(size).unwrap()], "it gets there in the end");
    assert_eq!(world.list, members, "nobody was replaced: {:#?}", world.story);
    let now: Vec<_> = world.volumes.values().map(|(reference, _)| reference.uid.clone()).collect();
    assert_eq!(now, volumes);
}

#[rstest]
#[case::space("memberID:1 alarm:NOSPACE", "an alarm says that space ran out")]
#[case::corruption("alarm:CORRUPT", "an alarm says that data is corrupt")]
fn no_version_changes_while_there_is_an_alarm(#[case] alarm: &str, #[case] words: &str) {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = "3.7.3".to_owned();
    let mut seen = observed(&mut world, &mut random);
    seen.pods.iter_mut().for_each(|pod| {
        if let Known::Value { value, .. } = &mut pod.etcd {
            value.upkeep.size = Size(3 << 30);
            value.upkeep.in_use = Size(3 << 30);
        }
    });
    complain(&mut seen, alarm);
    assert_eq!(steps(&seen), [""; 0]);
    let message = condition(&seen, "UpToDate").2;
    assert!(message.contains(words), "{message}");
}

#[test]
fn no_version_changes_while_members_do_not_hold_the_same_or_nobody_knows() {
    let (mut world, mut random) = settled(5);
    world.cluster.spec.version = "3.7.3".to_owned();
    let mut seen = observed(&mut world, &mut random);
    assert!(steps(&seen)[0].starts_with("check that the cluster can go on to 3.7"));
    differ(&mut seen, "0 1 | 2 3 | 4");
    assert_eq!(steps(&seen), [""; 0]);
    differ(&mut seen, "0 1 2 3");
    assert_eq!(steps(&seen), [""; 0], "one was not asked");
    seen.hashes = Known::Unknown { why: "one does not answer".to_owned(), since: seen.now };
    assert_eq!(steps(&seen), [""; 0]);
    assert!(condition(&seen, "UpToDate").2.contains("one does not answer"));
}

#[test]
fn a_member_that_a_majority_contradicts_is_replaced() {
    let (mut world, mut random) = settled(3);
    let mut seen = observed(&mut world, &mut random);
    complain(&mut seen, "alarm:CORRUPT");
    differ(&mut seen, "0 2 | 1");
    let name = seen.members.value().unwrap()[1].name.clone();
    assert_eq!(steps(&seen), [format!("update EtcdMember {name}"), format!("remove member {name}")]);
    let (status, reason, message) = condition(&seen, "NoAlarm");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Corrupt"));
    assert!(message.contains(&format!("{name} is replaced")), "{message}");
}

#[rstest]
#[case::where_nobody_agrees(3, "0 | 1 | 2")]
#[case::of_two(2, "0 | 1")]
#[case::where_most_were_not_asked(5, "0 1 | 2")]
fn without_a_majority_nobody_is_taken_for_corrupt_and_a_person_is_asked(
    #[case] size: i32,
    #[case] groups: &str,
) {
    let (mut world, mut random) = settled(size);
    let mut seen = observed(&mut world, &mut random);
    complain(&mut seen, "memberID:1 alarm:CORRUPT");
    differ(&mut seen, groups);
    assert_eq!(steps(&seen), [""; 0]);
    let message = condition(&seen, "NoAlarm").2;
    assert!(message.contains("nothing is removed until somebody decides"), "{message}");
}

#[test]
fn that_space_ran_out_is_told_with_numbers_and_taken_back_once_all_have_room() {
    let (mut world, mut random) = settled(3);
    let mut seen = observed(&mut world, &mut random);
    let id = seen.members.value().unwrap()[0].id;
    complain(&mut seen, &format!("memberID:{} alarm:NOSPACE ", id.0));
    let full = seen.members.value().unwrap()[0].name.clone();
    sizes(&mut seen, &full, 2048, 2040);
    assert_eq!(steps(&seen), [""; 0]);
    let (status, reason, message) = condition(&seen, "NoAlarm");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoSpace"));
    assert!(message.contains(&format!("{full} has used its quota up (2.0 GiB of 2.0 GiB")), "{message}");
    sizes(&mut seen, &full, 1500, 1500);
    assert_eq!(steps(&seen), ["take back the alarm that space ran out"]);
    complain(&mut seen, "alarm:CORRUPT");
    differ(&mut seen, "0 1 2");
    assert_eq!(steps(&seen), [""; 0], "a person has to look");
    assert!(condition(&seen, "NoAlarm").2.contains("etcdctl alarm disarm"));
}

/// Somebody may compact right after a member wrote its data anew for the little that was free.
#[rstest]
#[case::little_is_free(1800, 20, false)]
#[case::much_is_free(100, 20, true)]
#[case::much_is_free_at_once(100, 5, false)]
#[case::little_is_free_after_a_while(1800, 300, true)]
fn where_space_ran_out_a_member_rests_for_long_only_if_there_is_little_to_gain(
    #[case] in_use: u64,
    #[case] rested: i64,
    #[case] is_written: bool,
) {
    let (mut world, mut random) = settled(1);
    let mut seen = observed(&mut world, &mut random);
    complain(&mut seen, "memberID:1 alarm:NOSPACE ");
    sizes(&mut seen, "db-0", 2048, in_use);
    let asked = seen.now - wheelhouse::jiff::SignedDuration::from_secs(rested);
    let record = &mut seen.records[0];
    record.spec.defragment = Some(Defragment { asked, drain: false, given_up: false });
    record.status.defragmented =
        Some(Defragmented { asked, before: Size(2 << 30), after: Size(2 << 30), problem: String::new() });
    assert_eq!(steps(&seen) == ["update EtcdMember db-0"], is_written, "{:?}", steps(&seen));
}

#[test]
fn space_is_given_back_by_one_member_at_a_time_the_leader_last() {
    let (mut world, mut random) = settled(3);
    let seen = observed(&mut world, &mut random);
    let (leader, follower) = leader_and_follower(&seen);
    for name in [&leader, &follower] {
        world.volumes.get_mut(name).unwrap().1.is_fragmented = true;
    }
    let first = steps(&observed(&mut world, &mut random));
    assert_eq!(first, [format!("update EtcdMember {follower}")]);
    turns(&mut world, &mut random, 60);
    assert!(world.volumes.values().all(|(_, disk)| !disk.is_fragmented), "{:#?}", world.story);
    let handed_over = world.story.iter().position(|line| line.starts_with("let member"));
    let began = world.story.iter().position(|line| *line == format!("update EtcdMember {leader}"));
    assert!(handed_over.unwrap() < began.unwrap(), "{:#?}", world.story);
    let (status, reason, message) = condition(&observed(&mut world, &mut random), "Defragmented");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Done"));
    assert!(message.contains("200 MiB became 50 MiB"), "{message}");
}

#[rstest]
#[case::little_is_free(json!({}), 400, 300, false)]
#[case::half_is_free(json!({}), 400, 190, true)]
#[case::half_of_little(json!({}), 90, 20, false)]
#[case::as_people_want_it(json!({"freePercent": 20, "minimumSize": "50Mi"}), 90, 60, true)]
#[case::not_at_all(json!({"enabled": false}), 4000, 10, false)]
fn data_is_written_anew_when_much_of_much_is_free(
    #[case] policy: serde_json::Value,
    #[case] size: u64,
    #[case] in_use: u64,
    #[case] is_written: bool,
) {
    let (mut world, mut random) = settled(1);
    world.cluster.spec.maintenance.defragment = serde_json::from_value(policy).unwrap();
    let mut seen = observed(&mut world, &mut random);
    sizes(&mut seen, "db-0", size, in_use);
    assert_eq!(!steps(&seen).is_empty(), is_written);
}

#[test]
fn who_writes_its_data_anew_is_not_given_up_but_the_writing_is() {
    let (mut world, mut random) = settled(3);
    let follower = leader_and_follower(&observed(&mut world, &mut random)).1;
    let asked = world.now;
    world.records.get_mut(&follower).unwrap().spec.defragment =
        Some(etcd_operator::api::Defragment { asked, drain: true, given_up: false });
    let silent = |world: &mut World, random: &mut SmallRng, seconds: u64| {
        world.now = asked + std::time::Duration::from_secs(seconds);
        let mut seen = observed(world, random);
        let mut status = seen.cluster.status.clone().unwrap();
        status.unreachable.insert(follower.clone(), asked);
        seen.cluster.status = Some(status);
        seen
    };
    let seen = silent(&mut world, &mut random, 700);
    assert_eq!(steps(&seen), [""; 0], "it has been silent for longer than anybody may");
    assert_eq!(condition(&seen, "Ready").1, "Defragmenting");
    let seen = silent(&mut world, &mut random, 1300);
    assert_eq!(steps(&seen), [format!("update EtcdMember {follower}")]);
}

/// People changed their mind about the version while nobody had begun, and the seed began as was wanted before.
#[test]
fn who_waits_with_another_minor_version_is_made_anew_before_it_joins() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.size = 4;
    while !world.pods.contains_key("db-3") {
        turns(&mut world, &mut random, 1);
    }
    assert_eq!(world.list.len(), 3);
    let pod = world.pods.get_mut("db-3").unwrap();
    pod.version = "3.4.30".parse().unwrap();
    let uid = pod.reference.uid.clone();
    turns(&mut world, &mut random, 60);
    assert!(is_ready(&world) && world.list.len() == 4, "{:#?}", world.story);
    assert_ne!(world.pods["db-3"].reference.uid, uid, "{:#?}", world.story);
    let at = |what: &str| world.story.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("delete Pod db-3") < at("add member db-3"), "{:#?}", world.story);
}

/// The others that are wanted are all there, and yet the leader is not alone.
#[test]
fn who_has_no_record_is_a_member_for_as_long_as_etcd_lists_it() {
    let (mut world, mut random) = settled(2);
    world.cluster.spec.size = 1;
    world.records.remove("db-1");
    world.volumes.get_mut("db-0").unwrap().1.is_fragmented = true;
    assert_eq!(steps(&observed(&mut world, &mut random)), ["create EtcdMember db-1"]);
    turns(&mut world, &mut random, 60);
    assert!(is_ready(&world) && world.list.len() == 1, "{:#?}", world.story);
}

#[test]
fn volumes_become_larger_one_after_the_other_and_never_smaller() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.storage.size = "16Gi".to_owned();
    assert_eq!(steps(&observed(&mut world, &mut random)), ["update PersistentVolumeClaim db-0"]);
    turns(&mut world, &mut random, 20);
    assert!(world.volumes.values().all(|(_, disk)| disk.size == Size(16 << 30)), "{:#?}", world.story);
    world.cluster.spec.storage.size = "4Gi".to_owned();
    assert_eq!(steps(&observed(&mut world, &mut random)), [""; 0]);
}

#[test]
fn a_volume_that_may_not_become_larger_is_told_and_keeps_nothing_else_from_being_done() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.storage.size = "16Gi".to_owned();
    let mut seen = observed(&mut world, &mut random);
    let message = "cannot update PersistentVolumeClaim db-0: persistentvolumeclaims \"db-0\" is forbidden: only dynamically provisioned pvc can be resized".to_owned();
    seen.last_failure = Some(Failure { category: Category::Forbidden, message });
    assert_eq!(steps(&seen), [""; 0]);
    assert_eq!(condition(&seen, "VolumesExpanded").1, "Refused");
    assert_eq!(condition(&seen, "Ready").0, "True");
    let plan = etcd_operator::analyse::analyse(&seen);
    seen.cluster.status = Some(serde_json::from_value(plan.status.unwrap()).unwrap());
    seen.last_failure = None;
    assert_eq!(steps(&seen), [""; 0], "it is not asked for again");
    assert!(
        condition(&seen, "VolumesExpanded").2.contains("only dynamically provisioned pvc can be resized")
    );
    seen.cluster.metadata.generation = Some(7);
    assert_eq!(steps(&seen), ["update PersistentVolumeClaim db-0"], "somebody has changed something");
}

#[test]
fn options_make_pods_anew_and_what_needs_no_new_pod_does_not() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.options.snapshot_count = Some(5000);
    assert!(steps(&observed(&mut world, &mut random))[0].starts_with("evict Pod"));
    world.cluster.spec.options.snapshot_count = None;
    world.cluster.spec.pod = Some(serde_json::from_value(json!({"busyboxImage": "b"})).unwrap());
    assert_eq!(steps(&observed(&mut world, &mut random)), [""; 0]);
}

/// A cluster that has its data in its pods.
fn settled_in_pods(size: i32) -> (World, SmallRng) {
    let mut random = rand::SeedableRng::seed_from_u64(7);
    let mut world = World::new(size);
    world.cluster.spec.storage.empty_dir = true;
    turns(&mut world, &mut random, 100);
    assert!(is_ready(&world), "{:#?}", world.story);
    world.story.clear();
    (world, random)
}

#[rstest]
#[case::options(json!({"options": {"snapshotCount": 5000}}))]
#[case::a_patch_level(json!({"version": "3.6.17"}))]
#[case::a_minor_version(json!({"version": "3.7.3"}))]
fn who_keeps_data_in_pods_is_not_made_anew_where_nobody_else_has_it(
    #[values(1, 2)] size: i32,
    #[case] wish: serde_json::Value,
) {
    let (mut world, mut random) = settled_in_pods(size);
    let mut spec = json!(world.cluster.spec);
    wheelhouse::overrides::merge(&mut spec, &wish);
    world.cluster.spec = serde_json::from_value(spec).unwrap();
    turns(&mut world, &mut random, 60);
    assert_eq!(world.story, [""; 0]);
    let message = condition(&observed(&mut world, &mut random), "Durable").2;
    assert!(message.contains("pods are left as they are"), "{message}");
}

/// Who comes instead begins with what the others run. So for another minor version everybody would be replaced for ever.
#[test]
fn data_in_pods_is_not_carried_round_in_circles_for_a_version() {
    let (mut world, mut random) = settled_in_pods(3);
    world.cluster.spec.version = "3.7.3".to_owned();
    turns(&mut world, &mut random, 60);
    assert_eq!(world.story, [""; 0]);
    let (status, reason, message) = condition(&observed(&mut world, &mut random), "UpToDate");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoWay"));
    assert!(message.contains("its data is in its pod"), "{message}");
    assert_eq!(condition(&observed(&mut world, &mut random), "Ready").0, "True", "it is not on its way");
    let seen = observed(&mut world, &mut random);
    let fragmented = seen.pods[0].reference.name.clone();
    world.volumes.get_mut(&fragmented).unwrap().1.is_fragmented = true;
    turns(&mut world, &mut random, 20);
    assert!(!world.volumes[&fragmented].1.is_fragmented, "and is looked after: {:#?}", world.story);
}

/// The way that is told has to be one.
#[rstest]
#[case::where_pods_are_never_made_anew(1, "the quota cannot be raised")]
#[case::where_one_after_the_other_is(3, "or raise options.quotaBackendBytes")]
fn what_to_do_about_space_in_pods_is_told(#[case] size: i32, #[case] words: &str) {
    let (mut world, mut random) = settled_in_pods(size);
    let mut seen = observed(&mut world, &mut random);
    complain(&mut seen, "memberID:1 alarm:NOSPACE ");
    let message = condition(&seen, "NoAlarm").2;
    assert!(message.contains(words), "{message}");
}

#[rstest]
#[case::options(json!({"options": {"snapshotCount": 5000}}), "3.6.16")]
#[case::a_patch_level(json!({"version": "3.6.17"}), "3.6.17")]
fn of_three_that_keep_data_in_pods_one_after_the_other_is_replaced(
    #[case] wish: serde_json::Value,
    #[case] version: &str,
) {
    let (mut world, mut random) = settled_in_pods(3);
    let before: Vec<_> = world.pods.keys().cloned().collect();
    let mut spec = json!(world.cluster.spec);
    wheelhouse::overrides::merge(&mut spec, &wish);
    world.cluster.spec = serde_json::from_value(spec).unwrap();
    turns(&mut world, &mut random, 150);
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(runs(&world), [version; 3]);
    assert!(world.pods.keys().all(|name| !before.contains(name)), "{:#?}", world.pods.keys());
    world.story.clear();
    turns(&mut world, &mut random, 20);
    assert_eq!(world.story, [""; 0], "once each");
}
