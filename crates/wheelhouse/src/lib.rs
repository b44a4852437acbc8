//! The SDK for Kubernetes operators that observe, analyse and act.
//!
//! An operator is three functions. [`Operator::observe`] reads the world into one
//! value, [`Operator::analyse`] compares it with what is wanted and returns a
//! [`Plan`], and act carries the plan out: the SDK does that, and the operator
//! adds only the steps that nobody else knows.
//!
//! An event's way through this crate:
//!
//! - [`cache`]: one informer for each kind, read through listers; own writes are visible.
//! - [`triggers`]: from a change of any object to the key of a resource.
//! - [`queue`]: which key is worked on next.
//! - [`Controller`]: an operator, and what it is registered for.
//! - [`world`]: what `observe` reads through.
//! - [`plan`]: what is to be done, as data; `act` (inside) does it.
//! - [`decisions`]: what was seen and decided, to be shown, recorded and replayed.
//! - [`Manager`]: holds it all together.

mod act;
pub mod agent;
mod backoff;
pub mod cache;
pub mod certificates;
pub mod client;
pub mod controller;
pub mod decisions;
pub mod error;
mod exclusion;
pub mod key;
pub mod kind;
pub mod labels;
pub mod manager;
pub mod metrics;
pub mod mode;
pub mod operator;
pub mod overrides;
pub mod plan;
pub mod queue;
mod rbac;
pub mod triggers;
pub mod webhooks;
pub mod world;

pub use controller::{Controller, ControllerSettings, Declared};
pub use error::{Category, Error, Result};
pub use exclusion::Exclusion;
pub use key::Key;
pub use kind::Kind;
pub use manager::Manager;
pub use mode::Mode;
pub use operator::{Acting, Operator};
pub use plan::{Action, Event, NoAction, Plan, Reference, Step};
pub use rbac::Agent;
pub use webhooks::Webhooks;
pub use world::{Known, Probe, World};

pub use jiff;
pub use k8s_openapi;
pub use kube;
pub use schemars;
pub use serde;

// So that the `projection!` macro works in this crate's own tests too.
extern crate self as wheelhouse;

/// The programs of the book's page are built, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/operators.md")]
struct Book;
