//! `bench-runtime`: the same small operator, written on different frameworks,
//! measured in turns on one API server.
//!
//! What is measured, how, and what a contestant's program has to do is told in
//! `docs/benchmarks.md`.
//!
//! The way through: [`contestants`] lists who takes part; [`run`] is a started
//! contestant; [`arena`] is the API server and who acts there; [`world`] is what
//! is in it; [`figures`] has one module a figure; [`results`] makes the table.

mod arena;
mod contestants;
mod figures;
mod options;
mod results;
mod run;
mod widget;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use wheelhouse_bench::samples;
use wheelhouse_local::progress::{Progress, tell};

use crate::{
    arena::{Arena, Player},
    options::Options,
    results::{Conditions, Results},
};

#[tokio::main]
async fn main() -> ExitCode {
    let progress = Progress::shown();
    let outcome = bench(&Options::parse(), &progress).await;
    progress.clear();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn bench(options: &Options, progress: &Progress) -> Result<()> {
    let chosen = contestants::choose(&options.contestants)?;
    let contestants = contestants::prepare(chosen, progress).await?;
    let arena = Arena::open(options, progress).await?;
    let players = arena.admit(contestants).await?;
    let conditions = Conditions::new(options, arena.kubernetes_version().await?);
    let mut results = Results::new(conditions, players.iter().map(Player::name));
    for round in 1..=options.rounds {
        figures::round(&arena, &in_turn(&players, round), round, &mut results).await?;
    }
    progress.clear();

    println!("{results}");
    samples::write(&options.output, &results)?;
    tell(format_args!("every sample is in {}", options.output.display()));
    Ok(())
}

/// Another one begins in each round, so that nobody is always the first on a fresh API server.
fn in_turn(players: &[Player], round: usize) -> Vec<&Player> {
    let mut order: Vec<_> = players.iter().collect();
    let first = (round - 1) % order.len().max(1);
    order.rotate_left(first);
    order
}
