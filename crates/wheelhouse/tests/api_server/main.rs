//! The engine against a real API server: the laws, one by one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod applies;
mod caches;
mod decisions;
mod dependencies;
mod dynamic;
mod elections;
mod isolation;
mod manager;
mod own_actions;
mod rights;
mod steps;
mod survival;
#[cfg(feature = "opentelemetry")]
mod traces;
mod unreadable;
mod webhooks;
mod widgets;
