//! Restores, as far as they get without nodes: what is checked, and what is asked of a cluster, and when.

use etcd_operator::{
    Scope,
    api::{
        EtcdCluster,
        backup::{EtcdRestore, EtcdRestoreStatus, RESTORE, RestoreFrom, RestorePhase},
    },
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    admission::refusal,
    place::{Operating, Place, eventually},
};

#[rstest]
#[case::original(json!({"etcdCluster": {"name": "db"}, "backupStorageType": "S3", "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}))]
#[case::new(json!({"etcdCluster": {"name": "db"}, "template": {"size": 3}, "volume": {"claim": "b", "path": "db"}}))]
#[case::in_place(json!({"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "b", "path": "db"}}))]
#[tokio::test]
async fn manifests_of_the_original_and_new_ones_are_understood(#[case] spec: Value) {
    let place = Place::new("restore-original").await;
    place.restore("db", spec.clone()).await.unwrap();
    let mut other = spec;
    other["etcdCluster"]["name"] = json!("other");
    let said = refusal(place.restore("db", other).await);
    assert!(said.contains("a restore stays as it is"), "{said}");
}

#[rstest]
#[case::from_nowhere(json!({"etcdCluster": {"name": "db"}}), "say where the backup is")]
#[case::from_two_places(json!({"etcdCluster": {"name": "db"}, "s3": {"path": "bucket/db", "awsSecret": "a"}, "volume": {"claim": "b", "path": "db"}}), "say where the backup is")]
#[case::another_storage(json!({"etcdCluster": {"name": "db"}, "backupStorageType": "S3", "volume": {"claim": "b", "path": "db"}}), "backupStorageType S3 goes with s3")]
#[case::into_nothing(json!({"volume": {"claim": "b", "path": "db"}}), "etcdCluster")]
#[case::odd_name(json!({"etcdCluster": {"name": "No"}, "volume": {"claim": "b", "path": "db"}}), "etcdCluster.name")]
#[case::too_old(json!({"etcdCluster": {"name": "db"}, "template": {"size": 3, "version": "3.2.13"}, "volume": {"claim": "b", "path": "db"}}), "etcd 3.2.13 has no learners")]
#[case::both(json!({"etcdCluster": {"name": "db"}, "inPlace": true, "template": {"size": 3}, "volume": {"claim": "b", "path": "db"}}), "template is for a new cluster")]
#[case::bad_template(json!({"etcdCluster": {"name": "db"}, "template": {"size": 9}, "volume": {"claim": "b", "path": "db"}}), "spec.template.size")]
#[tokio::test]
async fn bad_input_is_refused_in_words_that_help(#[case] spec: Value, #[case] words: &str) {
    let said = refusal(Place::new("restore-bad").await.restore("db", spec).await);
    assert!(said.contains(words), "{said}");
}

async fn status(place: &Place) -> EtcdRestoreStatus {
    place.api::<EtcdRestore>().get("back").await.unwrap().status.unwrap_or_default()
}

async fn asked(place: &Place) -> Option<RestoreFrom> {
    let cluster = place.api::<EtcdCluster>().get_opt("db").await.unwrap()?;
    cluster.annotations().get(RESTORE).map(|text| serde_json::from_str(text).unwrap())
}

fn good() -> Value {
    json!({
        "outcome": "Good", "path": "db", "at": "2026-05-02T03:00:09Z", "size": 4096, "sha256": "ab",
        "revision": 42, "etcdVersion": "3.6.16", "clusterID": "c1",
    })
}

/// A restore whose pod is there and has to say something.
async fn begun(place: &Place, more: Value) -> Operating {
    let operating = place.start(Scope::OwnNamespace).await;
    let mut spec = json!({"etcdCluster": {"name": "db"}, "volume": {"claim": "b", "path": "db"}});
    wheelhouse::overrides::merge(&mut spec, &more);
    place.restore("back", spec).await.unwrap();
    eventually("a pod verifies the backup", async || {
        place.names_of::<Pod>().await.contains(&"back-check".to_owned())
    })
    .await;
    operating
}

/// A cluster that has data.
async fn cluster_with_data(place: &Place, version: &str) {
    place.cluster("db", json!({"size": 1, "paused": true, "version": version})).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"clusterID": "c0", "currentVersion": version}}));
    place.api::<EtcdCluster>().patch_status("db", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_new_cluster_is_made_after_the_backup_was_verified_and_stays_when_the_restore_goes() {
    let place = Place::new("restore-new").await;
    let operating = begun(&place, json!({"template": {"size": 1, "paused": true}})).await;
    eventually("it says so", async || status(&place).await.phase == Some(RestorePhase::Checking)).await;
    assert_eq!(place.names_of::<EtcdCluster>().await, [""; 0]);
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("the cluster is made", async || asked(&place).await.is_some()).await;
    let from = asked(&place).await.unwrap();
    let restore = place.api::<EtcdRestore>().get("back").await.unwrap();
    assert_eq!((from.name.as_str(), Some(from.uid)), ("back", restore.uid()));
    assert_eq!((from.revision, from.sha256.as_str(), from.place.path()), (42, "ab", "db"));
    let cluster = place.api::<EtcdCluster>().get("db").await.unwrap();
    assert_eq!(cluster.owner_references().len(), 0);
    eventually("it says so, and the pod is gone", async || {
        let status = status(&place).await;
        status.phase == Some(RestorePhase::Restoring)
            && status.cluster_uid == cluster.uid()
            && place.names_of::<Pod>().await.is_empty()
    })
    .await;
    let restored = json!({"restore": restore.uid(), "revision": 42, "at": "2026-05-02T03:00:09Z"});
    let patch = Patch::Merge(json!({"status": {"restored": restored}}));
    place.api::<EtcdCluster>().patch_status("db", &PatchParams::default(), &patch).await.unwrap();
    eventually("it succeeded", async || {
        let status = status(&place).await;
        status.succeeded && status.phase == Some(RestorePhase::Succeeded)
    })
    .await;
    place.api::<EtcdRestore>().delete("back", &DeleteParams::default()).await.unwrap();
    operating.stop().await;
    assert_eq!(place.names_of::<EtcdCluster>().await, ["db"]);
}

#[rstest]
#[case::truncated(
    "the backup is truncated: its data has 4096 bytes, and 8192 were written: the end is missing"
)]
#[case::foreign("this is no snapshot of etcd's: it does not begin as a database of etcd's does")]
#[tokio::test]
async fn a_bad_backup_is_refused_and_the_running_cluster_is_untouched(#[case] why: &str) {
    let place = Place::new("restore-refused").await;
    cluster_with_data(&place, "3.6.16").await;
    let operating = begun(&place, json!({"inPlace": true})).await;
    let before = place.api::<EtcdCluster>().get("db").await.unwrap();
    let said = json!({"outcome": "Refused", "message": why});
    place.say_that_it_ended("back-check", "Failed", said).await;
    eventually("it is refused", async || {
        let status = status(&place).await;
        status.phase == Some(RestorePhase::Refused) && status.reason == why && !status.succeeded
    })
    .await;
    let told = status(&place).await;
    assert_eq!(told.observed_generation, Some(1));
    assert!(told.conditions.iter().any(|known| known.type_ == "Verified" && known.status == "False"));
    let after = place.api::<EtcdCluster>().get("db").await.unwrap();
    assert_eq!((before.metadata.annotations, before.spec), (after.metadata.annotations, after.spec));
    operating.stop().await;
}

#[rstest]
#[case::without_being_told_to(json!({}), "3.6.16", "HasData")]
#[case::an_older_etcd(json!({"inPlace": true}), "3.5.35", "TooNew")]
#[tokio::test]
async fn a_cluster_with_data_is_left_alone(#[case] more: Value, #[case] version: &str, #[case] reason: &str) {
    let place = Place::new("restore-left").await;
    cluster_with_data(&place, version).await;
    let operating = begun(&place, more).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("it is refused", async || {
        let status = status(&place).await;
        let says = status.conditions.iter().any(|known| known.type_ == "Ready" && known.reason == reason);
        says && status.phase == Some(RestorePhase::Refused) && status.backup.is_some()
    })
    .await;
    assert_eq!(asked(&place).await, None);
    operating.stop().await;
}

#[tokio::test]
async fn in_place_the_cluster_is_asked_and_no_other_restore_gets_between() {
    let place = Place::new("restore-in-place").await;
    cluster_with_data(&place, "3.6.16").await;
    let operating = begun(&place, json!({"inPlace": true})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("the cluster is asked", async || asked(&place).await.is_some()).await;

    let other =
        json!({"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "b", "path": "db"}});
    place.restore("other", other).await.unwrap();
    eventually("a pod verifies it, too", async || {
        place.names_of::<Pod>().await.contains(&"other-check".to_owned())
    })
    .await;
    place.say_that_it_ended("other-check", "Succeeded", good()).await;
    eventually("the other one waits", async || {
        let other = place.api::<EtcdRestore>().get("other").await.unwrap().status.unwrap_or_default();
        other.phase == Some(RestorePhase::Waiting) && other.reason.contains("EtcdRestore back is under way")
    })
    .await;
    assert_eq!(asked(&place).await.unwrap().name, "back");
    operating.stop().await;
}

/// What only the rules of an EtcdCluster as a whole find is told, too.
#[tokio::test]
async fn a_template_that_makes_no_cluster_is_told() {
    let place = Place::new("restore-template").await;
    let template = json!({"size": 1, "storage": {"size": "1Gi"}, "options": {"quotaBackendBytes": "2Gi"}});
    let operating = begun(&place, json!({"template": template})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("it is told", async || {
        let status = status(&place).await;
        let says = |words: &str| status.conditions.iter().any(|known| known.message.contains(words));
        !status.succeeded && says("options.quotaBackendBytes must be less than storage.size")
    })
    .await;
    assert_eq!(place.names_of::<EtcdCluster>().await, [""; 0]);
    operating.stop().await;
}

#[tokio::test]
async fn a_backup_that_cannot_be_read_is_tried_again() {
    let place = Place::new("restore-again").await;
    let operating = begun(&place, json!({"template": {"size": 1, "paused": true}})).await;
    let uid = async || place.api::<Pod>().get_opt("back-check").await.unwrap().and_then(|pod| pod.uid());
    let first = uid().await;
    let said = json!({"outcome": "Failed", "message": "cannot read bucket/db: connection refused"});
    place.say_that_it_ended("back-check", "Failed", said).await;
    eventually("it is told", async || status(&place).await.reason.contains("connection refused")).await;
    eventually("another pod is made", async || {
        let now = uid().await;
        now.is_some() && now != first
    })
    .await;
    operating.stop().await;
}
