//! What the operator decides, without a cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod anew;
mod backups;
mod certificates;
mod model;
mod promises;
mod upkeep;

use etcd_operator::{
    analyse::analyse,
    api::{EtcdClusterStatus, Intent, QuorumLoss},
    observe::Seen,
};
use model::World;
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use wheelhouse::Known;

fn status(world: &World) -> EtcdClusterStatus {
    world.cluster.status.clone().unwrap_or_default()
}

fn is_ready(world: &World) -> bool {
    status(world).conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True")
}

/// Whatever happens, the invariants hold at every step (the model asserts them): no member is removed that
/// the others need for their quorum, no volume of a member is deleted, no name is used twice, nothing
/// begins twice, no etcd is started that is older than what the cluster works as, or newer by two minor versions, nothing
/// that was acknowledged is lost. And once nothing happens any more, it gets
/// where people want it, and stays there.
///
/// `WORLDS` says how many are tried: 60 unless told otherwise; `make soak` tries enough for
/// more than a million steps. `WORLD` says which is the first, and alone if `WORLDS` does not say how many: that of a
/// seed that failed.
#[test]
fn from_every_world_it_gets_where_people_want_it_and_nothing_is_lost_on_the_way() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, worlds) = match number("WORLD") {
        Some(first) => (first, number("WORLDS").unwrap_or(1)),
        None => (0, number("WORLDS").unwrap_or(60)),
    };
    let (mut decisions, mut steps, mut anew) = (0_u64, 0_usize, 0_u32);
    for seed in first..first + worlds {
        let _told = Told(seed);
        let mut random = SmallRng::seed_from_u64(seed);
        let mut world = World::new(random.random_range(1..=5));
        if random.random_bool(0.5) {
            world.cluster.spec.recovery.quorum_loss = QuorumLoss::Restore;
        }
        world.wish_for_a_version(&mut random);
        if seed % 6 == 5 {
            world.cluster.spec.storage.empty_dir = true;
            // From there nobody else can begin.
            world.cluster.spec.recovery.quorum_loss = QuorumLoss::Wait;
        }
        // What one operator holds to, two may have to find out.
        let has_two_operators = random.random_bool(0.5);
        let troubled = random.random_range(0..150);
        let mut before: Option<wheelhouse::Plan<etcd_operator::act::Change>> = None;
        for round in 0.. {
            let seen = world.observe(&mut random);
            let plan = analyse(&seen);
            if round % 16 == 0 {
                assert_eq!(plan, analyse(&seen), "seed {seed}: the same observation, another plan");
                let text = serde_json::to_string(&seen).unwrap();
                assert_eq!(serde_json::from_str::<Seen>(&text).unwrap(), seen, "seed {seed}");
            }
            decisions += 1;
            steps += plan.steps.len();
            let is_troubled = round < troubled;
            // Anywhere, and more often right before the step that does most.
            let crash = (is_troubled && random.random_bool(0.15)).then(|| match random.random_bool(0.5) {
                true => plan.steps.len().saturating_sub(1),
                false => random.random_range(0..12),
            });
            // Another operator believes to lead, and what it saw is old.
            let is_second = has_two_operators && is_troubled && random.random_bool(0.2);
            if let Some(old) = before.take().filter(|_| is_second) {
                (world.is_stale, world.had_two_operators) = (true, true);
                world.follow(&old, Some(usize::MAX), &mut random);
            }
            // What this one saw was before that, and is old by then, too.
            world.follow(&plan, crash, &mut random);
            world.is_stale = false;
            before = Some(plan).filter(|_| random.random_bool(0.5));
            world.run_pods(&mut random);
            world.write(&mut random);
            world.check_nothing_is_lost();
            if is_troubled && random.random_bool(0.25) {
                world.disturb(&mut random);
            }
            if round == troubled {
                world.heal();
                // Whoever was looked after lately has rested by then.
                world.now += std::time::Duration::from_secs(7200);
            }
            if !is_troubled && is_ready(&world) && !world.has_quorum() {
                panic!("seed {seed}: it is said to be ready: {:#?}", world.story);
            }
            if !is_troubled && world.pods.values().any(|pod| pod.node_is_gone) {
                // Who is on a node that is gone is waited for at first. Whose pod nobody else can tell of is for a person to tell.
                world.now += std::time::Duration::from_secs(10);
                let ready = status(&world).conditions.into_iter().find(|known| known.type_ == "Ready");
                if ready.is_some_and(|ready| ready.message.contains("delete the Node")) {
                    world.pods.retain(|_, pod| !pod.node_is_gone);
                }
            }
            let size = usize::try_from(world.cluster.spec.size).unwrap();
            let is_done = !is_troubled
                && is_ready(&world)
                && world.within_reach() == [size; 3]
                && world.is_looked_after();
            if is_done {
                break;
            }
            assert!(
                round < troubled + 400,
                "seed {seed}: it does not get there: {:#?} {:#?} {:#?} {:#?} {:#?} {:#?}",
                status(&world),
                world.list,
                world.records,
                world.pods,
                world.volumes,
                world.story
            );
        }
        anew += world.incarnation();
        let size = usize::try_from(world.cluster.spec.size).unwrap();
        assert_eq!(world.list.len(), size, "seed {seed}");
        assert_eq!(world.list.iter().filter(|listed| listed.is_learner).count(), 0, "seed {seed}");
        let before = world.story.len();
        for _ in 0..5 {
            let plan = analyse(&world.observe(&mut random));
            world.follow(&plan, None, &mut random);
        }
        assert_eq!(
            &world.story[before..],
            [""; 0],
            "seed {seed}: it does not stay still: {:#?}",
            world.story
        );
    }
    println!(
        "{worlds} worlds, {decisions} decisions, {steps} steps, {anew} times begun anew: all got there, and nothing was lost in silence"
    );
}

/// Tells the seed of a world in which something fails, wherever that is found out.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: look at it again with WORLD={}", self.0, self.0);
        }
    }
}

/// A cluster of that size that is as it is wanted.
fn settled(size: i32) -> (World, SmallRng) {
    let mut random = SmallRng::seed_from_u64(7);
    let mut world = World::new(size);
    for _ in 0..100 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    world.story.clear();
    (world, random)
}

/// The operator looks and acts once, and the pods do what they do.
fn turn(world: &mut World, random: &mut SmallRng) {
    let plan = analyse(&world.observe(random));
    world.follow(&plan, None, random);
    world.run_pods(random);
    world.write(random);
    world.check_nothing_is_lost();
}

/// What the operator sees once all answers are there.
fn observed(world: &mut World, random: &mut SmallRng) -> Seen {
    loop {
        let seen = world.observe(random);
        if !seen.members.is_unknown() && !seen.hashes.is_unknown() {
            return seen;
        }
    }
}

/// What is seen when it was asked who the members are, and no quorum answered.
fn seen_without_a_quorum(world: &mut World, random: &mut SmallRng) -> Seen {
    loop {
        let seen = world.observe(random);
        if matches!(&seen.members, Known::Unknown { why, .. } if why == "no quorum") {
            return seen;
        }
    }
}

/// What is to be done now, but for what is applied again and again.
fn steps(seen: &Seen) -> Vec<String> {
    let plan = analyse(seen);
    let steps = plan.steps.iter().filter(|planned| !matches!(planned.step, wheelhouse::Step::Apply(_)));
    steps.map(|planned| planned.step.to_string()).collect()
}

fn condition(seen: &Seen, kind: &str) -> (String, String, String) {
    let status: EtcdClusterStatus = serde_json::from_value(analyse(seen).status.unwrap()).unwrap();
    let condition = status.conditions.into_iter().find(|known| known.type_ == kind).unwrap();
    (condition.status, condition.reason, condition.message)
}

#[test]
fn a_cluster_begins_with_one_seed_and_all_of_its_pods_at_once() {
    let (mut world, mut random) = (World::new(3), SmallRng::seed_from_u64(1));
    let first = steps(&world.observe(&mut random));
    assert_eq!(
        first,
        [
            "update EtcdCluster db",
            "create EtcdMember db-0",
            "create EtcdMember db-1",
            "create EtcdMember db-2"
        ]
    );
    let plan = analyse(&world.observe(&mut random));
    world.follow(&plan, None, &mut random);
    let then = steps(&world.observe(&mut random));
    let pods: Vec<_> = then.iter().filter(|step| step.starts_with("create Pod")).collect();
    assert_eq!(pods, ["create Pod db-0", "create Pod db-1", "create Pod db-2"]);
}

#[test]
fn a_cluster_that_has_begun_names_no_seed_again() {
    let (mut world, mut random) = settled(3);
    world.cluster.metadata.annotations = None;
    world.records.clear();
    world.pods.clear();
    let seen = world.observe(&mut random);
    assert!(!steps(&seen).contains(&"update EtcdCluster db".to_owned()), "{:?}", steps(&seen));
    world.run_pods(&mut random);
    assert_eq!(world.incarnations_begun.len(), 1);
}

#[test]
fn a_seed_that_began_and_whose_volume_is_gone_is_asked_before_another_takes_its_place() {
    let (mut world, mut random) = (World::new(3), SmallRng::seed_from_u64(1));
    for _ in 0..2 {
        let plan = analyse(&world.observe(&mut random));
        world.follow(&plan, None, &mut random);
    }
    world.records.get_mut("db-0").unwrap().status.began = true;
    world.pods.remove("db-0").unwrap();
    world.volumes.remove("db-0").unwrap();
    let told = steps(&world.observe(&mut random));
    assert!(told.contains(&"create Pod db-0".to_owned()), "{told:?}");
    assert!(!told.contains(&"update EtcdCluster db".to_owned()), "nobody else is the seed yet: {told:?}");
    world.now += std::time::Duration::from_secs(100);
    for _ in 0..100 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    assert_eq!(world.incarnations_begun.len(), 1, "it began once");
    assert!(world.list.iter().all(|listed| listed.name != "db-0"), "and not with db-0");
}

#[test]
fn a_wiped_member_is_replaced_under_another_name() {
    let (mut world, mut random) = settled(3);
    world.volumes.get_mut("db-1").unwrap().1.log = None;
    world.pods.get_mut("db-1").unwrap().runs = false;
    world.run_pods(&mut random);
    for _ in 0..60 {
        turn(&mut world, &mut random);
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    let names: Vec<_> = world.list.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["db-0", "db-2", "db-3"]);
    assert!(!world.volumes.contains_key("db-1"));
}

/// A member of 3.4 tells whom it remembers: one that is behind does not know yet who was added.
#[test]
fn who_answers_and_follows_somebody_does_not_leave_for_a_list_that_lacks_it() {
    let (mut world, mut random) = settled(3);
    let mut seen = observed(&mut world, &mut random);
    let remembered = world.list.iter().filter(|listed| listed.name != "db-2").cloned().collect();
    seen.members = Known::Value { value: remembered, at: seen.now };
    assert_eq!(steps(&seen), [""; 0]);
    let record = seen.records.iter_mut().find(|record| record.reference.name == "db-2").unwrap();
    record.spec.intent = Intent::Leaving;
    assert_eq!(steps(&seen), ["create EtcdMember db-3"], "what it has stays");
    let pod = seen.pods.iter_mut().find(|pod| pod.reference.name == "db-2").unwrap();
    pod.etcd = Known::Unknown { why: "connection refused".to_owned(), since: seen.now };
    assert_eq!(steps(&seen), ["create EtcdMember db-3", "update EtcdMember db-2", "delete Pod db-2"]);
}

#[test]
fn without_a_quorum_nothing_is_removed_and_what_is_missing_is_told() {
    let (mut world, mut random) = settled(3);
    for name in ["db-1", "db-2"] {
        world.volumes.get_mut(name).unwrap().1.log = None;
        world.pods.get_mut(name).unwrap().runs = false;
    }
    world.run_pods(&mut random);
    world.observe(&mut random);
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    let seen = world.observe(&mut random);
    let (status, reason, message) = condition(&seen, "Available");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuorumGone"), "{message}");
    assert!(message.contains("db-1, db-2"), "{message}");
    let destructive = ["delete", "remove"];
    let done: Vec<_> =
        world.story.iter().filter(|line| destructive.iter().any(|word| line.starts_with(word))).collect();
    assert_eq!(done, [""; 0]);
    assert_eq!(world.list.len(), 3);
}

#[test]
fn a_member_that_nobody_reaches_is_replaced_after_the_configured_time_and_not_before() {
    let (mut world, mut random) = settled(3);
    world.pods.get_mut("db-2").unwrap().cut_off = true;
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.list.len(), 3, "{:#?}", world.story);
    assert!(status(&world).unreachable.contains_key("db-2"));
    let seconds = world.cluster.spec.recovery.replace_after_seconds;
    world.now += std::time::Duration::from_secs(u64::try_from(seconds).unwrap());
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert!(world.list.iter().all(|listed| listed.name != "db-2"), "{:#?}", world.story);
    assert!(is_ready(&world));
}

/// After how many milliseconds it is looked at again; somebody has said who the members are.
fn looked_at_again(world: &mut World, random: &mut SmallRng) -> u128 {
    let mut seen = world.observe(random);
    seen.members = Known::Value { value: world.list.clone(), at: seen.now };
    analyse(&seen).look_again_after.unwrap().as_millis()
}

#[test]
fn who_only_waits_is_looked_at_ever_less_often_and_who_is_acted_on_soon() {
    let (mut world, mut random) = settled(3);
    assert_eq!(looked_at_again(&mut world, &mut random), 5000);
    world.pods.get_mut("db-2").unwrap().cut_off = true;
    for _ in 0..3 {
        turn(&mut world, &mut random);
    }
    assert_eq!(looked_at_again(&mut world, &mut random), 200);
    world.now += std::time::Duration::from_secs(60);
    let later = looked_at_again(&mut world, &mut random);
    assert!((3000..3300).contains(&later), "{later}");
    world.now += std::time::Duration::from_secs(300);
    assert_eq!(looked_at_again(&mut world, &mut random), 5000);
    world.now += std::time::Duration::from_secs(300);
    assert_eq!(looked_at_again(&mut world, &mut random), 200, "it is replaced now");
}

#[test]
fn the_pod_of_a_listed_member_is_left_alone_while_nobody_reaches_it() {
    let (mut world, mut random) = settled(3);
    world.pods.values_mut().for_each(|pod| pod.cut_off = true);
    for _ in 0..20 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.story, [""; 0]);
    let (status, reason, _) = condition(&world.observe(&mut random), "Available");
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "Unreachable"));
}

#[test]
fn strangers_are_told_and_never_removed() {
    let (mut world, mut random) = settled(3);
    let mut stranger = world.list[0].clone();
    stranger.id = etcd_operator::etcd::Id(0xbad);
    stranger.name = "somebody".to_owned();
    stranger.peer_urls = vec!["http://elsewhere:2380".to_owned()];
    world.list.push(stranger);
    let mut seen = world.observe(&mut random);
    seen.members = Known::Value { value: world.list.clone(), at: seen.now };
    assert_eq!(steps(&seen), [""; 0]);
    let (status, _, message) = condition(&seen, "MembersKnown");
    assert!(status == "False" && message.contains("bad (somebody)"), "{message}");
}

#[test]
fn of_too_many_members_the_leader_stays() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.size = 1;
    let leader = {
        let seen = world.observe(&mut random);
        seen.pods.iter().find_map(|pod| pod.etcd.value()?.leader).unwrap()
    };
    for _ in 0..40 {
        turn(&mut world, &mut random);
    }
    assert_eq!(world.list.iter().map(|listed| listed.id).collect::<Vec<_>>(), [leader]);
    assert_eq!((world.pods.len(), world.volumes.len(), world.records.len()), (1, 1, 1), "{:#?}", world.story);
}

#[test]
fn pods_are_made_anew_one_at_a_time_and_the_leader_hands_over_first() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.version = "3.6.17".to_owned();
    let leader = world.observe(&mut random).pods.iter().find_map(|pod| pod.etcd.value()?.leader).unwrap();
    let leads = world.list.iter().find(|listed| listed.id == leader).unwrap().name.clone();
    let first = steps(&observed(&mut world, &mut random));
    assert_eq!(first.len(), 2, "{first:?}");
    assert!(first[0].starts_with("update EtcdMember"), "its version is written down first: {first:?}");
    assert!(first[1].starts_with("evict Pod") && !first[1].ends_with(&leads), "{first:?}");
    world.pods.values_mut().filter(|pod| pod.reference.name != leads).for_each(|pod| pod.version.patch = 17);
    for (_, record) in world.records.iter_mut().filter(|(name, _)| **name != leads) {
        record.spec.version = Some("3.6.17".parse().unwrap());
    }
    let last = steps(&observed(&mut world, &mut random));
    assert!(last.len() == 1 && last[0].starts_with("let member"), "{last:?}");
}

#[test]
fn who_is_paused_or_somebody_elses_is_left_alone() {
    let (mut world, mut random) = settled(3);
    world.pods.clear();
    world.cluster.spec.paused = true;
    let mut seen = world.observe(&mut random);
    assert_eq!(analyse(&seen).steps, []);
    assert_eq!(condition(&seen, "Ready").1, "Paused");
    seen.is_ours = false;
    assert_eq!(analyse(&seen), wheelhouse::Plan::new());
}

#[test]
fn who_keeps_data_in_pods_is_told_what_that_means() {
    let (mut world, mut random) = settled(1);
    world.cluster.spec.storage.empty_dir = true;
    let (status, reason, message) = condition(&world.observe(&mut random), "Durable");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "EmptyDir"));
    assert!(message.contains("a member whose pod is deleted has lost its data"), "{message}");
}
