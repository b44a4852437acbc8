//! Specs from the schema: what people may write, tried out, after Acto (SOSP '23).
//!
//! From a kind's CRD come changes of a resource, valid and invalid ones. Each is
//! applied and taken back: what the operator made has to be as it was before, an invalid
//! one is refused or told, and the next valid one heals it.
//!
//! ```no_run
//! # use wheelhouse_testing::{faults::Subject, specs::SpecTrial};
//! # use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
//! # async fn example(subject: Subject, crd: CustomResourceDefinition, resource: serde_json::Value) {
//! let report = SpecTrial::new(subject, crd, resource).run().await.unwrap();
//! assert!(report.findings.is_empty(), "{report}");
//! # }
//! ```

mod mutations;
mod trial;

pub use mutations::{Mutation, mutations};
pub use trial::{SpecFinding, SpecReport, SpecTrial};
