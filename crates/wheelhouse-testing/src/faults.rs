//! Faults, between any operator and a real API server.
//!
//! An operator is run through a [`Scenario`] undisturbed, and then again and again
//! with trouble: it crashes after every write, answers get lost, watches are late.
//! Each time it has to end up where the undisturbed run did, may not delete what
//! that did not delete, and has to stay still afterwards.
//!
//! ```no_run
//! # use wheelhouse_testing::faults::{Scenario, Subject, Trial};
//! # async fn example(subject: Subject, scenario: Scenario) {
//! let report = Trial::new(subject, scenario).run().await.unwrap();
//! assert!(report.findings.is_empty(), "{report}");
//! # }
//! ```
//!
//! The reasons are in `docs/decisions/0013-faults-between-an-operator-and-the-api-server.md`.

mod interposer;
mod process;
mod report;
mod scenario;
mod schedule;
mod state;
mod trial;

pub use report::{Finding, Report, Symptom};
pub use scenario::{Scenario, Stage};
pub use schedule::{Class, Disturbance, Schedule};
pub(crate) use state::listed_kinds;
pub use state::{Difference, State};
pub(crate) use trial::OneRun;
pub use trial::{Subject, Trial};
