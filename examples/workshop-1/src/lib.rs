//! Stage 1 of the workshop: the API is registered, and nothing is done about it yet.

pub mod postgres_cluster;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("workshop-1-operator").version(env!("CARGO_PKG_VERSION")).crd(postgres_cluster::crd())
}
