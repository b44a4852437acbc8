//! Requests are counted exactly.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams, WatchParams},
};
use serde_json::json;
use wheelhouse_testing::{ControlPlane, Identity, Mark, Namespace, rule};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn namespace_and_user() -> (Namespace, Identity) {
    let namespace = ControlPlane::shared().await.unwrap().namespace("requests").await.unwrap();
    let user = namespace.with_rules(vec![rule(&["*"], "", &["configmaps"])]).await.unwrap();
    (namespace, user)
}

#[tokio::test]
async fn every_request_is_counted_once_by_verb_and_resource() {
    let (namespace, user) = namespace_and_user().await;
    let mark = namespace.mark().await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(user.client().unwrap());
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    api.get("a").await.unwrap();
    assert!(api.get("missing").await.is_err());
    let watch = api.watch(&WatchParams::default(), "0").await.unwrap();
    let mut watch = watch.boxed();
    watch.next().await.unwrap().unwrap();
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"x": "y"}}))).await.unwrap();
    drop(watch);

    let requests = user.requests_since(&mark).await.unwrap();
    let counts: Vec<_> = requests.by_verb_and_resource().into_iter().collect();
    let expected = [("create", 3), ("get", 2), ("patch", 1), ("watch", 1)]
        .map(|(verb, count)| ((verb, "configmaps"), count));
    assert_eq!(expected.as_slice(), counts);
    assert_eq!(4, requests.writes().len());
    assert_eq!(1, requests.filter(|request| request.code == 404).len());
    assert_eq!(requests, namespace.requests_since(&mark).await.unwrap());
}

#[tokio::test]
async fn an_idle_client_has_made_no_request() {
    let (namespace, user) = namespace_and_user().await;
    let client = user.client().unwrap();
    let since_the_beginning = user.requests_since(&Mark::default()).await.unwrap();
    assert!(since_the_beginning.is_empty(), "{since_the_beginning}");

    let mark = namespace.mark().await.unwrap();
    Api::<ConfigMap>::default_namespaced(namespace.client().unwrap()).get_opt("other").await.unwrap();
    assert!(user.requests_since(&mark).await.unwrap().is_empty());
    assert_eq!(1, namespace.requests_since(&mark).await.unwrap().len());

    Api::<ConfigMap>::default_namespaced(client).get_opt("any").await.unwrap();
    assert_eq!(1, user.requests_since(&mark).await.unwrap().len());
}

#[tokio::test]
async fn what_this_crate_does_is_not_counted() {
    let (namespace, _) = namespace_and_user().await;
    let mark = namespace.mark().await.unwrap();
    namespace.with_rules(vec![rule(&["get"], "", &["secrets"])]).await.unwrap();
    namespace.events().await.unwrap().seen().await.unwrap();
    let requests = namespace.requests_since(&mark).await.unwrap();
    assert!(requests.is_empty(), "{requests}");
}

#[tokio::test]
async fn a_watch_from_before_the_mark_does_not_count_when_it_ends() {
    let (namespace, user) = namespace_and_user().await;
    let api: Api<ConfigMap> = Api::default_namespaced(user.client().unwrap());
    let parameters = WatchParams::default().timeout(1);
    let mut watch = api.watch(&parameters, "0").await.unwrap().boxed();
    let mark = namespace.mark().await.unwrap();
    while watch.next().await.is_some() {}
    // The end of a watch is logged when the server lets go of it, which nothing waits for.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let requests = user.requests_since(&mark).await.unwrap();
    assert!(requests.is_empty(), "{requests}");
    assert_eq!(1, user.requests_since(&Mark::default()).await.unwrap().count("watch", "configmaps"));
}

#[tokio::test]
async fn not_one_of_many_concurrent_requests_is_missed() {
    let (namespace, user) = namespace_and_user().await;
    let api: Api<ConfigMap> = Api::default_namespaced(user.client().unwrap());
    // An answer that fits no buffer reaches the client while the server is still at it.
    let large = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(500_000)}});
    let large = serde_json::from_value(large).unwrap();
    api.create(&PostParams::default(), &large).await.unwrap();

    let mark = namespace.mark().await.unwrap();
    for round in 1..=10 {
        let gets = ["large", "missing"].repeat(10).into_iter().map(|name| {
            let api = api.clone();
            async move { api.get_opt(name).await }
        });
        futures::future::try_join_all(gets).await.unwrap();
        let requests = user.requests_since(&mark).await.unwrap();
        assert_eq!(20 * round, requests.count("get", "configmaps"));
    }
}
