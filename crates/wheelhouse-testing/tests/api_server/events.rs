//! Events are captured by their exact type, reason and message.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, ObjectReference};
use kube::{
    Api, Resource as _,
    api::PostParams,
    runtime::events::{Event as NewEvent, Recorder, Reporter},
};
use serde_json::json;
use wheelhouse_testing::{ControlPlane, EventType, Namespace};

const SOON: Duration = Duration::from_millis(300);

async fn namespace_with_object() -> (Namespace, ObjectReference) {
    let namespace = ControlPlane::shared().await.unwrap().namespace("events").await.unwrap();
    let object: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
    let api = Api::default_namespaced(namespace.client().unwrap());
    let object: ConfigMap = api.create(&PostParams::default(), &object).await.unwrap();
    let reference = object.object_ref(&());
    (namespace, reference)
}

async fn publish(namespace: &Namespace, object: &ObjectReference, type_: EventType, note: &str) {
    let recorder = Recorder::new(namespace.client().unwrap(), Reporter::from("test"));
    let event = NewEvent {
        type_,
        reason: "Scaled".to_owned(),
        note: Some(note.to_owned()),
        action: "Scaling".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, object).await.unwrap();
}

#[tokio::test]
async fn an_event_is_captured_whether_it_comes_before_or_after() {
    let (namespace, object) = namespace_with_object().await;
    publish(&namespace, &object, EventType::Normal, "before").await;
    let events = namespace.events().await.unwrap();
    events.expect(EventType::Normal, "Scaled", "before").await.unwrap();

    let expected = tokio::spawn(async move {
        let found = events.expect(EventType::Warning, "Scaled", "after").await;
        (events, found)
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    publish(&namespace, &object, EventType::Warning, "after").await;
    let (events, found) = expected.await.unwrap();
    let found = found.unwrap();
    assert_eq!(("ConfigMap", "web"), (found.regarding_kind.as_str(), found.regarding_name.as_str()));
    assert_eq!(2, events.seen().await.unwrap().len());
}

#[tokio::test]
async fn an_event_of_another_type_reason_or_message_is_not_accepted() {
    let (namespace, object) = namespace_with_object().await;
    let events = namespace.events().await.unwrap().within(SOON);
    publish(&namespace, &object, EventType::Normal, "to 3 members").await;
    events.expect(EventType::Normal, "Scaled", "to 3 members").await.unwrap();
    for (kind, reason, message) in [
        (EventType::Warning, "Scaled", "to 3 members"),
        (EventType::Normal, "Scale", "to 3 members"),
        (EventType::Normal, "Scaled", "to 3 member"),
        (EventType::Normal, "Scaled", "to 3 members "),
    ] {
        let refused = events.expect(kind, reason, message).await.unwrap_err().to_string();
        assert!(refused.contains(r#"Normal Scaled "to 3 members" (ConfigMap web, count 1)"#), "{refused}");
    }
}

#[tokio::test]
async fn an_event_of_another_namespace_is_not_accepted() {
    let (namespace, object) = namespace_with_object().await;
    let other = ControlPlane::shared().await.unwrap().namespace("events").await.unwrap();
    publish(&namespace, &object, EventType::Normal, "here").await;
    let events = other.events().await.unwrap().within(SOON);
    let refused = events.expect(EventType::Normal, "Scaled", "here").await.unwrap_err().to_string();
    assert!(refused.ends_with("there was none at all"), "{refused}");
}

#[tokio::test]
async fn an_event_in_the_form_of_the_core_api_is_captured_too() {
    let (namespace, object) = namespace_with_object().await;
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "web.1"}, "type": "Warning", "reason": "Failed", "message": "old style",
        "involvedObject": object, "count": 3, "source": {"component": "test"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    Api::default_namespaced(namespace.client().unwrap())
        .create(&PostParams::default(), &event)
        .await
        .unwrap();
    let events = namespace.events().await.unwrap();
    let found = events.expect(EventType::Warning, "Failed", "old style").await.unwrap();
    assert_eq!(3, found.count);
}

#[tokio::test]
async fn what_was_accepted_before_the_question_is_in_the_answer() {
    let (namespace, object) = namespace_with_object().await;
    let events = namespace.events().await.unwrap();
    for number in 0..20 {
        publish(&namespace, &object, EventType::Normal, &number.to_string()).await;
        assert_eq!(number + 1, events.seen().await.unwrap().len());
    }
}
