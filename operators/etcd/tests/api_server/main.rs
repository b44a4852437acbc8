//! The etcd operator on a real API server, without nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod admission;
mod backups;
mod beginning;
mod certificates;
mod metrics;
mod place;
mod restores;
mod surface;
mod upkeep;
