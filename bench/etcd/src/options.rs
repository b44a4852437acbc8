//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  # everything (about an hour)
  bench-etcd --wheelhouse target/release/wheelhouse

  # a quick look at some figures, on a local cluster
  bench-etcd --rounds 1 --figures apply,follower

  # only with simulated members, which needs no root
  bench-etcd --figures many --clusters 20 --rounds 1 --idle-seconds 10";

const DEFAULT_OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results/etcd.json");

/// Measure the etcd operator
#[derive(Debug, Parser)]
#[command(name = "bench-etcd", version, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The command that brings up the local cluster
    #[arg(long, value_name = "PROGRAM", default_value = "wheelhouse")]
    pub(crate) wheelhouse: PathBuf,

    /// How often each figure is measured; the median and the worst count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,

    /// Only these figures, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES", default_values_t = Figure::ALL)]
    pub(crate) figures: Vec<Figure>,

    /// How many simulated clusters one operator has; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [200, 2000])]
    pub(crate) clusters: Vec<usize>,

    /// How many of the simulated clusters are changed one at a time, in each round
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) changes: usize,

    /// How long an operator with simulated clusters is watched while nothing happens
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) idle_seconds: u64,

    /// How long anything may take before it is given up
    #[arg(long, value_name = "SECONDS", default_value = "180", value_parser = seconds)]
    pub(crate) patience: Duration,

    /// Where the samples go, as JSON [default: bench/etcd/results/etcd.json in the source tree]
    #[arg(long, value_name = "FILE", default_value = DEFAULT_OUTPUT, hide_default_value = true)]
    pub(crate) output: PathBuf,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// From apply to three healthy members
    Apply,
    /// From three members to five
    Grow,
    /// From five members to three
    Shrink,
    /// From the deletion of a follower's pod to three healthy members
    Follower,
    /// The same for two of three pods
    Two,
    /// The same for all three
    Three,
    /// How long nothing is written when the leader's process is killed
    Leader,
    /// The same while three members become five
    Scale,
    /// The same while three members go from 3.5 to 3.6
    Upgrade,
    /// The memory of the operator, after all that
    Memory,
    /// Hundreds and thousands of clusters on one operator, with simulated members
    Many,
}

impl Figure {
    pub(crate) const ALL: [Self; 11] = [
        Self::Apply,
        Self::Grow,
        Self::Shrink,
        Self::Follower,
        Self::Two,
        Self::Three,
        Self::Leader,
        Self::Scale,
        Self::Upgrade,
        Self::Memory,
        Self::Many,
    ];
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|error| error.to_string())
}
