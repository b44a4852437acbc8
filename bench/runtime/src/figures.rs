//! What is measured: one module a figure.

mod cold;
mod latency;
mod memory;
mod warm;

use anyhow::{Context as _, Result};

use crate::{
    arena::{Arena, Player},
    options::Figure,
    results::Results,
    widget::Payload,
};

/// Measures everybody once.
pub(crate) async fn round(
    arena: &Arena<'_>,
    players: &[&Player],
    round: usize,
    results: &mut Results,
) -> Result<()> {
    let rounds = arena.options.rounds;
    for player in players {
        if ![Figure::Cold, Figure::Warm, Figure::Latency]
            .iter()
            .any(|figure| is_wanted(arena, player, *figure))
        {
            continue;
        }
        arena.progress.line(format!("round {round} of {rounds}: {}", player.name()));
        turn(arena, player, results).await.with_context(|| format!("cannot measure {}", player.name()))?;
    }
    let remembering: Vec<_> =
        players.iter().copied().filter(|player| is_wanted(arena, player, Figure::Memory)).collect();
    if !remembering.is_empty() {
        arena.progress.line(format!("round {round} of {rounds}: memory"));
        memory::measure(arena, &remembering, results).await.context("cannot measure memory")?;
    }
    Ok(())
}

/// One contestant on a world of its own: first to converge, then to restart there, then to follow changes.
async fn turn(arena: &Arena<'_>, player: &Player, results: &mut Results) -> Result<()> {
    let mut world = arena.world(arena.options.resources, Payload::Small).await?;
    // Whatever is wanted: the world that the rest is measured on is one that the contestant itself has made.
    let cold = cold::measure(arena, player, &mut world).await?;
    if is_wanted(arena, player, Figure::Cold) {
        results.add(player.name(), cold);
    }
    if !is_wanted(arena, player, Figure::Warm) && !is_wanted(arena, player, Figure::Latency) {
        return Ok(());
    }
    let (run, warm) = warm::measure(arena, player, &world).await?;
    if is_wanted(arena, player, Figure::Warm) {
        results.add(player.name(), warm);
    }
    if is_wanted(arena, player, Figure::Latency) {
        results.add(player.name(), latency::measure(arena, player, &mut world).await?);
    }
    run.stop().await.map(drop)
}

/// Whether this run is to measure it, and this contestant is in for it.
fn is_wanted(arena: &Arena<'_>, player: &Player, figure: Figure) -> bool {
    arena.options.figures.contains(&figure) && player.contestant.entry.figures.contains(&figure)
}
