//! How far members are, as far as this process has heard: what may be missing when most of them are gone.
//!
//! It changes all the time, so it is no part of what members answer, and of observations only where it is
//! needed. Nothing is decided on what is remembered of members that do not answer: it is only told.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wheelhouse::jiff::{SignedDuration, Timestamp};

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// Up to where it knows the log to be committed.
    pub index: u64,
    /// In which term.
    pub term: u64,
    /// The revision of its data.
    pub revision: i64,
    /// Whether it only learns.
    pub is_learner: bool,
    /// How many members have a vote, as far as it knows; asked only where it knows no leader.
    pub voters: usize,
}

/// A position, and when it was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// How far it was.
    pub position: Position,
    /// When.
    pub at: Timestamp,
}

/// Clusters that nobody heard of for so long are forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// What was heard last of every pod, by the UID of its cluster.
#[derive(Debug, Default)]
pub struct Positions(Mutex<HashMap<String, BTreeMap<String, Seen>>>);

impl Positions {
    /// A pod of that cluster has said how far it is.
    pub(crate) fn heard(&self, cluster: &str, pod: &str, position: Position) {
        let at = Timestamp::now();
        let mut all = self.0.lock();
        let is_new = !all.contains_key(cluster);
        all.entry(cluster.to_owned()).or_default().insert(pod.to_owned(), Seen { position, at });
        if is_new {
            let is_recent = |seen: &Seen| at.duration_since(seen.at) < FORGOTTEN_AFTER;
            all.retain(|_, pods| pods.values().any(is_recent));
        }
    }

    /// How far a pod said that it was, the last time.
    pub(crate) fn of(&self, cluster: &str, pod: &str) -> Option<Position> {
        self.0.lock().get(cluster)?.get(pod).map(|seen| seen.position)
    }

    /// The furthest that was heard of in a cluster.
    pub(crate) fn furthest(&self, cluster: &str) -> Option<Seen> {
        self.0.lock().get(cluster)?.values().copied().max_by_key(|seen| seen.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_is_remembered_of_pods_that_are_gone() {
        let positions = Positions::default();
        let position = |index| Position { index, term: 2, revision: 7, is_learner: false, voters: 3 };
        positions.heard("cluster", "a", position(10));
        positions.heard("cluster", "b", position(12));
        positions.heard("cluster", "a", position(11));
        positions.heard("another", "c", position(99));
        assert_eq!(positions.of("cluster", "a"), Some(position(11)));
        assert_eq!(positions.furthest("cluster").map(|seen| seen.position), Some(position(12)));
        assert_eq!(positions.furthest("nobody"), None);
    }
}
