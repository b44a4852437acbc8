//! The API server learns a kind.

use kube::discovery;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::RunSettings;
use wheelhouse_testing::{ControlPlane, Place, eventually, rule};
use workshop_1_operator::{manager, postgres_cluster::api::PostgresCluster};

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_registers_its_kind_and_that_it_is_there_already_is_no_error() {
    // An API server of its own: on the one that tests share, somebody else may have registered the kind.
    let plane = ControlPlane::start().await.unwrap();
    let namespace = plane.namespace("registers").await.unwrap();
    let client = namespace.client().unwrap();
    assert!(discovery::group(&client, "lukeb0nd.com").await.is_err(), "nobody has registered it yet");

    let crds = rule(&["get", "create", "patch"], "apiextensions.k8s.io", &["customresourcedefinitions"]);
    let identity = namespace.with_cluster_rules(vec![crds]).await.unwrap();
    for time in ["first", "second"] {
        let settings = RunSettings {
            install_crds: true,
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        };
        let stop = CancellationToken::new();
        let started = manager().start(identity.config(), settings, stop.clone()).await.unwrap();
        eventually(&format!("the API has the kind for the {time} time"), async || {
            discovery::group(&client, "lukeb0nd.com").await.is_ok()
        })
        .await;
        stop.cancel();
        started.finished().await.unwrap();
    }

    let group = discovery::group(&client, "lukeb0nd.com").await.unwrap();
    let (resource, capabilities) = group.recommended_kind("PostgresCluster").unwrap();
    assert_eq!((resource.version.as_str(), resource.plural.as_str()), ("v1", "postgresclusters"));
    let mut verbs = capabilities.operations;
    verbs.sort();
    let shown = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    assert_eq!(verbs, shown, "those that the workshop shows");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_is_taken() {
    let place = Place::with("sample", &manager()).await.unwrap();
    let sample: Value =
        serde_saphyr::from_str(include_str!("../../config/samples/postgres_v1_postgrescluster.yaml"))
            .unwrap();
    let name = sample["metadata"]["name"].as_str().unwrap();
    let kept = place.apply::<PostgresCluster>(name, sample["spec"].clone()).await.unwrap();
    assert_eq!((kept.spec.size, kept.spec.version.as_str()), (3, "9.6.3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = Place::with("refused", &manager()).await.unwrap();
    for (spec, complaint) in [
        (json!({"version": "9.6.3"}), "spec.size: Required value"),
        (json!({"size": 3}), "spec.version: Required value"),
        (json!({"size": 0, "version": "9.6.3"}), "spec.size in body should be greater than or equal to 1"),
        (json!({"size": 3, "version": "newest"}), "spec.version in body should match"),
        (json!({"size": 3, "version": "9.6.3", "replicas": 3}), "field not declared in schema"),
    ] {
        let refused = place.apply::<PostgresCluster>("another", spec.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(complaint), "{spec}: {refused}");
    }
}
