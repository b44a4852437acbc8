//! A PostgreSQL is launched and kept.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Secret, Service},
};
use kube::{
    Resource,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};
use workshop_3_operator::{manager, postgres_cluster::api::PostgresCluster};

const NAME: &str = "example-postgresql-cluster";

/// The reason of the condition `Ready`.
async fn reason(place: &Place) -> String {
    let status = place.api::<PostgresCluster>().get(NAME).await.unwrap().status.unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.reason.clone()).unwrap_or_default()
}

/// Who controls an object, so that it goes when they do.
fn owner(child: &impl Resource) -> Option<&str> {
    let owners = child.meta().owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str())
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
    assert_eq!(pod.containers.first().unwrap().image.as_deref(), Some("wheelhouse.dev/postgres:0.1.0"));
    let service = place.api::<Service>().get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(service.selector, seed.template.metadata.unwrap().labels, "the Service leads to the pod");
    let secret = place.api::<Secret>().get(NAME).await.unwrap().data.unwrap();
    assert_eq!(secret.get("password").unwrap().0.len(), 24);

    let claim = pod.volumes.unwrap().remove(0).persistent_volume_claim.unwrap().claim_name;
    assert!(place.api::<PersistentVolumeClaim>().get_opt(&claim).await.unwrap().is_some(), "it has a volume");

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

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_made_goes_with_its_resource() {
    let place = Place::with("owned", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<PostgresCluster>(NAME, json!({"size": 1, "version": "17"})).await.unwrap();
    eventually("all is made", async || reason(&place).await == "LaunchingSeed").await;
    let ours = Some("PostgresCluster");
    assert_eq!(owner(&place.api::<StatefulSet>().get(NAME).await.unwrap()), ours);
    assert_eq!(owner(&place.api::<Service>().get(NAME).await.unwrap()), ours);
    assert_eq!(owner(&place.api::<Secret>().get(NAME).await.unwrap()), ours);
    let volume = place.api::<PersistentVolumeClaim>().get(NAME).await.unwrap();
    assert_eq!(owner(&volume), ours, "and not the StatefulSet's, which may be lost");
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = Place::with("refused", &manager()).await.unwrap();
    place.apply::<PostgresCluster>(NAME, json!({"size": 1, "version": "17"})).await.unwrap();
    let long = "a".repeat(51);
    for (name, spec, complaint) in [
        (NAME, json!({"size": 1, "version": "18"}), "the version cannot be changed"),
        ("one.two", json!({"size": 1, "version": "17"}), "the name becomes that of a Service"),
        (&*long, json!({"size": 1, "version": "17"}), "the name must have at most 50 characters"),
        (
            "one",
            json!({"size": 0, "version": "17"}),
            "spec.size in body should be greater than or equal to 1",
        ),
    ] {
        let refused = place.apply::<PostgresCluster>(name, spec.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(complaint), "{spec}: {refused}");
    }
}
