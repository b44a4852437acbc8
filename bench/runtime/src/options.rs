//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  # everything, at full size (about an hour)
  bench-runtime

  # a quick look
  bench-runtime --rounds 1 --resources 500 --objects 2000

  # only the memory of two contestants
  bench-runtime --figures memory --contestants controller-runtime,wheelhouse";

const DEFAULT_OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results/runtime.json");

/// Measures operators on different frameworks, in turns, on one API server.
///
/// A contestant whose program is not there is left out, with a message.
#[derive(Debug, Parser)]
#[command(name = "bench-runtime", version, after_help = EXAMPLES)]
pub(crate) struct Options {
    /// How often each contestant is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub(crate) rounds: usize,

    /// How many Widgets there are for all figures but memory
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = at_least_one)]
    pub(crate) resources: usize,

    /// How many Widgets, and as many ConfigMaps, of 2 KB each there are for memory
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = at_least_one)]
    pub(crate) objects: usize,

    /// How many spec changes latency is measured on
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_least_one)]
    pub(crate) changes: usize,

    /// How many reconciles each contestant may run at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub(crate) workers: usize,

    /// Only these figures, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURES", default_values_t = Figure::ALL)]
    pub(crate) figures: Vec<Figure>,

    /// Only these contestants, separated by commas; all of them if not given
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) contestants: Vec<String>,

    /// How long a contestant may take for one step before the run is given up
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub(crate) patience: Duration,

    /// Where the samples go, as JSON [default: bench/runtime/results/runtime.json in the source tree]
    #[arg(long, value_name = "FILE", default_value = DEFAULT_OUTPUT, hide_default_value = true)]
    pub(crate) output: PathBuf,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// From nothing to a converged world
    Cold,
    /// A restart on a converged world
    Warm,
    /// From a spec change to the write that follows
    Latency,
    /// Resident memory on a large converged world
    Memory,
}

impl Figure {
    pub(crate) const ALL: [Self; 4] = [Self::Cold, Self::Warm, Self::Latency, Self::Memory];
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|error| error.to_string())
}
