//! The operator of memcached: what it looks after, a module for each kind.

pub mod memcached;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("memcached-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(memcached::crd())
        .controller(memcached::controller())
}
