//! What people can write, and what they are told.

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;
use wheelhouse_testing::EventType;

use super::place::{Place, eventually};

#[rstest]
#[case::negative(json!({"gordon": {"replicas": -1}}), "g", "spec.gordon.replicas in body should be greater than or equal to 0")]
#[case::too_many(json!({"gordon": {"replicas": 1001}}), "g", "should be less than or equal to 1000")]
#[case::no_number(json!({"gordon": {"replicas": "three"}}), "g", "must be of type integer")]
#[case::nothing(json!({}), "g", "spec.gordon: Required value")]
#[case::a_long_name(json!({"gordon": {"replicas": 1}}), "g-23456789-123456789-123456789-123456789-123456789-123456789", "at most 56 characters")]
#[tokio::test]
async fn what_makes_no_sense_is_refused_at_admission(
    #[case] spec: serde_json::Value,
    #[case] name: &str,
    #[case] complaint: &str,
) {
    let place = Place::new("refused").await;
    let resource = kube::api::ApiResource::erase::<gordon_operator::api::Gordon>(&());
    let api: kube::Api<kube::api::DynamicObject> =
        kube::Api::default_namespaced_with(place.client.clone(), &resource);
    let object = kube::api::DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    let error = api.create(&PostParams::default(), &object).await.unwrap_err().to_string();
    assert!(error.contains(complaint), "{error}");
}

#[tokio::test]
async fn a_gordon_names_its_pods_and_scales_both_ways_and_replaces_what_was_deleted() {
    let place = Place::new("walk").await;
    let identity = place.identity("gordon").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(identity.config()).await;
    place.create(3).await;
    eventually("three are there", async || place.live_pods().await == ["g-0", "g-1", "g-2"]).await;
    events.expect(EventType::Normal, "Scheduled", "Scheduled pod g-1").await.unwrap();
    eventually("the status names them", async || {
        let status = place.gordons().get("g").await.unwrap().status.unwrap_or_default();
        let names: Vec<_> = status.pods.iter().map(|pod| pod.name.as_str()).collect();
        status.replicas == 3
            && names == ["g-0", "g-1", "g-2"]
            && status.conditions[0].reason == "WaitingForPods"
    })
    .await;
    place.pods().delete("g-1", &Default::default()).await.unwrap();
    eventually("the lost one is replaced", async || place.live_pods().await.len() == 3).await;
    place.scale(5).await;
    eventually("five are there", async || place.live_pods().await.len() == 5).await;
    place.scale(1).await;
    eventually("one is there", async || place.live_pods().await == ["g-0"]).await;
    events
        .expect(EventType::Normal, "Removing", "Removing pod g-4: 1 replicas of gordon are wanted")
        .await
        .unwrap();
    let pod = &place
        .pods()
        .list(&ListParams::default().labels("operator.prgcont.cz/gordon=g"))
        .await
        .unwrap()
        .items[0];
    assert_eq!(pod.metadata.owner_references.as_ref().unwrap()[0].kind, "Gordon", "so they go with it");
    operating.stop().await;
}

#[tokio::test]
async fn a_template_that_the_api_server_refuses_is_told_in_condition_and_event_and_heals() {
    let place = Place::new("invalid").await;
    let identity = place.identity("gordon").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(identity.config()).await;
    place.create(1).await;
    eventually("one is there", async || place.live_pods().await.len() == 1).await;
    place.scale(2).await;
    let edit = async |template: serde_json::Value| {
        let patch = Patch::Merge(json!({"spec": {"gordon": {"template": template}}}));
        place.gordons().patch("g", &PatchParams::default(), &patch).await.unwrap();
    };
    edit(json!({"spec": {"containers": [{"name": "gordon", "image": ""}]}})).await;
    place.scale(3).await;
    eventually("the condition says so", async || {
        let status = place.gordons().get("g").await.unwrap().status.unwrap_or_default();
        status
            .conditions
            .iter()
            .any(|condition| condition.reason == "Invalid" && condition.message.contains("create Pod"))
    })
    .await;
    eventually("an event says so", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.reason == "Invalid" && event.message.contains("create Pod"))
    })
    .await;
    edit(json!(null)).await;
    eventually("all are there", async || place.live_pods().await.len() == 3).await;
    operating.stop().await;
}
