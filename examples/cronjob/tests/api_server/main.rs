//! The operator against a real API server, under exactly the rules that it declares. No controller of Kubernetes' own
//! runs here: a Job is there, and nothing runs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests"
)]

mod admission;
mod conversion;
mod runs;

use cronjob_operator::manager;
use serde_json::{Value, json};
use wheelhouse::overrides;
use wheelhouse_testing::{Operating, Place};

/// The operator at work in a namespace of its own.
async fn at_work(purpose: &str) -> (Place, Operating) {
    let place = Place::with(purpose, &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    (place, operating)
}

/// A spec with this in it.
fn spec(more: Value) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1.37"}]});
    let mut spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod}}}});
    overrides::merge(&mut spec, &more);
    spec
}
