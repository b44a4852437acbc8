//! Purges as far as they go without pods: each gets a number, and none is lost.

use cdn_operator::{api::CdnPurge, configuration::Purges, without_webhooks};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::place::{Place, eventually};

async fn list(place: &Place) -> Option<Purges> {
    let list = place.api::<ConfigMap>().get_opt("cache-purges").await.unwrap()?;
    Purges::read(&list.data?).ok()
}

async fn reason(place: &Place, name: &str) -> Option<String> {
    let status = place.api::<CdnPurge>().get(name).await.unwrap().status?;
    status.conditions.first().map(|condition| condition.reason.clone())
}

#[tokio::test]
async fn two_operators_at_once_lose_no_purge_and_give_no_number_twice() {
    let place = Place::new("purges").await;
    let (one, other) = (place.start(without_webhooks()).await, place.start(without_webhooks()).await);
    place.create::<CdnPurge>("early", json!({"cluster": "cache", "prefix": "/e/"})).await.unwrap();
    eventually("it waits for its cluster", async || {
        reason(&place, "early").await.as_deref() == Some("ClusterNotFound")
    })
    .await;
    place.cluster("cache", json!({"role": "cache", "sources": []})).await;
    for number in 0..20 {
        let spec = json!({"cluster": "cache", "paths": [format!("/{number}")]});
        place.create::<CdnPurge>(&format!("p-{number}"), spec).await.unwrap();
    }
    eventually("all are included", async || list(&place).await.is_some_and(|list| list.purged.len() == 21))
        .await;
    let purges = list(&place).await.unwrap();
    let mut numbers: Vec<_> = purges.purged.iter().map(|purged| purged.number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 21, "{purges:?}");
    eventually("all are complete: there is no pod to confirm", async || {
        reason(&place, "early").await.as_deref() == Some("Confirmed")
            && reason(&place, "p-19").await.as_deref() == Some("Confirmed")
    })
    .await;
    one.stop().await;
    other.stop().await;
}
