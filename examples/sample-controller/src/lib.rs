//! The operator of sample-controller: what it looks after, a module for each kind.

pub mod foo;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("sample-controller-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(foo::crd())
        .controller(foo::controller())
}
