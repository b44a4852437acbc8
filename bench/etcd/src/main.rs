//! `bench-etcd`: the etcd operator, measured on a local cluster with three nodes, and with hundreds and
//! thousands of simulated clusters.
//!
//! What is measured, and how, is told in `docs/benchmarks.md`.
//!
//! The way through: [`options`] says what is wanted; [`cluster`] has the figures of real clusters; [`many`]
//! those of many simulated ones; [`results`] makes the table.

mod cluster;
mod many;
mod options;
mod results;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser as _;
use wheelhouse_bench::samples;

use crate::{
    options::{Figure, Options},
    results::Results,
};

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    // Whoever interrupts it finds nothing left: what was started ends with what holds it.
    let outcome = tokio::select! {
        outcome = bench(&options) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(options: &Options) -> Result<()> {
    let mut results = Results::new(options);
    // What was measured before something went wrong is told, too.
    let outcome = measure(options, &mut results).await;
    if !results.is_empty() {
        println!("{results}");
        samples::write(&options.output, &results)?;
        println!("every sample is in {}", options.output.display());
    }
    outcome?;
    match results.failures() {
        0 => Ok(()),
        failures => bail!("{failures} measurements failed: what went wrong is told above"),
    }
}

async fn measure(options: &Options, results: &mut Results) -> Result<()> {
    if options.figures.contains(&Figure::Many) {
        for clusters in &options.clusters {
            many::measure(options, *clusters, results).await?;
        }
    }
    if options.figures.iter().any(|figure| *figure != Figure::Many) {
        cluster::measure(options, results).await?;
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
