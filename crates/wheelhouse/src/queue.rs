//! The queue: which key is worked on next, and when.
//!
//! `state` holds the rules, plain and synchronous; this is the same with a
//! clock, a waker and metrics.

mod state;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

pub use state::Priority;
use state::State;
pub(crate) use state::{Finished, Measured};

use crate::{backoff::jittered, error::Category, key::Key, metrics::QueueMetrics};

/// How a queue behaves.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// How many keys are worked on at the same time. Default: 10.
    pub workers: usize,
    /// How many of those that take longer than `patience` go on beside them. Default: 100.
    pub slow_workers: usize,
    /// When a reconcile counts as slow, and does not keep a worker from others. Default: 250 ms.
    pub patience: Duration,
    /// The first wait after a failure; it doubles with each. Default: 20 ms.
    pub backoff_first: Duration,
    /// The longest wait after a failure. Default: 2 minutes.
    pub backoff_at_most: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            workers: 10,
            slow_workers: 100,
            patience: Duration::from_millis(250),
            backoff_first: Duration::from_millis(20),
            backoff_at_most: Duration::from_secs(120),
        }
    }
}

/// While the API server is away, nobody waits longer than this to try again.
const UNAVAILABLE_AT_MOST: Duration = Duration::from_secs(10);

/// The keys of one controller that wait, and those that are worked on.
pub(crate) struct Queue {
    settings: QueueSettings,
    state: Mutex<State>,
    changed: Notify,
    metrics: QueueMetrics,
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings, metrics: QueueMetrics) -> Arc<Self> {
        let state = Mutex::new(State::new(settings.workers, settings.slow_workers, settings.patience));
        Arc::new(Self { settings, state, changed: Notify::new(), metrics })
    }

    /// This key has to be looked at.
    pub(crate) fn add(&self, key: Key, priority: Priority) {
        if self.state.lock().add(key, priority, Instant::now()) {
            self.metrics.adds.inc();
        }
        self.changed.notify_one();
    }

    /// This key has to be looked at again, not before that.
    pub(crate) fn add_after(&self, key: Key, delay: Duration) {
        self.state.lock().add_at(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// The next key to work on, if there is one and a worker for it.
    pub(crate) fn take(&self) -> Option<Key> {
        let (key, _, waited) = self.state.lock().take(Instant::now())?;
        self.metrics.waited.observe(waited.as_secs_f64());
        Some(key)
    }

    /// Resolves when there may be something to take.
    pub(crate) async fn changed(&self) {
        let due = self.state.lock().next_due();
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = wait => {}
        }
    }

    /// The work on this key is done. If it went well, whoever did it takes the
    /// next key; nobody else is told.
    pub(crate) fn done(&self, key: &Key, finished: Finished) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let (took, failures) = state.done(key, finished, now);
        self.metrics.worked.observe(took.as_secs_f64());
        if let Finished::Failed(category) = finished {
            let at_most = match category {
                Category::Unavailable | Category::LostAnswer => {
                    UNAVAILABLE_AT_MOST.min(self.settings.backoff_at_most)
                }
                _ => self.settings.backoff_at_most,
            };
            let delay = crate::backoff::delay_after(failures - 1, self.settings.backoff_first, at_most);
            state.add_at(key.clone(), now + jittered(delay, rand::random()));
            self.metrics.retries.inc();
        }
        drop(state);
        if !matches!(finished, Finished::Done) {
            self.changed.notify_one();
        }
    }

    /// Nothing is known of this key any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.state.lock().forget(key);
    }

    /// Brings the gauges up to date.
    pub(crate) fn measure(&self) {
        let measured = self.state.lock().measure(Instant::now());
        self.metrics.show(&measured, self.settings.workers);
    }
}
