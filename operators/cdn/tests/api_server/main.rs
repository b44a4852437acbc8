//! The CDN operator on a real API server, without nodes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod admission;
mod dependencies;
mod place;
mod purges;
mod seed;
