//! Backups of a real etcd: what a file has to be, and what becomes of it on a volume and in S3.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "these are tests"
)]

mod etcd;
mod files;
mod s3;
mod volume;
