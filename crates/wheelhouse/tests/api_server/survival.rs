//! What a process has to survive: an API server that is away, and all that.

use std::time::{Duration, Instant};

use rstest::rstest;
use wheelhouse::{
    k8s_openapi::api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    kube::{
        Api,
        api::{ObjectMeta, PostParams},
    },
};
use wheelhouse_testing::{ApiProxy, Fault};

use super::widgets::{Place, Widgets, eventually, one_config_map};

/// Away as after a crash (connections break and new ones fail), as behind a dead
/// link (nothing ever answers), and as behind a load balancer with nothing
/// behind it. For three seconds; for `OUTAGE_SECONDS` where that is set.
#[rstest]
#[case::crashed(Fault::LoseRequest)]
#[case::unreachable(Fault::Hang)]
#[case::not_served(Fault::Refuse(503))]
#[tokio::test]
async fn an_api_server_that_was_away_is_taken_up_again(#[case] fault: Fault) {
    let seconds = std::env::var("OUTAGE_SECONDS").map_or(3, |seconds| seconds.parse().unwrap());
    let place = Place::new("away").await;
    let proxy = ApiProxy::start(&place.identity).await.unwrap();
    let operating =
        place.start_with(proxy.config(), place.settings(), Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    proxy.disturb(move |_, _| fault.clone());
    proxy.break_connections();
    place.resize(2).await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    assert!(!place.is_resized(2).await, "it could not know");
    proxy.calm();
    proxy.break_connections();
    let back = Instant::now();
    eventually("it is as wanted after all", async || place.is_resized(2).await).await;
    println!("away for {seconds} s, as wanted {:.1?} after it was back", back.elapsed());
    operating.stop().await;
}

#[tokio::test]
async fn a_server_that_is_overloaded_or_refuses_now_and_then_only_costs_time() {
    let place = Place::new("overloaded").await;
    let proxy = ApiProxy::start(&place.identity).await.unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    proxy.disturb(move |method, _| {
        if method != "PATCH" {
            return Fault::None;
        }
        // Every third write, each time in another way.
        match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) % 9 {
            0 => Fault::Refuse(429),
            3 => Fault::Refuse(500),
            6 => Fault::LoseAnswer,
            _ => Fault::None,
        }
    });
    let operating =
        place.start_with(proxy.config(), place.settings(), Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    for size in 2..6 {
        place.resize(size).await;
        eventually("it is as wanted after all", async || place.is_resized(size).await).await;
    }
    operating.stop().await;
}

/// A token that is valid as long as a Secret is there.
async fn token(place: &Place, name: &str) -> String {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..Default::default()
    };
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
    let spec = TokenRequestSpec {
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Secret".into()),
            name: Some(name.to_owned()),
            uid: secret.metadata.uid,
        }),
        ..Default::default()
    };
    let request = TokenRequest { spec: Some(spec), ..Default::default() };
    let accounts: Api<ServiceAccount> = Api::default_namespaced(place.client.clone());
    let answer =
        accounts.create_token_request(place.identity.name(), &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

/// The kubelet replaces a pod's token before it runs out. Here the old one is
/// invalid at once, which is worse; kube reads the file again after a minute.
#[tokio::test]
async fn a_token_that_was_replaced_is_taken_up() {
    let place = Place::new("tokens").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token(&place, "first").await).unwrap();
    let mut config = place.identity.config();
    config.auth_info.token = None;
    config.auth_info.token_file = Some(file.to_str().unwrap().to_owned());
    let operating =
        place.start_with(config, place.settings(), Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;

    std::fs::write(&file, token(&place, "second").await).unwrap();
    Api::<Secret>::default_namespaced(place.client.clone())
        .delete("first", &Default::default())
        .await
        .unwrap();
    for size in 2..=10 {
        place.resize(size).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    eventually("it works with the new one", async || place.is_resized(10).await).await;
    operating.stop().await;
}
