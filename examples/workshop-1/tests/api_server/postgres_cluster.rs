//! The API server has learnt a kind.

use kube::discovery;
use serde_json::json;
use wheelhouse_testing::{Place, eventually};
use workshop_1_operator::{manager, postgres_cluster::api::PostgresCluster};

#[tokio::test(flavor = "multi_thread")]
async fn the_kind_has_endpoints_of_its_own() {
    let place = Place::with("registered", &manager()).await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let group = discovery::group(&place.client(), "lukeb0nd.com").await.unwrap();
    let (resource, capabilities) = group.recommended_kind("PostgresCluster").unwrap();
    assert_eq!((resource.version.as_str(), resource.plural.as_str()), ("v1", "postgresclusters"));
    let mut verbs = capabilities.operations;
    verbs.sort();
    let talk = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    assert_eq!(verbs, talk);
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_the_schema_is_kept_and_what_does_not_is_refused() {
    let place = Place::with("kept", &manager()).await.unwrap();
    let spec = json!({"size": 3, "version": "9.6.3"});
    place.apply::<PostgresCluster>("example-postgresql-cluster", spec).await.unwrap();
    eventually("it is there", async || {
        let kept = place.api::<PostgresCluster>().get("example-postgresql-cluster").await.unwrap();
        kept.spec.size == 3 && kept.spec.version == "9.6.3"
    })
    .await;
    for spec in
        [json!({"size": 0, "version": "9.6.3"}), json!({"size": 3}), json!({"size": 3, "version": "newest"})]
    {
        let refused = place.apply::<PostgresCluster>("another", spec.clone()).await;
        assert!(refused.is_err(), "{spec} was taken");
    }
}
