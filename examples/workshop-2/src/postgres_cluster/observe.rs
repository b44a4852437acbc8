//! Observe: a PostgresCluster. There is nothing else to read yet.

use serde::{Deserialize, Serialize};

use super::api::PostgresCluster;

/// The world as this operator has to know it. Plain data: it is shown, recorded and replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub resource: PostgresCluster,
}
