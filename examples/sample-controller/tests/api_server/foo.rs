//! Foo on a real API server.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use sample_controller_operator::{foo::api::Foo, manager};
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_that_name_is_made_and_its_available_pods_are_told() {
    let place = Place::with("made", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Foo>("example-foo", json!({"deploymentName": "web", "replicas": 2})).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();

    let deployments: Api<Deployment> = place.api();
    let deployment = deployments.get("web").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    assert_eq!(deployment.metadata.owner_references.unwrap()[0].kind, "Foo", "so it goes with it");

    let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}});
    let told = async || place.api::<Foo>().get("example-foo").await.unwrap().status;
    assert_eq!(told().await.unwrap().available_replicas, 0);
    deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    eventually("the status says how many", async || {
        told().await.is_some_and(|status| status.available_replicas == 1)
    })
    .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_changes_is_put_back() {
    let place = Place::with("restored", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Foo>("example-foo", json!({"deploymentName": "web", "replicas": 2})).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();

    let deployments: Api<Deployment> = place.api();
    let by = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    deployments.patch("web", &by, &Patch::Merge(json!({"spec": {"replicas": 9}}))).await.unwrap();
    eventually("two are wanted again", async || {
        deployments.get("web").await.unwrap().spec.unwrap().replicas == Some(2)
    })
    .await;
    let words = "restored what somebody had changed: apply Deployment web";
    events.expect(EventType::Normal, "Restored", words).await.unwrap();

    deployments.delete("web", &Default::default()).await.unwrap();
    eventually("it is there again", async || deployments.get_opt("web").await.unwrap().is_some()).await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_without_a_number_lets_others_scale() {
    let place = Place::with("scaled", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Foo>("example-foo", json!({"deploymentName": "web"})).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();

    let deployments: Api<Deployment> = place.api();
    let scale = Patch::Merge(json!({"spec": {"replicas": 9}}));
    deployments.patch("web", &PatchParams::default(), &scale).await.unwrap();
    let status = json!({"status": {"replicas": 9, "readyReplicas": 9, "availableReplicas": 9}});
    deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    eventually("the operator has looked", async || {
        let status = place.api::<Foo>().get("example-foo").await.unwrap().status;
        status.unwrap_or_default().available_replicas == 9
    })
    .await;
    assert_eq!(deployments.get("web").await.unwrap().spec.unwrap().replicas, Some(9));
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_told_and_had_when_it_is_free() {
    let place = Place::with("taken", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let labels = json!({"app": "theirs"});
    let container = json!({"name": "main", "image": "theirs"});
    let theirs = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }));
    let deployments: Api<Deployment> = place.api();
    let before = deployments.create(&PostParams::default(), &theirs.unwrap()).await.unwrap();

    place.apply::<Foo>("example-foo", json!({"deploymentName": "web"})).await.unwrap();
    let words = "Resource \"web\" already exists and is not managed by Foo";
    events.expect(EventType::Warning, "ErrResourceExists", words).await.unwrap();
    assert_eq!(deployments.get("web").await.unwrap(), before, "nobody touched it");

    deployments.delete("web", &Default::default()).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();
    assert_ne!(deployments.get("web").await.unwrap().metadata.uid, before.metadata.uid);
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_renamed_leaves_no_orphan() {
    let place = Place::with("renamed", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let deployments: Api<Deployment> = place.api();
    for name in ["one", "two", "three"] {
        place.apply::<Foo>("example-foo", json!({"deploymentName": name})).await.unwrap();
        eventually("it has the one Deployment that it names", async || {
            let listed = deployments.list(&Default::default()).await.unwrap();
            let names: Vec<_> =
                listed.iter().filter_map(|deployment| deployment.metadata.name.as_deref()).collect();
            names == [name]
        })
        .await;
    }
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_restarted_writes_nothing_about_what_is_as_it_is_to_be() {
    let place = Place::with("restarted", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Foo>("settled", json!({"deploymentName": "settled", "replicas": 2})).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();
    operating.stop().await.unwrap();

    let mark = place.namespace().mark().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    // What comes later is done later: when that is there, the first was looked at.
    place.apply::<Foo>("later", json!({"deploymentName": "later"})).await.unwrap();
    eventually("the later one has a status", async || {
        place.api::<Foo>().get("later").await.unwrap().status.is_some()
    })
    .await;
    operating.stop().await.unwrap();
    let requests = place.namespace().requests_since(&mark).await.unwrap();
    let about_settled = requests.writes().filter(|request| request.name.starts_with("settled"));
    assert!(about_settled.is_empty(), "{about_settled}");
    let about_later = requests.writes().filter(|request| request.name.starts_with("later"));
    assert!(about_later.count("patch", "deployments") == 1, "{about_later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pods_meet_the_restricted_standard() {
    let place = Place::with("restricted", &manager()).await.unwrap();
    let events = place.namespace().events().await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    place.apply::<Foo>("example-foo", json!({"deploymentName": "web"})).await.unwrap();
    events.expect(EventType::Normal, "Synced", "Foo synced successfully").await.unwrap();

    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(place.client());
    let namespace = place.namespace().name();
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(enforce)).await.unwrap();
    let template = place.api::<Deployment>().get("web").await.unwrap().spec.unwrap().template;
    let mut pod = Pod { spec: template.spec, ..Pod::default() };
    pod.metadata.name = Some("web-0".to_owned());
    place.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = Place::with("refused", &manager()).await.unwrap();
    let long = "a".repeat(64);
    for (name, spec, complaint) in [
        ("foo", json!({"replicas": 1}), "spec.deploymentName: Required value"),
        ("foo", json!({"deploymentName": ""}), "spec.deploymentName in body should match"),
        ("foo", json!({"deploymentName": "Web_1"}), "spec.deploymentName in body should match"),
        ("foo", json!({"deploymentName": "web", "replicas": 0}), "greater than or equal to 1"),
        ("foo", json!({"deploymentName": "web", "replicas": 11}), "less than or equal to 10"),
        ("foo", json!({"deploymentName": "web", "size": 1}), "field not declared in schema"),
        (&*long, json!({"deploymentName": "web"}), "the name must have at most 63 characters"),
    ] {
        let refused = place.apply::<Foo>(name, spec.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(complaint), "{spec}: {refused}");
    }
}
