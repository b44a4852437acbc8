//! The tests of the talk.

use std::{sync::Arc, time::Duration};

use cdn_operator::{CdnClusters, api::CdnCluster, api::State, clusters, observe::Seen, without_webhooks};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use wheelhouse::{Key, Manager, NoAction, Operator, Plan, Result, World};
use wheelhouse_testing::EventType;

use super::place::{Place, eventually};

/// The operator, which tells the key of every reconcile.
struct Telling {
    operator: CdnClusters,
    keys: UnboundedSender<Key>,
}

impl Operator for Telling {
    type Resource = CdnCluster;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, cluster: Arc<CdnCluster>, world: &World<'_>) -> Result<Seen> {
        let _ = self.keys.send(Key::new(cluster.namespace().as_deref(), &cluster.name_any()));
        self.operator.observe(cluster, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        self.operator.analyse(seen)
    }
}

#[tokio::test]
async fn reconcile_is_called_with_the_key_of_what_was_created() {
    let place = Place::new("seed").await;
    let (keys, mut called) = unbounded_channel();
    let telling = Telling { operator: CdnClusters::from_environment(), keys };
    let operating = place.start(Manager::new("cdn-operator").controller(clusters(telling))).await;
    place.cluster("foo", json!({"role": "cache", "sources": []})).await;
    let key = tokio::time::timeout(Duration::from_secs(5), called.recv()).await.unwrap().unwrap();
    assert_eq!(key, Key::namespaced(place.namespace.name(), "foo"));

    let deployments = place.api::<Deployment>();
    let begun = std::time::Instant::now();
    eventually("the Deployment is there", async || place.has_deployment("foo").await).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let deployment = deployments.get("foo-deployment").await.unwrap();
    assert_eq!(deployment.metadata.owner_references.as_ref().unwrap()[0].kind, "CdnCluster");
    let template = deployment.spec.unwrap().template;
    assert_eq!(template.metadata.unwrap().labels.unwrap()["deployment"], "foo-deployment");
    assert!(template.spec.unwrap().containers.iter().any(|container| container.name == "nginx"));
    eventually("its state is Deploying", async || place.state("foo").await == Some(State::Deploying)).await;
    operating.stop().await;
}

#[tokio::test]
async fn whoever_waits_for_a_source_says_so_in_the_words_of_the_talk() {
    let place = Place::new("seed-event").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(without_webhooks()).await;
    place
        .cluster(
            "balancer",
            json!({"role": "balancer", "sources": [
                {"name": "cache-live", "pathCondition": "^/live/"},
                {"name": "cache-vod", "pathCondition": "^/vod/"},
            ]}),
        )
        .await;
    let words = "Source cache-live not found, will retry later";
    events.expect(EventType::Normal, "SourceNotFound", words).await.unwrap();
    let seen = events.seen().await.unwrap();
    let event = seen.iter().find(|event| event.message == words).unwrap();
    assert_eq!(event.from, "CdnCluster");
    eventually("it waits", async || place.state("balancer").await == Some(State::WaitingSource)).await;
    assert!(!place.has_deployment("balancer").await);
    operating.stop().await;
}
