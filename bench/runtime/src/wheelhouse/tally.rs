//! What the harness hears: one line of JSON an event.

use std::{
    collections::HashSet,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde_json::json;
use wheelhouse::{Key, metrics::Metrics};

/// Counts, and tells at the moments that are measured.
pub(crate) struct Tally {
    expected: usize,
    has_begun: AtomicBool,
    at_rest: Mutex<Option<HashSet<Key>>>,
    metrics: OnceLock<Metrics>,
}

impl Tally {
    pub(crate) fn new(expected: usize) -> Self {
        Self {
            expected,
            has_begun: AtomicBool::new(false),
            at_rest: Mutex::new(Some(HashSet::new())),
            metrics: OnceLock::new(),
        }
    }

    /// The SDK's own metrics know how many reconciles there were.
    pub(crate) fn count_with(&self, metrics: Metrics) {
        // Set once, before anything is counted.
        let _ = self.metrics.set(metrics);
    }

    /// A reconcile begins.
    pub(crate) fn begin(&self) {
        if !self.has_begun.swap(true, Ordering::Relaxed) {
            self.tell("first_reconcile");
        }
    }

    /// There was nothing to do for this resource: it is as it should be.
    pub(crate) fn note_at_rest(&self, key: &Key) {
        let mut at_rest = self.at_rest.lock();
        let Some(keys) = at_rest.as_mut() else { return };
        keys.insert(key.clone());
        if keys.len() >= self.expected {
            *at_rest = None;
            drop(at_rest);
            self.tell("settled");
        }
    }

    pub(crate) fn tell(&self, event: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = self.metrics.get().and_then(|metrics| metrics.render().ok()).unwrap_or_default();
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        println!(
            "{}",
            json!({
                "event": event,
                "unix_nanos": nanos,
                "reconciles": sum(&text, "controller_runtime_reconcile_total{"),
                "errors": sum(&text, "controller_runtime_reconcile_errors_total{"),
            })
        );
    }
}

/// The sum of a counter over its labels.
fn sum(text: &str, counter: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(counter));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
