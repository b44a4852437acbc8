//! Kubernetes events. The same one again within some minutes is counted, and
//! the count is written at most once a minute.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event as KubernetesEvent, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::plan::{Event, EventType, Reference};

/// For how long the same event is the same event.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How often a count is written.
const COUNTED_EVERY: Duration = Duration::from_secs(60);
/// Longer notes are refused by the API server, counted in bytes.
const NOTE_AT_MOST: usize = 1024;
/// Leaves room for the time in the name of an event.
const NAME_AT_MOST: usize = 220;

/// Publishes the events of one controller.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    controller: String,
    instance: String,
    told: Arc<Mutex<HashMap<(String, Event), Told>>>,
}

struct Told {
    name: String,
    times: i32,
    first: Instant,
    written: Instant,
}

/// What to do about an event.
#[derive(Debug, PartialEq)]
enum Decision {
    Create(String),
    Count(String, i32),
    Nothing,
}

impl Events {
    pub(crate) fn new(client: Client, controller: &str, instance: &str) -> Self {
        Self {
            client,
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            told: Arc::default(),
        }
    }

    /// Tells, and says whether it is news. That it could not be told is logged,
    /// and no reason to fail.
    pub(crate) async fn publish(&self, about: &Reference, event: &Event) -> bool {
        let decision = self.decide(about, event, Instant::now());
        let is_new = matches!(decision, Decision::Create(_));
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let events: Api<KubernetesEvent> = Api::namespaced(self.client.clone(), namespace);
        let published = match decision {
            Decision::Nothing => return false,
            Decision::Create(name) => {
                events.create(&PostParams::default(), &self.object(&name, about, event)).await.map(|_| ())
            }
            Decision::Count(name, count) => {
                let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
                let patch = Patch::Merge(json!({"series": series}));
                events.patch(&name, &PatchParams::default(), &patch).await.map(|_| ())
            }
        };
        if let Err(error) = published {
            // Whoever says the same again begins anew.
            self.told.lock().remove(&(about.uid.clone(), event.clone()));
            tracing::warn!(key = %about.key(), reason = event.reason, "cannot publish an event: {error}");
        }
        is_new
    }

    fn decide(&self, about: &Reference, event: &Event, now: Instant) -> Decision {
        let mut told = self.told.lock();
        told.retain(|_, told| now - told.first < REMEMBERED);
        match told.get_mut(&(about.uid.clone(), event.clone())) {
            None => {
                let name =
                    format!("{}.{:x}", cut(&about.name, NAME_AT_MOST), Timestamp::now().as_nanosecond());
                let first = Told { name: name.clone(), times: 1, first: now, written: now };
                told.insert((about.uid.clone(), event.clone()), first);
                Decision::Create(name)
            }
            Some(told) => {
                told.times = told.times.saturating_add(1);
                if now - told.written < COUNTED_EVERY {
                    return Decision::Nothing;
                }
                told.written = now;
                Decision::Count(told.name.clone(), told.times)
            }
        }
    }

    fn object(&self, name: &str, about: &Reference, event: &Event) -> KubernetesEvent {
        let kind = match event.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        KubernetesEvent {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(event.reason.clone()),
            note: Some(note(&event.note)),
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            regarding: Some(ObjectReference {
                api_version: Some(about.kind.api_version()),
                kind: Some(about.kind.kind.clone()),
                name: Some(about.name.clone()),
                namespace: about.namespace.clone(),
                uid: Some(about.uid.clone()),
                resource_version: Some(about.resource_version.clone()),
                field_path: None,
            }),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..KubernetesEvent::default()
        }
    }
}

/// The beginning of a text, so many bytes at most.
fn cut(text: &str, at_most: usize) -> &str {
    text.get(..text.floor_char_boundary(at_most)).unwrap_or(text)
}

/// A text that is not too long, or as much of it as fits and a sign that there is more.
fn note(text: &str) -> String {
    const MORE: &str = " ...";
    match text.len() <= NOTE_AT_MOST {
        true => text.to_owned(),
        false => format!("{}{MORE}", cut(text, NOTE_AT_MOST - MORE.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_too_long_is_cut_between_two_characters_and_says_so() {
        assert_eq!(note("short"), "short");
        let long = note(&"\u{e4}".repeat(600));
        assert!(long.len() <= NOTE_AT_MOST && long.ends_with("\u{e4} ..."), "{long}");
    }
}
