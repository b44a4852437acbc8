//! Stage 2 of the workshop: what happens to resources is said.

pub mod postgres_cluster;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("workshop-2-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(postgres_cluster::crd())
        .controller(postgres_cluster::controller())
}
