//! Which backups are taken, kept and let go, whatever happens on the way; without a cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod model;

use model::World;
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

/// Operators crash between any two writes, another one acts on old news, pods are killed at any point, and nodes
/// take them along or only out of reach, where they run on. At every step (the model asserts it) no backup is removed unless as many newer ones as are to be
/// kept were verified, so never the last good one; and nothing is in the history that was not verified. Once
/// nothing happens any more, the place holds just what the history says, and there is nothing else left.
///
/// `WORLDS` says how many are tried: 20 unless told otherwise.
#[test]
fn no_backup_that_is_to_be_kept_is_ever_lost_and_nothing_is_left_behind() {
    let worlds: u64 = std::env::var("WORLDS").ok().map_or(20, |text| text.parse().unwrap());
    let (mut taken, mut removed) = (0, 0);
    for seed in 0..worlds {
        let mut random = SmallRng::seed_from_u64(seed);
        let keep = random.random_range(1..=3);
        let mut world = World::new(keep);
        let mut old = None;
        for _ in 0..random.random_range(50..400) {
            let seen = world.observe();
            if random.random_bool(0.1) {
                // Another operator believes to lead, and what it saw is old.
                if let Some(old) = old.replace(seen.clone()) {
                    world.follow(&old, None);
                }
            }
            let crash = random.random_bool(0.1).then(|| random.random_range(0..3));
            world.follow(&seen, crash);
            world.run_pods(&mut random, 0.08);
            if random.random_bool(0.03) {
                world.lose_the_node(random.random_bool(0.5));
            }
            world.pass(random.random_range(0..40));
        }
        world.forget_the_node();
        // First all is well, and then time stands still.
        for round in 0..450 {
            let seen = world.observe();
            world.follow(&seen, None);
            world.run_pods(&mut random, 0.0);
            world.pass(if round < 400 { 2 } else { 0 });
        }
        let (whole, history) = (world.whole(), world.history());
        assert_eq!(whole, history, "seed {seed}: {:#?}", world.story);
        assert_eq!(world.files.len(), whole.len(), "seed {seed}: something is left: {:#?}", world.files);
        assert!(!whole.is_empty() && whole.len() <= usize::try_from(keep).unwrap(), "seed {seed}: {whole:?}");
        taken += world.taken;
        removed += world.removed;
    }
    println!("{worlds} worlds, {taken} backups taken, {removed} removed: none too many");
    assert!(taken > worlds * 2 && removed > worlds, "{taken} taken, {removed} removed");
}

#[test]
fn one_backup_is_taken_for_a_time_however_often_anybody_looks() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut world = World::new(3);
    for _ in 0..200 {
        let seen = world.observe();
        world.follow(&seen, None);
        world.follow(&seen, None);
        world.run_pods(&mut random, 0.0);
        world.pass(1);
    }
    // At the beginning and after each 100 s.
    assert_eq!(world.taken, 2, "{:#?}", world.story);
}

#[test]
fn while_it_is_paused_no_backup_begins_and_afterwards_the_last_that_was_missed_is_made_up_for() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut world = World::new(3);
    let mut turns = |world: &mut World, times: u32| {
        for _ in 0..times {
            let seen = world.observe();
            world.follow(&seen, None);
            world.run_pods(&mut random, 0.0);
            world.pass(1);
        }
    };
    world.pause(true);
    turns(&mut world, 350);
    assert_eq!((world.taken, world.history().len()), (0, 0), "{:#?}", world.story);
    world.pause(false);
    turns(&mut world, 30);
    assert_eq!(world.taken, 1, "{:#?}", world.story);
}

#[test]
fn a_pod_on_a_node_that_is_gone_keeps_no_backup_from_being_taken() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut world = World::new(3);
    let seen = world.observe();
    world.follow(&seen, None);
    let seen = world.observe();
    world.follow(&seen, None);
    world.lose_the_node(true);
    for _ in 0..350 {
        let seen = world.observe();
        world.follow(&seen, None);
        world.run_pods(&mut random, 0.0);
        world.pass(1);
    }
    // The one that it was at, and one after each 100 s.
    assert_eq!(world.taken, 4, "{:#?}", world.story);
}
