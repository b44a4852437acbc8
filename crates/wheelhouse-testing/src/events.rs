//! The events of a namespace, captured as they come.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client,
    api::ListParams,
    runtime::{WatchStreamExt as _, events::EventType, watcher},
};
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::error::{Error, Result};

/// How long a test waits for an event unless it says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event that was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapturedEvent {
    /// `Normal` or `Warning`.
    pub kind: String,
    /// Why, as one word.
    pub reason: String,
    /// The message: `note` in `events.k8s.io/v1`, `message` in `v1`.
    pub message: String,
    /// The kind of the object that it is about.
    pub regarding_kind: String,
    /// The name of the object that it is about.
    pub regarding_name: String,
    /// Who it is from.
    pub from: String,
    /// How often it occurred, where whoever sends it counts instead of sending it again.
    pub count: i32,
    uid: String,
}

impl CapturedEvent {
    fn new(event: Event) -> Self {
        let regarding = event.regarding.unwrap_or_default();
        let count = event.series.map(|series| series.count).or(event.deprecated_count);
        Self {
            kind: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.note.unwrap_or_default(),
            regarding_kind: regarding.kind.unwrap_or_default(),
            regarding_name: regarding.name.unwrap_or_default(),
            from: event
                .reporting_controller
                .filter(|from| !from.is_empty())
                .or(event.deprecated_source.and_then(|source| source.component))
                .unwrap_or_default(),
            count: count.unwrap_or(1).max(1),
            uid: event.metadata.uid.unwrap_or_default(),
        }
    }

    /// Whether the two are the same but for how often it occurred.
    fn recurs_in(&self, other: &Self) -> bool {
        Self { count: other.count, ..self.clone() } == *other
    }

    fn is(&self, kind: EventType, reason: &str, message: &str) -> bool {
        self.kind == kind_name(kind) && self.reason == reason && self.message == message
    }
}

impl fmt::Display for CapturedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, reason, message, regarding_kind, regarding_name, count, .. } = self;
        write!(f, "{kind} {reason} {message:?} ({regarding_kind} {regarding_name}, count {count})")
    }
}

fn kind_name(kind: EventType) -> &'static str {
    match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// What was captured, in the order in which it came.
#[derive(Debug, Default)]
struct History {
    events: Mutex<Vec<CapturedEvent>>,
    grown: Notify,
}

impl History {
    fn events(&self) -> MutexGuard<'_, Vec<CapturedEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event that changed its words is one more; one that only occurred again is not.
    fn add(&self, event: CapturedEvent) {
        let mut events = self.events();
        match events.iter_mut().find(|known| known.recurs_in(&event)) {
            Some(known) => known.count = known.count.max(event.count),
            None => events.push(event),
        }
        drop(events);
        self.grown.notify_waiters();
    }
}

/// Captures the events of one namespace until it is dropped.
///
/// Those that were there before the capture began are part of it.
#[derive(Debug)]
pub struct EventCapture {
    events: Api<Event>,
    namespace: String,
    history: Arc<History>,
    patience: Duration,
    watch: AbortHandle,
}

impl EventCapture {
    pub(crate) async fn start(client: Client, namespace: &str) -> Result<Self> {
        let events: Api<Event> = Api::namespaced(client, namespace);
        let history = Arc::<History>::default();
        let watched = Arc::clone(&history);
        // Errors are retried; who wants to know asks the API server and hears of them then.
        let stream = watcher(events.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let watch = tokio::spawn(stream.for_each(move |event| {
            if let Ok(event) = event {
                watched.add(CapturedEvent::new(event));
            }
            std::future::ready(())
        }));
        let capture = Self {
            events,
            namespace: namespace.to_owned(),
            history,
            patience: PATIENCE,
            watch: watch.abort_handle(),
        };
        capture.catch_up().await?;
        Ok(capture)
    }

    /// The same, waiting so long for an expected event; 10 s unless said otherwise.
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Waits for an event with exactly this type, reason and message; one that has already come will do.
    ///
    /// If it does not come, the error lists the events that did.
    pub async fn expect(&self, kind: EventType, reason: &str, message: &str) -> Result<CapturedEvent> {
        let deadline = Instant::now() + self.patience;
        loop {
            // Before looking, so that nothing that comes after the look goes unnoticed.
            let mut grown = std::pin::pin!(self.history.grown.notified());
            grown.as_mut().enable();
            if let Some(found) = self.find(kind, reason, message) {
                return Ok(found);
            }
            if tokio::time::timeout_at(deadline, grown).await.is_err() {
                break;
            }
        }
        // The watch may have been cut off.
        self.catch_up().await?;
        self.find(kind, reason, message).ok_or_else(|| Error::EventNotSeen {
            expected: format!("{} {reason} {message:?}", kind_name(kind)),
            namespace: self.namespace.clone(),
            waited: self.patience,
            seen: listed(&self.history.events()),
        })
    }

    /// Every event so far, in the order in which they came: all that was accepted before the call is there.
    pub async fn seen(&self) -> Result<Vec<CapturedEvent>> {
        self.catch_up().await?;
        Ok(self.history.events().clone())
    }

    fn find(&self, kind: EventType, reason: &str, message: &str) -> Option<CapturedEvent> {
        self.history.events().iter().find(|event| event.is(kind, reason, message)).cloned()
    }

    /// Takes in what the watch has not brought yet.
    async fn catch_up(&self) -> Result<()> {
        let doing = || format!("list the events of namespace {}", self.namespace);
        let listed = self.events.list(&ListParams::default()).await.map_err(Error::api(doing()))?;
        listed.items.into_iter().for_each(|event| self.history.add(CapturedEvent::new(event)));
        Ok(())
    }
}

impl Drop for EventCapture {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn listed(events: &[CapturedEvent]) -> String {
    if events.is_empty() {
        return "there was none at all".to_owned();
    }
    let lines: Vec<_> = events.iter().map(|event| format!("    {event}")).collect();
    format!("these were there:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(uid: &str, message: &str, count: i32) -> CapturedEvent {
        CapturedEvent {
            kind: "Normal".to_owned(),
            reason: "Scaled".to_owned(),
            message: message.to_owned(),
            regarding_kind: "ConfigMap".to_owned(),
            regarding_name: "web".to_owned(),
            from: "test".to_owned(),
            count,
            uid: uid.to_owned(),
        }
    }

    #[test]
    fn an_event_that_only_occurred_again_is_one_event_with_the_highest_count() {
        let history = History::default();
        [event("1", "to 3", 1), event("1", "to 3", 4), event("1", "to 3", 1)]
            .into_iter()
            .for_each(|event| history.add(event));
        assert_eq!(vec![event("1", "to 3", 4)], *history.events());
    }

    #[test]
    fn an_event_whose_words_changed_is_kept_in_both_forms() {
        let history = History::default();
        history.add(event("1", "to 3", 1));
        history.add(event("1", "to 4", 1));
        history.add(event("2", "to 4", 1));
        assert_eq!(3, history.events().len());
    }
}
