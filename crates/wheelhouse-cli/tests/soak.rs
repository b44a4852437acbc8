//! Clusters killed at random moments, for as long as one likes: `SOAK_MINUTES` (10 by default)
//! from `SOAK_SEED` (1 by default). After each round nothing may be left on the host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::time::{Duration, Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Wheelhouse, host::Host};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A number that looks random and is the same for the same seed (SplitMix64).
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn a_cluster_killed_at_any_moment_leaves_nothing_after_down() {
    let minutes = setting("SOAK_MINUTES", 10);
    let mut seed = setting("SOAK_SEED", 1);
    let begun = Instant::now();
    let before = Host::now();
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        let mut wheelhouse = Wheelhouse::new();
        let (signal, after) = match draw(&mut seed) % 3 {
            0 => (Signal::SIGINT, draw(&mut seed) % 12_000),
            _ => (Signal::SIGKILL, draw(&mut seed) % 12_000),
        };
        let nodes = 1 + draw(&mut seed) % 3;
        println!("round {rounds}: {signal} to `up --nodes {nodes}` after {after} ms");
        let child = wheelhouse.start_up("soak", &["--nodes", &nodes.to_string()]);
        std::thread::sleep(Duration::from_millis(after));
        let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        child.wait_with_output().unwrap();
        if draw(&mut seed).is_multiple_of(3) {
            wheelhouse.up("soak", &["--nodes", "3"]).ok();
        }
        wheelhouse.local(&["down", "soak", "--if-exists"]).ok();
        assert_eq!("", Host::left_since(&before), "round {rounds}");
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(rounds > 0);
}
