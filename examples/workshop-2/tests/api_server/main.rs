//! The operator against a real API server, under exactly the rules that it declares. No controller of Kubernetes' own
//! runs here.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by ending")]

mod postgres_cluster;
