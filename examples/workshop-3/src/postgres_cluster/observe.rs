//! Observe: a PostgresCluster, and whether its server runs. Reads, and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use serde::{Deserialize, Serialize};
use wheelhouse::{Result, World, jiff::Timestamp, world::Failure};

use super::api::PostgresCluster;

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: PostgresCluster,
    /// How many servers take connections; none if nothing was made for them yet.
    pub ready: Option<i32>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

pub(super) async fn observe(resource: Arc<PostgresCluster>, world: &World<'_>) -> Result<Seen> {
    let servers = world.owned::<StatefulSet>().await?;
    Ok(Seen {
        resource: (*resource).clone(),
        ready: servers.first().map(|servers| ready(servers)),
        last_failure: world.last_failure(),
        now: world.now(),
    })
}

/// Nobody knows of a server that was changed and not looked at since.
fn ready(servers: &StatefulSet) -> i32 {
    let status = servers.status.clone().unwrap_or_default();
    let is_current = status.observed_generation == servers.metadata.generation
        && status.current_revision == status.update_revision;
    if is_current { status.ready_replicas.unwrap_or_default() } else { 0 }
}
