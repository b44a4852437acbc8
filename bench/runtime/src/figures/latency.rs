//! Latency: from the answer to a spec change to the arrival of the write that follows it.
//!
//! Both times are the API server's own, from its audit log, so that the harness adds nothing to them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use wheelhouse_bench::samples::percentile;
use wheelhouse_testing::{Request, Requests};

use crate::{
    arena::{Arena, Player},
    results::{Measure, Sample},
    world::World,
};

/// How long a contestant may take to follow one change.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between a change that was followed and the next one, so that the contestant is idle again.
const PAUSE: Duration = Duration::from_millis(20);

/// Changes one Widget after the other, on a converged world with an idle contestant.
pub(super) async fn measure(arena: &Arena<'_>, player: &Player, world: &mut World) -> Result<Vec<Sample>> {
    let changes = arena.options.changes;
    let mut stage = arena.progress.stage(format!("{}: {changes} spec changes", player.name()));
    let mark = arena.mark().await?;
    for change in 0..changes {
        let size = i64::try_from(change).context("too many changes")? + 2;
        world.change(change % world.size(), size, PATIENCE).await?;
        stage.at(change + 1, changes);
        tokio::time::sleep(PAUSE).await;
    }
    stage.done();

    let latencies = latencies(&arena.requests_since(&mark).await?, &player.user())?;
    Ok(vec![
        (Measure::LatencyP50, percentile(&latencies, 50).context("no change was followed")?),
        (Measure::LatencyP99, percentile(&latencies, 99).context("no change was followed")?),
    ])
}

/// In milliseconds, one for each change that somebody other than `user` made. The event of a change can reach
/// its watchers before the answer is complete, so a latency may be a little below zero.
fn latencies(requests: &Requests, user: &str) -> Result<Vec<f64>> {
    let writes = requests.by_user(user).writes().filter(|request| request.resource == "configmaps");
    let changes = requests
        .filter(|request| request.user != user && request.resource == "widgets" && request.verb == "patch");
    changes
        .iter()
        .map(|change| {
            let follows = |write: &&Request| write.name == change.name && write.received >= change.received;
            let write = writes
                .iter()
                .filter(follows)
                .min_by_key(|write| write.received)
                .with_context(|| format!("nothing was written after the change of {}", change.name))?;
            Ok(write.received.duration_since(change.answered).as_secs_f64() * 1000.0)
        })
        .collect()
}
