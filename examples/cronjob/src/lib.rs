//! The operator of cronjob: what it looks after, a module for each kind.

pub mod cron_job;

use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("cronjob-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(cron_job::crd())
        .controller(cron_job::controller())
        .webhooks(webhooks())
}

/// What the API server asks before it takes a resource.
fn webhooks() -> wheelhouse::Webhooks {
    cron_job::webhooks(wheelhouse::Webhooks::new())
}
