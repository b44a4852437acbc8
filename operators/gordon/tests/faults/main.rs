//! What takes minutes: `make test` runs everything in a module `trials` beside the other tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod trials;
