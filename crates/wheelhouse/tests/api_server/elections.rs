//! Law 12: leader election avoids duplicate work, and a leader that lost touch
//! sends nothing.

use std::time::{Duration, Instant};

use wheelhouse::{
    jiff::{SignedDuration, Timestamp},
    k8s_openapi::api::coordination::v1::Lease,
    kube::Api,
    manager::RunSettings,
};
use wheelhouse_testing::{ApiProxy, Fault, Identity};

use super::widgets::{Operating, Place, Widgets, eventually, one_config_map};

async fn identity(place: &Place, name: &str) -> Identity {
    let identity = place.namespace.service_account(name).await.unwrap();
    identity.allow_everywhere(vec![wheelhouse_testing::rule(&["*"], "*", &["*"])]).await.unwrap();
    identity
}

fn settings(place: &Place) -> RunSettings {
    RunSettings {
        no_leader_election: false,
        lease_namespace: Some(place.namespace.name().to_owned()),
        ..place.settings()
    }
}

async fn start(place: &Place, config: wheelhouse::kube::Config) -> Operating {
    place.start_with(config, settings(place), Widgets::new(one_config_map).controller()).await
}

async fn holder(place: &Place) -> Option<String> {
    let leases: Api<Lease> = Api::default_namespaced(place.client.clone());
    leases.get_opt("test-operator").await.unwrap()?.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn a_leader_that_ends_hands_over_at_once_and_a_standby_is_warm() {
    let place = Place::new("hand-over").await;
    let (one, other) = (identity(&place, "one").await, identity(&place, "other").await);
    let first = start(&place, one.config()).await;
    eventually("somebody leads", async || holder(&place).await.is_some()).await;
    let second = start(&place, other.config()).await;
    place.create("a", 1).await;
    eventually("the leader works", async || place.is_resized(1).await).await;
    let mark = place.namespace.mark().await.unwrap();
    first.stop().await;
    place.resize(2).await;
    let since = Instant::now();
    eventually("the standby works", async || place.is_resized(2).await).await;
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "it did not have to wait for the lease: {:?}",
        since.elapsed()
    );
    let lists = other.requests_since(&mark).await.unwrap().filter(|request| request.verb == "list");
    assert!(lists.is_empty(), "its cache was there already: {lists:?}");
    second.stop().await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_sends_nothing_after_its_deadline() {
    let place = Place::new("cut-off").await;
    let (one, other) = (identity(&place, "one").await, identity(&place, "other").await);
    let proxy = ApiProxy::start(&one).await.unwrap();
    let first = start(&place, proxy.config()).await;
    eventually("somebody leads", async || holder(&place).await.is_some()).await;
    let second = start(&place, other.config()).await;
    place.create("a", 1).await;
    eventually("the leader works", async || place.is_resized(1).await).await;
    let before = place.namespace.mark().await.unwrap();

    // Nothing about the lease gets through any more; everything else would.
    proxy.disturb(|_, target| if target.contains("/leases/") { Fault::Hang } else { Fault::None });
    let cut = Timestamp::now();
    let mut size = 10;
    let first_write = async || {
        let writes = other.requests_since(&before).await.unwrap().writes();
        writes.iter().find(|write| write.resource == "configmaps").map(|write| write.received)
    };
    eventually("the standby leads", async || {
        size += 1;
        place.resize(size).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        first_write().await.is_some()
    })
    .await;
    let taken_over = first_write().await.unwrap().duration_since(cut);
    assert!(taken_over.as_secs_f64() < 16.0, "within the lease's duration plus one second: {taken_over:?}");
    println!("the standby acted {taken_over:?} after the leader was cut off");

    for size in 0..10 {
        place.resize(100_000 + size).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eventually("the second works", async || place.is_resized(100_009).await).await;
    // Ten seconds after its last good renewal, which was before the cut, is its deadline.
    let writes = one.requests_since(&before).await.unwrap().writes();
    let late = writes.filter(|write| write.received.duration_since(cut) > SignedDuration::from_secs(10));
    assert!(late.is_empty(), "{late:?}");

    // Back in touch it waits for its turn.
    proxy.calm();
    proxy.break_connections();
    second.stop().await;
    place.resize(7).await;
    eventually("the first leads again", async || place.is_resized(7).await).await;
    first.stop().await;
}
