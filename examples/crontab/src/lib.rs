//! The operator of crontab: what it looks after, a module for each kind.

pub mod cron_tab;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("crontab-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(cron_tab::crd())
        .controller(cron_tab::controller())
}
