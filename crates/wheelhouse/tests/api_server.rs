//! The engine against a real API server: the laws, one by one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests"
)]

mod api_server {
    mod applies;
    #[allow(unreachable_pub, reason = "the derive makes a public type")]
    mod widgets;
}
