//! Cold convergence: every Widget is there before the contestant starts, and no ConfigMap is.

use anyhow::Result;
use wheelhouse_bench::process_usage;

use crate::{
    arena::{Arena, Player},
    results::{Measure, Sample},
    world::World,
};

/// Lets the contestant converge the world, and ends it when it is done.
///
/// The time ends when the last Widget has converged. Processor time and writes go on until the contestant is
/// quiet, so that what it does again after its own writes counts.
pub(super) async fn measure(arena: &Arena<'_>, player: &Player, world: &mut World) -> Result<Vec<Sample>> {
    let mark = arena.mark().await?;
    let run = arena.converge(player, world).await?;
    let wall = run.begun.elapsed();
    let writes = arena.writes_until_quiet(player, &mark).await?;
    let cpu = process_usage::cpu_time(run.pid())?;
    let stats = run.stop().await?;

    let resources = world.size() as f64;
    let failed = writes.filter(|request| request.code >= 400);
    if !failed.is_empty() {
        arena.progress.line(format!("{}: these writes failed:\n{failed}", player.name()));
    }
    Ok(vec![
        (Measure::ColdWall, wall.as_secs_f64()),
        (Measure::ColdCpu, cpu.as_secs_f64()),
        (Measure::ColdWrites, writes.len() as f64 / resources),
        (Measure::ColdFailedWrites, failed.len() as f64),
        (Measure::ColdReconciles, stats.reconciles as f64 / resources),
        (Measure::ColdErrors, stats.errors as f64),
    ])
}
