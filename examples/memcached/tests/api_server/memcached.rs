//! Memcached on a real API server.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use memcached_operator::{
    manager,
    memcached::api::{Memcached, MemcachedStatus},
};
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};

/// Whether the status says all this.
fn says(status: &MemcachedStatus, nodes: &[&str], available: &str, degraded: &str, words: &str) -> bool {
    let parts = |condition: &Condition| {
        (condition.type_.clone(), condition.status.clone(), condition.message.clone())
    };
    let wanted = [("Available", available), ("Degraded", degraded)];
    status.nodes == nodes
        && status.observed_generation == Some(1)
        && status
            .conditions
            .iter()
            .map(parts)
            .eq(wanted.map(|(kind, status)| (kind.into(), status.into(), words.into())))
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pods_are_named_and_counted_as_they_come_and_go() {
    let place = Place::with("pods", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(place.client());
    let namespace = place.namespace().name();
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(enforce)).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Memcached>("cache", json!({"size": 2})).await.unwrap();
    events.expect(EventType::Normal, "Creating", "Creating Deployment cache").await.unwrap();
    let told = async || place.api::<Memcached>().get("cache").await.unwrap().status.unwrap_or_default();
    eventually("nobody is there yet", async || {
        says(&told().await, &[], "False", "True", "0 of 2 pods are ready")
    })
    .await;

    // As the Deployment's controller makes them; and only what meets the restricted standard is let in.
    let template = place.api::<Deployment>().get("cache").await.unwrap().spec.unwrap().template;
    let pods: Api<Pod> = place.api();
    for name in ["cache-b", "cache-a"] {
        let mut metadata = template.metadata.clone().unwrap();
        metadata.name = Some(name.to_owned());
        let pod = Pod { metadata, spec: template.spec.clone(), ..Pod::default() };
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    eventually("both are named", async || {
        says(&told().await, &["cache-a", "cache-b"], "False", "True", "0 of 2 pods are ready")
    })
    .await;

    let is_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    for (name, degraded, words) in
        [("cache-a", "True", "1 of 2 pods are ready"), ("cache-b", "False", "2 of 2 pods are ready")]
    {
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&is_ready)).await.unwrap();
        eventually(words, async || says(&told().await, &["cache-a", "cache-b"], "True", degraded, words))
            .await;
    }

    pods.delete("cache-a", &DeleteParams::default().grace_period(0)).await.unwrap();
    eventually("one is left", async || {
        says(&told().await, &["cache-b"], "True", "True", "1 of 2 pods are ready")
    })
    .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_another_memcached_are_not_counted() {
    let place = Place::with("others", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    for name in ["one", "two"] {
        place.apply::<Memcached>(name, json!({"size": 1})).await.unwrap();
    }
    let pod = |name: &str, of: &str| {
        serde_json::from_value::<Pod>(json!({
            "metadata": {"name": name, "labels": {"cache.example.com/memcached": of}},
            "spec": {"containers": [{"name": "main", "image": "memcached"}]},
        }))
    };
    for (name, of) in [("of-two", "two"), ("of-one", "one")] {
        place.api::<Pod>().create(&PostParams::default(), &pod(name, of).unwrap()).await.unwrap();
    }
    let nodes = async |name: &str| {
        let status = place.api::<Memcached>().get(name).await.unwrap().status;
        status.unwrap_or_default().nodes
    };
    eventually("each has its own", async || {
        nodes("one").await == ["of-one"] && nodes("two").await == ["of-two"]
    })
    .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_is_scaled_and_what_somebody_else_changes_is_put_back() {
    let place = Place::with("restored", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let deployments: Api<Deployment> = place.api();
    let container = async || {
        let deployment = deployments.get_opt("cache").await.unwrap()?;
        let spec = deployment.spec?;
        Some((spec.replicas?, spec.template.spec?.containers.remove(0)))
    };
    for size in [1, 5, 0] {
        place.apply::<Memcached>("cache", json!({"size": size})).await.unwrap();
        eventually("it has the size", async || {
            container().await.is_some_and(|(replicas, _)| replicas == size)
        })
        .await;
    }
    let (_, made) = container().await.unwrap();
    assert_eq!(made.image.as_deref(), Some("docker.io/library/memcached:1.6-alpine"));
    assert_eq!(made.command.unwrap(), ["memcached", "--memory-limit=64", "-o", "modern", "-v"]);

    let by = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    deployments.patch("cache", &by, &Patch::Merge(json!({"spec": {"replicas": 3}}))).await.unwrap();
    eventually("none are wanted again", async || {
        container().await.is_some_and(|(replicas, _)| replicas == 0)
    })
    .await;
    let words = "restored what somebody had changed: apply Deployment cache";
    events.expect(EventType::Normal, "Restored", words).await.unwrap();

    deployments.delete("cache", &DeleteParams::default()).await.unwrap();
    eventually("it is there again", async || container().await.is_some()).await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_restarted_writes_nothing_about_what_is_as_it_is_to_be() {
    let place = Place::with("restarted", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let is_told = async |name: &str| place.api::<Memcached>().get(name).await.unwrap().status.is_some();
    place.apply::<Memcached>("settled", json!({"size": 1})).await.unwrap();
    eventually("it has a status", async || is_told("settled").await).await;
    operating.stop().await.unwrap();

    let mark = place.namespace().mark().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    // What comes later is done later: when that is there, the first was looked at.
    place.apply::<Memcached>("later", json!({"size": 1})).await.unwrap();
    eventually("the later one has a status", async || is_told("later").await).await;
    operating.stop().await.unwrap();
    let requests = place.namespace().requests_since(&mark).await.unwrap();
    let about = |name: &str| requests.writes().filter(|request| request.name.starts_with(name));
    assert!(about("settled").is_empty(), "{}", about("settled"));
    assert_eq!(about("later").count("patch", "deployments"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = Place::with("refused", &manager()).await.unwrap();
    let long = "a".repeat(64);
    for (name, spec, complaint) in [
        ("cache", json!({}), "spec.size: Required value"),
        ("cache", json!({"size": -1}), "spec.size in body should be greater than or equal to 0"),
        ("cache", json!({"size": 6}), "spec.size in body should be less than or equal to 5"),
        ("cache", json!({"size": "three"}), "expected numeric (int or float), got string"),
        ("cache", json!({"size": 1, "replicas": 1}), "field not declared in schema"),
        (&*long, json!({"size": 1}), "the name must have at most 63 characters"),
    ] {
        let refused = place.apply::<Memcached>(name, spec.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(complaint), "{spec}: {refused}");
    }
}
