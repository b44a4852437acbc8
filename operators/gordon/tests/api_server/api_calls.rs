//! The talk's exercise: identify all Kubernetes API calls. The table is made from
//! the API server's audit log.

use super::place::{Place, eventually};

#[tokio::test]
async fn all_api_calls_are_identified_and_none_is_superfluous() {
    let place = Place::new("calls").await;
    let identity = place.identity("gordon").await;
    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(identity.config()).await;
    place.create(3).await;
    eventually("three are there", async || place.live_pods().await.len() == 3).await;
    place.pods().delete("g-1", &Default::default()).await.unwrap();
    eventually("the lost one is replaced", async || place.live_pods().await.len() == 3).await;
    place.scale(1).await;
    eventually("one is there", async || place.live_pods().await.len() == 1).await;
    eventually("the status says so", async || {
        place.gordons().get("g").await.unwrap().status.unwrap_or_default().replicas == 1
    })
    .await;
    operating.stop().await;
    let requests = identity.requests_since(&mark).await.unwrap();
    println!("three Gordons, one lost, then one:\n{requests}");
    assert_eq!(requests.count("list", "pods"), 1);
    assert_eq!(requests.count("watch", "pods"), 1);
    assert_eq!(requests.count("list", "gordons"), 1);
    assert_eq!(requests.count("watch", "gordons"), 1);
    assert_eq!(requests.count("create", "pods"), 4, "three, and one for the lost one");
    assert_eq!(requests.count("delete", "pods"), 2, "from three to one");
    assert_eq!(requests.count("get", "pods"), 0);
    let failed = requests.filter(|request| request.code >= 400);
    assert!(failed.is_empty(), "{failed}");
}
