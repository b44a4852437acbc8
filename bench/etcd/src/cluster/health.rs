//! Whether a cluster of etcd is healthy: etcd itself is asked.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use etcd_operator::etcd::{Client, Confirmed, Tcp};
use futures::future::join_all;

use super::stage::{Seat, Stage};

/// A member that does not answer within this is not healthy now.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What has to be so.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The cluster.
    pub(super) name: String,
    /// How many members it is to have.
    pub(super) size: usize,
    /// The UIDs of pods that were deleted: they do not count any more.
    pub(super) gone: BTreeSet<String>,
    /// Whether pods of former members may still be there.
    pub(super) pods_may_linger: bool,
}

impl Wanted {
    /// So many members.
    pub(super) fn new(name: &str, size: usize) -> Self {
        Self { name: name.to_owned(), size, gone: BTreeSet::new(), pods_may_linger: false }
    }
}

/// Waits until the cluster is healthy; for how long since `begun`.
pub(super) async fn wait(stage: &Stage, begun: Instant, wanted: &Wanted) -> Result<Duration> {
    let mut last = String::new();
    let seats = stage.seats(&wanted.name);
    while begun.elapsed() < stage.patience() {
        match check(&seats.now().await?, wanted).await {
            Ok(()) => return Ok(begun.elapsed()),
            Err(why) => last = why,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("{} was not healthy within {:?}: {last}", wanted.name, stage.patience())
}

/// Why it is not healthy: a quorum lists just so many members, all with a vote; each of them answers and names the
/// same leader; there are no other pods, and a write is acknowledged; or not.
async fn check(seats: &[Seat], wanted: &Wanted) -> Result<(), String> {
    let old = seats.iter().filter(|seat| seat.is_leaving || wanted.gone.contains(&seat.uid)).count();
    if !wanted.pods_may_linger && (seats.len() != wanted.size || old > 0) {
        return Err(format!("{} pods, {old} of them on their way out", seats.len()));
    }
    let answers = join_all(seats.iter().map(async |seat| (&seat.name, ask(seat).await))).await;
    let answering = answers.iter().find_map(|(_, answer)| answer.as_ref().ok());
    let Some((client, _)) = answering else { return Err("nobody answers".to_owned()) };
    let (_, members) = client.members(Confirmed::ByTheList).await.map_err(|error| error.to_string())?;
    let voters = members.iter().filter(|member| !member.is_learner).count();
    if members.len() != wanted.size || voters != wanted.size {
        return Err(format!("{} members, {voters} of them with a vote", members.len()));
    }
    let mut leaders = BTreeSet::new();
    for member in &members {
        let answer = answers.iter().find(|(name, _)| **name == member.name).map(|(_, answer)| answer);
        let (_, leader) = answer.ok_or_else(|| format!("{} has no pod", member.name))?.as_ref()?;
        leaders.insert(*leader);
    }
    if leaders.len() != 1 || leaders.contains(&0) {
        return Err(format!("the members name the leaders {leaders:x?}"));
    }
    client.put("bench/health", "ok").await.map(drop).map_err(|error| error.to_string())
}

async fn ask(seat: &Seat) -> Result<(Client, u64), String> {
    let Some(address) = &seat.address else { return Err(format!("{} has no address", seat.name)) };
    let asked = async {
        let client = Client::connect(Arc::new(Tcp), address, ANSWERS_WITHIN).await?;
        let leader = client.status().await?.leader;
        Ok::<_, etcd_operator::etcd::Error>((client, leader))
    };
    match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error| format!("{}: {error}", seat.name)),
        Err(_) => Err(format!("{} does not answer", seat.name)),
    }
}
