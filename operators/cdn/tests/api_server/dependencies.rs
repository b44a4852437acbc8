//! Clusters that depend on others: in whatever order they come.

use cdn_operator::{api::State, without_webhooks};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use wheelhouse_testing::EventType;

use super::place::{Place, eventually};

fn balancer() -> Value {
    json!({"role": "balancer", "sources": [{"name": "cache", "pathCondition": "^/live/"}]})
}

#[tokio::test]
async fn a_cluster_goes_on_by_itself_when_its_source_is_there_and_ready() {
    let place = Place::new("order").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(without_webhooks()).await;
    place.cluster("front", balancer()).await;
    eventually("it waits", async || place.state("front").await == Some(State::WaitingSource)).await;
    place.cluster("cache", json!({"role": "cache", "sources": []})).await;
    events
        .expect(EventType::Normal, "SourceNotReady", "Source cache not ready, will retry later")
        .await
        .unwrap();
    assert!(!place.has_deployment("front").await);
    place.ready_pod("cache").await;
    eventually("it is deployed", async || place.has_deployment("front").await).await;
    operating.stop().await;
}

#[tokio::test]
async fn what_was_begun_is_looked_after_when_its_source_goes() {
    let place = Place::new("source-goes").await;
    place.cluster("cache", json!({"role": "cache", "sources": []})).await;
    place.ready_pod("cache").await;
    place.cluster("front", balancer()).await;
    let operating = place.start(without_webhooks()).await;
    eventually("it is deployed", async || place.has_deployment("front").await).await;
    place.api::<cdn_operator::api::CdnCluster>().delete("cache", &Default::default()).await.unwrap();
    eventually("it is degraded", async || place.state("front").await == Some(State::Degraded)).await;
    let status = place.status("front").await;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message, "Source cache not found, will retry later");
    place.edit("front", json!({"replicas": 5})).await;
    eventually("it is scaled all the same", async || {
        let deployment = place.api::<Deployment>().get("front-deployment").await.unwrap();
        deployment.spec.unwrap().replicas == Some(5)
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn what_cannot_be_changes_nothing_of_what_is_there() {
    let place = Place::new("invalid").await;
    place.cluster("front", json!({"role": "balancer", "sources": []})).await;
    place.cluster("cache", json!({"role": "cache", "sources": []})).await;
    let operating = place.start(without_webhooks()).await;
    eventually("it is deployed", async || place.has_deployment("cache").await).await;
    let served = || async { place.api::<ConfigMap>().get("cache-config").await.unwrap().data.unwrap() };
    let before = served().await;
    place.edit("cache", json!({"sources": [{"name": "front"}], "replicas": 7})).await;
    eventually("it is invalid", async || place.state("cache").await == Some(State::Invalid)).await;
    let status = place.status("cache").await;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message, "source front is a balancer: only caches and origins can be sources");
    assert_eq!(served().await, before);
    let deployment = place.api::<Deployment>().get("cache-deployment").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    operating.stop().await;
}

#[tokio::test]
async fn a_cluster_that_did_not_change_is_not_written_and_what_others_change_is_restored() {
    let place = Place::new("quiet").await;
    place.cluster("cache", json!({"role": "cache", "sources": [], "tls": {"secretName": "t"}})).await;
    let manager = without_webhooks();
    let identity = place.namespace.with_rules(manager.rules()).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let started = manager.start(identity.config(), place.settings(), stop.clone()).await.unwrap();
    eventually("it is deployed", async || place.state("cache").await == Some(State::Deploying)).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mark = place.namespace.mark().await.unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    place
        .api::<cdn_operator::api::CdnCluster>()
        .patch("cache", &PatchParams::default(), &label)
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let writes = identity.requests_since(&mark).await.unwrap().writes();
    assert!(writes.is_empty(), "{writes:?}");
    let ports = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    place.api::<PodDisruptionBudget>().patch("cache", &PatchParams::default(), &ports).await.unwrap();
    eventually("it is restored", async || {
        let budget = place.api::<PodDisruptionBudget>().get("cache").await.unwrap();
        budget.spec.unwrap().min_available
            == Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1))
    })
    .await;
    let services = place.api::<Service>().list(&ListParams::default()).await.unwrap();
    assert_eq!(services.items[0].spec.as_ref().unwrap().ports.as_ref().unwrap().len(), 2, "HTTP and HTTPS");
    stop.cancel();
    started.finished().await.unwrap();
}
