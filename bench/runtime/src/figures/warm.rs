//! Warm restart: the contestant starts again on the world that it has converged.

use anyhow::Result;
use wheelhouse_bench::process_usage;

use crate::{
    arena::{Arena, Player},
    results::{Measure, Sample},
    run::{Event, Run},
    world::World,
};

/// Starts the contestant and waits until it has reconciled everything once; it goes on running.
pub(super) async fn measure(arena: &Arena<'_>, player: &Player, world: &World) -> Result<(Run, Vec<Sample>)> {
    let stage = arena.progress.stage(format!("{}: restarting", player.name()));
    let mark = arena.mark().await?;
    let mut run = arena.start(player, world)?;
    let settled = run.hear(Event::Settled, arena.options.patience).await?;
    let cpu = process_usage::cpu_time(run.pid())?;
    let first = run.hear(Event::FirstReconcile, arena.options.patience).await?;
    let writes = arena.writes_until_quiet(player, &mark).await?;
    stage.done();

    let samples = vec![
        (Measure::WarmFirst, run.age_at(&first)?.as_secs_f64()),
        (Measure::WarmWall, run.age_at(&settled)?.as_secs_f64()),
        (Measure::WarmCpu, cpu.as_secs_f64()),
        (Measure::WarmWrites, writes.len() as f64),
    ];
    Ok((run, samples))
}
