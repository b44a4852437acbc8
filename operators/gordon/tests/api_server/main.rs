//! Gordon against a real API server, under exactly the rules that it declares.
//! No kubelet runs here: pods are there, and stay pending.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod admission;
mod api_calls;
mod explaining;
mod leaders;
mod place;
mod random_steps;
