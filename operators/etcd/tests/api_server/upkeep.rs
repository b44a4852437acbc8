//! What is done for running members, as far as an API server can show it: volumes that become larger, and options.

use etcd_operator::{Scope, api::EtcdCluster};
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::place::{Place, eventually};

/// A class of volumes that may become larger, or not; called after the namespace, as it has none.
async fn class(place: &Place, allows_expansion: bool) -> String {
    let name = place.namespace.name().to_owned();
    let class = json!({
        "metadata": {"name": name},
        "provisioner": "example.com/none",
        "allowVolumeExpansion": allows_expansion,
    });
    let classes: Api<StorageClass> = Api::all(place.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    name
}

/// As the controller of volumes does it.
async fn bind(place: &Place, claim: &str) {
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let claims = place.api::<PersistentVolumeClaim>();
    claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn condition(place: &Place, kind: &str) -> Option<(String, String)> {
    let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
    let condition = status.conditions.into_iter().find(|known| known.type_ == kind)?;
    Some((condition.reason, condition.message))
}

async fn requested(place: &Place) -> String {
    let claim = place.api::<PersistentVolumeClaim>().get("db-0").await.unwrap();
    claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0.clone()
}

#[rstest]
#[case::by_storage(|class: &str, size: &str| json!({"storage": {"storageClass": class, "size": size}}))]
#[case::in_the_original_words(|class: &str, size: &str| json!({"pod": {"persistentVolumeClaimSpec": {
    "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
}}}))]
#[tokio::test]
async fn a_volume_becomes_larger_where_its_class_allows_that(
    #[case] spec: fn(&str, &str) -> Value,
    #[values(true, false)] allows_expansion: bool,
) {
    let place = Place::new("expansion").await;
    let class = class(&place, allows_expansion).await;
    let wish = |size: &str| {
        let mut wish = spec(&class, size);
        wish["size"] = json!(1);
        wish
    };
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", wish("1Gi")).await.unwrap();
    eventually("the volume is there", async || place.names_of::<PersistentVolumeClaim>().await == ["db-0"])
        .await;
    bind(&place, "db-0").await;
    eventually("it is as it is wanted", async || {
        condition(&place, "VolumesExpanded").await.is_some_and(|(reason, _)| reason == "AsWanted")
    })
    .await;
    place.cluster("db", wish("2Gi")).await.unwrap();
    if allows_expansion {
        eventually("more is asked for", async || requested(&place).await == "2Gi").await;
        eventually("it says that it waits", async || {
            condition(&place, "VolumesExpanded").await.is_some_and(|(reason, _)| reason == "Expanding")
        })
        .await;
    } else {
        eventually("it says why not", async || {
            let said = condition(&place, "VolumesExpanded").await;
            said.is_some_and(|(reason, message)| reason == "Refused" && message.contains("resize"))
        })
        .await;
        assert_eq!(requested(&place).await, "1Gi");
        let ready = condition(&place, "Ready").await.unwrap();
        assert_eq!(ready.0, "Creating", "nothing else is kept from being done: {ready:?}");
    }
    operating.stop().await;
}

#[tokio::test]
async fn options_become_flags_of_the_version_that_runs() {
    let place = Place::new("options").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let options = json!({"quotaBackendBytes": "1Gi", "extra": {"compact-hash-check-enabled": "true"}});
    place.cluster("db", json!({"size": 1, "version": "3.5.35", "options": options})).await.unwrap();
    eventually("the pod is there", async || place.names_of::<Pod>().await == ["db-0"]).await;
    let pod = place.api::<Pod>().get("db-0").await.unwrap();
    let flags = pod.spec.unwrap().containers[0].args.clone().unwrap();
    let expected = ["--quota-backend-bytes=1073741824", "--experimental-compact-hash-check-enabled=true"];
    assert_eq!(flags, expected);
    operating.stop().await;
}
