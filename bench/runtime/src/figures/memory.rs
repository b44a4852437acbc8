//! Memory: how much is resident on a large converged world.

use std::time::Duration;

use anyhow::Result;
use wheelhouse_bench::process_usage;

use crate::{
    arena::{Arena, Player},
    contestants::Objects,
    results::{Measure, Results, Sample},
    run::Event,
    widget::Payload,
    world::World,
};

/// From the end of the work to the measurement, so that what a runtime gives back it has given back.
const REST: Duration = Duration::from_secs(15);

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Measures everybody on a world as they leave it themselves: the first one who leaves objects of that form
/// makes it.
pub(super) async fn measure(arena: &Arena<'_>, players: &[&Player], results: &mut Results) -> Result<()> {
    for objects in [Objects::ControllerRuntime, Objects::Wheelhouse] {
        let players: Vec<_> =
            players.iter().filter(|player| player.contestant.entry.leaves == objects).collect();
        let Some(maker) = players.first() else { continue };
        let mut world = arena.world(arena.options.objects, Payload::Large).await?;
        let mark = arena.mark().await?;
        let run = arena.converge(maker, &mut world).await?;
        arena.writes_until_quiet(maker, &mark).await?;
        run.stop().await?;
        for player in players {
            results.add(player.name(), at_rest(arena, player, &world).await?);
        }
    }
    Ok(())
}

/// Starts the contestant on the converged world, lets it reconcile everything once, and then rest.
async fn at_rest(arena: &Arena<'_>, player: &Player, world: &World) -> Result<Vec<Sample>> {
    let stage =
        arena.progress.stage(format!("{}: memory, {} s after it has settled", player.name(), REST.as_secs()));
    let mark = arena.mark().await?;
    let mut run = arena.start(player, world)?;
    run.hear(Event::Settled, arena.options.patience).await?;
    tokio::time::sleep(REST).await;
    let memory = process_usage::memory(run.pid())?;
    let writes = arena.writes_until_quiet(player, &mark).await?;
    run.stop().await?;
    stage.done();
    Ok(vec![
        (Measure::MemorySteady, memory.resident as f64 / MEBIBYTE),
        (Measure::MemoryAnonymous, memory.anonymous as f64 / MEBIBYTE),
        (Measure::MemoryPeak, memory.peak as f64 / MEBIBYTE),
        (Measure::MemoryWrites, writes.len() as f64),
    ])
}
