//! What people can write, and what they are told.

use cdn_operator::api::{CdnCluster, CdnPurge, State};
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::RunSettings;

use super::place::{Place, eventually};

#[rstest]
#[case::no_sources(json!({"role": "cache"}), "spec.sources: Required value")]
#[case::null_sources(json!({"role": "cache", "sources": null}), "spec.sources")]
#[case::no_role(json!({"sources": []}), "spec.role: Required value")]
#[case::another_role(json!({"role": "proxy", "sources": []}), "Unsupported value: \"proxy\"")]
#[case::no_expression(json!({"role": "cache", "sources": [{"name": "a", "pathCondition": "^/(live"}]}), "missing closing )")]
#[case::a_line_break(json!({"role": "cache", "sources": [{"name": "a", "pathCondition": "^/live\n}"}]}), "control characters")]
#[case::a_variable(json!({"role": "cache", "sources": [{"name": "a", "pathCondition": "^/(?P<host>.*)"}]}), "named group")]
#[case::two_defaults(json!({"role": "cache", "sources": [{"name": "a"}, {"name": "b"}]}), "it is the default")]
#[case::an_origin_of_a_balancer(json!({"role": "balancer", "sources": [{"name": "a", "origin": {"host": "h"}}]}), "only a cache has origins")]
#[case::a_host_that_is_none(json!({"role": "cache", "sources": [{"name": "a", "origin": {"host": "h;}"}}]}), "spec.sources[0].origin.host")]
#[case::a_host_header_that_is_none(json!({"role": "cache", "sources": [{"name": "a", "origin": {"host": "h", "hostHeader": "a b"}}]}), "hostHeader")]
#[case::a_negative_number(json!({"role": "cache", "sources": [], "replicas": -1}), "greater than or equal to 0")]
#[case::a_size(json!({"role": "cache", "sources": [], "cache": {"size": "much"}}), "spec.cache.size")]
#[case::no_path_in_the_key(json!({"role": "cache", "sources": [], "cache": {"key": ["Host"]}}), "all objects would be one")]
#[case::a_cache_of_a_balancer(json!({"role": "balancer", "sources": [], "cache": {}}), "only caches have cache settings")]
#[tokio::test]
async fn what_makes_no_sense_is_refused_at_admission(
    #[case] spec: serde_json::Value,
    #[case] complaint: &str,
) {
    let place = Place::new("refused").await;
    let error = place.create::<CdnCluster>("c", spec).await.unwrap_err().to_string();
    assert!(error.contains(complaint), "{error}");
}

#[rstest]
#[case::nothing(json!({"cluster": "c"}), "say either paths or a prefix")]
#[case::both(json!({"cluster": "c", "paths": ["/a"], "prefix": "/"}), "say either paths or a prefix")]
#[case::no_path(json!({"cluster": "c", "paths": ["a"]}), "spec.paths[0]")]
#[tokio::test]
async fn a_purge_that_makes_no_sense_is_refused(#[case] spec: serde_json::Value, #[case] complaint: &str) {
    let place = Place::new("refused-purge").await;
    let error = place.create::<CdnPurge>("p", spec).await.unwrap_err().to_string();
    assert!(error.contains(complaint), "{error}");
}

#[tokio::test]
async fn a_purge_cannot_become_another() {
    let place = Place::new("changed-purge").await;
    place.create::<CdnPurge>("p", json!({"cluster": "c", "prefix": "/a"})).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"prefix": "/b"}}));
    let error = place.api::<CdnPurge>().patch("p", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(error.to_string().contains("make another one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_and_a_source_that_cannot_be_one_are_refused_by_the_webhook() {
    let place = Place::new("webhook").await;
    let manager = cdn_operator::manager();
    let identity = place.namespace.with_cluster_rules(manager.webhook_rules()).await.unwrap();
    identity.allow([manager.rules(), manager.lease_rules()].concat()).await.unwrap();
    let settings = RunSettings {
        webhook_url: Some("self".to_owned()),
        webhook_listen: ([127, 0, 0, 1], 0).into(),
        lease_namespace: Some(place.namespace.name().to_owned()),
        ..place.settings()
    };
    let stop = CancellationToken::new();
    let started = manager.start(identity.config(), settings, stop.clone()).await.unwrap();
    place.cluster("a", json!({"role": "cache", "sources": [{"name": "b"}]})).await;
    place.cluster("b", json!({"role": "cache", "sources": [{"name": "c"}]})).await;
    let refused =
        async |name: &str, spec| place.create::<CdnCluster>(name, spec).await.unwrap_err().to_string();
    let cycle = refused("c", json!({"role": "cache", "sources": [{"name": "a"}]})).await;
    assert!(cycle.contains("the sources go round in a circle: c -> a -> b -> c"), "{cycle}");
    let own = refused("c", json!({"role": "cache", "sources": [{"name": "c"}]})).await;
    assert!(own.contains("c is its own source"), "{own}");
    place.cluster("front", json!({"role": "balancer", "sources": [{"name": "a"}]})).await;
    let wrong = refused("d", json!({"role": "cache", "sources": [{"name": "front"}]})).await;
    assert!(wrong.contains("source front is a balancer"), "{wrong}");
    stop.cancel();
    started.finished().await.unwrap();

    // The webhook is away: that keeps nobody from making clusters where this operator does not look.
    let away = refused("e", json!({"role": "cache", "sources": []})).await;
    assert!(away.contains("failed calling webhook"), "{away}");
    Place::new("elsewhere").await.cluster("e", json!({"role": "cache", "sources": []})).await;
}

#[tokio::test]
async fn a_cycle_that_got_past_admission_is_named_and_heals() {
    let place = Place::new("cycle").await;
    let operating = place.start(cdn_operator::without_webhooks()).await;
    place.cluster("a", json!({"role": "cache", "sources": [{"name": "b"}]})).await;
    place.cluster("b", json!({"role": "cache", "sources": [{"name": "a"}]})).await;
    eventually("both are invalid", async || {
        place.state("a").await == Some(State::Invalid) && place.state("b").await == Some(State::Invalid)
    })
    .await;
    let status = place.status("a").await;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.message, "the sources go round in a circle: a -> b -> a");
    place.edit("b", json!({"sources": []})).await;
    eventually("one goes on", async || place.state("b").await == Some(State::Deploying)).await;
    eventually("the other waits for it", async || place.state("a").await == Some(State::WaitingSource)).await;
    operating.stop().await;
}
