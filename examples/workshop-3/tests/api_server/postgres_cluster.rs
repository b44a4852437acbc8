//! A PostgreSQL is launched and kept.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Secret, Service},
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};
use workshop_3_operator::{manager, postgres_cluster::api::PostgresCluster};

const NAME: &str = "example-postgresql-cluster";

/// The reason of the condition `Ready`.
async fn reason(place: &Place) -> String {
    let status = place.api::<PostgresCluster>().get(NAME).await.unwrap().status.unwrap_or_default();
    status.conditions.first().map(|condition| condition.reason.clone()).unwrap_or_default()
}

/// What Kubernetes says of a StatefulSet whose pod runs.
async fn run(place: &Place) {
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1}});
    let params = PatchParams::default();
    place.api::<StatefulSet>().patch_status(NAME, &params, &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_is_launched_and_the_status_says_how_it_is() {
    let place = Place::with("launched", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<PostgresCluster>(NAME, json!({"size": 1, "version": "17"})).await.unwrap();

    eventually("the seed is there", async || {
        place.api::<StatefulSet>().get_opt(NAME).await.unwrap().is_some()
    })
    .await;
    let note = format!("Launching the seed of {NAME}");
    events.expect(EventType::Normal, "LaunchingSeed", &note).await.unwrap();
    let seed = place.api::<StatefulSet>().get(NAME).await.unwrap().spec.unwrap();
    let pod = seed.template.spec.unwrap();
    assert_eq!(pod.containers.first().unwrap().image.as_deref(), Some("docker.io/library/postgres:17"));
    let service = place.api::<Service>().get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(service.selector, seed.template.metadata.unwrap().labels, "the Service leads to the pod");
    let secret = place.api::<Secret>().get(NAME).await.unwrap().data.unwrap();
    assert_eq!(secret.get("password").unwrap().0.len(), 24);

    eventually("it is told what it waits for", async || reason(&place).await == "LaunchingSeed").await;
    run(&place).await;
    eventually("it is told that all is well", async || reason(&place).await == "AllReady").await;
    place.apply::<PostgresCluster>(NAME, json!({"size": 3, "version": "17"})).await.unwrap();
    eventually("it is told that there is no more than the seed", async || reason(&place).await == "SeedOnly")
        .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_comes_back_and_the_password_stays() {
    let place = Place::with("kept", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<PostgresCluster>(NAME, json!({"size": 1, "version": "17"})).await.unwrap();
    let seed =
        async || place.api::<StatefulSet>().get_opt(NAME).await.unwrap().and_then(|seed| seed.metadata.uid);
    eventually("the seed is there", async || seed().await.is_some()).await;
    let (first, password) = (seed().await, place.api::<Secret>().get(NAME).await.unwrap().data);
    place.api::<StatefulSet>().delete(NAME, &DeleteParams::background()).await.unwrap();
    eventually("another one is there", async || {
        let now = seed().await;
        now.is_some() && now != first
    })
    .await;
    assert_eq!(place.api::<Secret>().get(NAME).await.unwrap().data, password);
    operating.stop().await.unwrap();
}
