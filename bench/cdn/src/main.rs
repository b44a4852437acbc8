//! `bench-cdn`: requests per second and their times through a balancer and its caches,
//! on hits, in turns with the same nginx configured by hand in the same pods; and the
//! time from a pod's readiness to its first request.
//!
//! The way through: [`stage`] is the cluster and who configures the pods; [`load`] asks
//! and counts; [`results`] makes the table.

mod load;
mod results;
mod stage;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::Parser;
use wheelhouse_bench::samples;

use crate::{
    load::Load,
    results::Results,
    stage::{Configured, Stage},
};

/// Measure the CDN against the same nginx configured by hand in the same pods
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  bench-cdn --wheelhouse target/release/wheelhouse\n  bench-cdn --rounds 1 --seconds 3   a quick look"
)]
struct Options {
    /// The command
    #[arg(long, default_value = "wheelhouse")]
    wheelhouse: PathBuf,
    /// How often both are measured, in turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each time
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How many connections at a time
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// How often a cache pod is added
    #[arg(long, default_value_t = 3)]
    pods: usize,
    /// Where the samples go
    #[arg(long, default_value = "bench/cdn/results/cdn.json")]
    output: PathBuf,
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<()> {
    let stage = Stage::up(&options.wheelhouse)?;
    let load = Load {
        address: stage.balancer()?,
        connections: options.connections,
        time: Duration::from_secs(options.seconds),
    };
    let mut results = Results::default();
    for round in 1..=options.rounds {
        // Whoever begins changes, so that neither always comes second.
        let mut turns = [Configured::ByTheOperator, Configured::ByHand];
        if round % 2 == 0 {
            turns.reverse();
        }
        for who in turns {
            stage.configure(who).with_context(|| format!("cannot have it configured {who}"))?;
            load.warm_up()?;
            let sample = load.run()?;
            eprintln!(
                "round {round} of {}: configured {who}: {:.0} requests a second, p99 {:.2} ms",
                options.rounds, sample.rate, sample.p99
            );
            results.add(who, sample);
        }
    }
    stage.configure(Configured::ByTheOperator)?;
    for _ in 0..options.pods {
        let waited = stage.first_request_of_a_new_pod(&load)?;
        eprintln!("a new pod was ready, and had its first request {:.2} s later", waited.as_secs_f64());
        results.first_requests.push(waited.as_secs_f64());
    }
    println!("{results}");
    samples::write(&options.output, &results)?;
    println!("every sample is in {}", options.output.display());
    stage.down()
}
