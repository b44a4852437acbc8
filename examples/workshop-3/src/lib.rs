//! Stage 3 of the workshop: a PostgreSQL is kept for each resource.

pub mod postgres_cluster;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("workshop-3-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(postgres_cluster::crd())
        .controller(postgres_cluster::controller())
}
