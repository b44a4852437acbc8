//! Restores, as far as they get without nodes: what is checked, and what is asked of a cluster, and when.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_operator::{
    Scope,
    api::{
        EtcdCluster, INCARNATION, SCOPE,
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
use wheelhouse_testing::{Fault, WatchFault};

use super::{
    admission::refusal,
    place::{Operating, Place, eventually, manifest},
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

/// Writes down which incarnation the cluster has, and takes off what it was asked for.
async fn begin_anew(place: &Place, incarnation: Value) {
    let annotations = json!({INCARNATION: incarnation.to_string(), RESTORE: null});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    place.api::<EtcdCluster>().patch("db", &PatchParams::default(), &patch).await.unwrap();
}

/// What begins from a survivor has no ID for as long as that is being copied.
#[tokio::test]
async fn a_cluster_that_begins_anew_has_data() {
    let place = Place::new("restore-recovering").await;
    place.cluster("db", json!({"size": 1, "paused": true})).await.unwrap();
    let source = json!({"survivor": {"member": "db-1", "claim": "db-1"}});
    begin_anew(&place, json!({"number": 1, "source": source})).await;
    let operating = begun(&place, json!({})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("it is refused", async || {
        let status = status(&place).await;
        let says = status.conditions.iter().any(|known| known.type_ == "Ready" && known.reason == "HasData");
        says && status.phase == Some(RestorePhase::Refused)
    })
    .await;
    assert_eq!(asked(&place).await, None);
    operating.stop().await;
}

/// Whoever takes the request off by then changes nothing.
#[tokio::test]
async fn a_restore_that_the_cluster_begins_from_is_under_way_whatever_is_asked_for_by_then() {
    let place = Place::new("restore-begins").await;
    place.cluster("db", json!({"size": 1, "paused": true})).await.unwrap();
    let operating = begun(&place, json!({})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("the cluster is asked", async || asked(&place).await.is_some()).await;
    let from = asked(&place).await.unwrap();
    let source = json!({"backup": {"place": from.place, "sha256": from.sha256, "movesRevisions": true}});
    let restore = json!({"uid": from.uid, "revision": 42});
    begin_anew(&place, json!({"number": 1, "source": source, "restore": restore})).await;
    let other = json!({"etcdCluster": {"name": "db"}, "volume": {"claim": "b", "path": "db"}});
    place.restore("other", other).await.unwrap();
    eventually("it goes on", async || {
        let status = status(&place).await;
        let says = status.reason.contains("which begins from the backup");
        says && status.phase == Some(RestorePhase::Restoring)
    })
    .await;
    place.say_that_it_ended("other-check", "Succeeded", good()).await;
    eventually("the other one waits", async || {
        let other = place.api::<EtcdRestore>().get("other").await.unwrap().status.unwrap_or_default();
        other.phase == Some(RestorePhase::Waiting)
            && other.reason.contains("another EtcdRestore is under way")
    })
    .await;
    operating.stop().await;
}

/// Until the data that is there is given up, its owner can think better of it. After that there is no way back.
#[rstest]
#[case::before_it_began(false)]
#[case::after_it_began(true)]
#[tokio::test]
async fn a_restore_that_is_deleted_before_it_began_is_called_off(#[case] has_begun: bool) {
    let place = Place::new("restore-called-off").await;
    cluster_with_data(&place, "3.6.16").await;
    let operating = begun(&place, json!({"inPlace": true})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("the cluster is asked", async || asked(&place).await.is_some()).await;
    eventually("it says how to call it off", async || {
        status(&place).await.reason.contains("until then deleting this EtcdRestore calls it off")
    })
    .await;
    if has_begun {
        let restore = json!({"uid": asked(&place).await.unwrap().uid, "revision": 42});
        let place_of_it = json!({"volume": {"claim": "b", "path": "db"}});
        let source = json!({"backup": {"place": place_of_it, "sha256": "ab", "movesRevisions": true}});
        let incarnation = json!({"number": 1, "source": source, "restore": restore}).to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {INCARNATION: incarnation}}}));
        place.api::<EtcdCluster>().patch("db", &PatchParams::default(), &patch).await.unwrap();
        eventually("it cannot be called off any more", async || {
            let restore = place.api::<EtcdRestore>().get("back").await.unwrap();
            restore.finalizers().is_empty()
        })
        .await;
    }
    place.api::<EtcdRestore>().delete("back", &DeleteParams::default()).await.unwrap();
    eventually("it is gone", async || place.names_of::<EtcdRestore>().await.is_empty()).await;
    assert_eq!(asked(&place).await.is_some(), has_begun);
    operating.stop().await;
}

/// A leader to whom it comes late that the one before it asked the cluster.
#[rstest]
#[case::calls_off_what_is_deleted(true)]
#[case::goes_on_with_what_is_not(false)]
#[tokio::test]
async fn whoever_hears_late_that_the_cluster_was_asked(#[case] is_deleted: bool) {
    let place = Place::new("restore-late").await;
    cluster_with_data(&place, "3.6.16").await;
    let is_late = |target: &str| target.contains("/etcdclusters") && target.contains("watch=true");
    let late = Fault::Watch(WatchFault::Late(Duration::from_secs(3600)));
    let rule = move |_: &str, target: &str| if is_late(target) { late.clone() } else { Fault::None };
    let (operating, _proxy) = place.start_disturbed(Scope::OwnNamespace, rule).await;
    eventually("the operator has nothing more to say of the cluster", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap();
        status.conditions.iter().any(|known| known.reason == "Paused")
    })
    .await;
    let mut restore = manifest(
        "EtcdRestore",
        "back",
        json!({"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "b", "path": "db"}}),
    );
    // Until the one before it has done its part it is that one's.
    restore["metadata"]["annotations"] = json!({SCOPE: "clusterwide"});
    restore["metadata"]["finalizers"] = json!(["etcd.database.coreos.com/restore-is-called-off"]);
    let uid = place.apply::<EtcdRestore>(restore).await.unwrap().uid();
    let request = json!({
        "name": "back", "uid": uid, "place": {"volume": {"claim": "b", "path": "db"}}, "sha256": "ab",
        "revision": 42, "inPlace": true,
    });
    let asks = Patch::Merge(json!({"metadata": {"annotations": {RESTORE: request.to_string()}}}));
    let cluster = place.api::<EtcdCluster>().patch("db", &PatchParams::default(), &asks).await.unwrap();
    let backup = json!({"size": 4096, "sha256": "ab", "revision": 42, "etcdVersion": "3.6.16"});
    let told = json!({"phase": "Restoring", "backup": backup, "clusterUID": cluster.uid()});
    let (restores, told) = (place.api::<EtcdRestore>(), Patch::Merge(json!({"status": told})));
    restores.patch_status("back", &PatchParams::default(), &told).await.unwrap();
    if is_deleted {
        restores.delete("back", &DeleteParams::default()).await.unwrap();
        eventually("it is gone", async || place.names_of::<EtcdRestore>().await.is_empty()).await;
    } else {
        let ours = Patch::Merge(json!({"metadata": {"annotations": {SCOPE: null}}}));
        restores.patch("back", &PatchParams::default(), &ours).await.unwrap();
        eventually("it goes on", async || {
            let restore = restores.get("back").await.unwrap();
            assert_eq!(restore.finalizers().len(), 1, "it can be called off");
            restore.status.unwrap().reason.contains("until then deleting this EtcdRestore calls it off")
        })
        .await;
    }
    assert_eq!(asked(&place).await.is_some(), !is_deleted);
    operating.stop().await;
}

/// Two operators believe to lead, and what one has decided on comes after the other has called it off.
#[tokio::test]
async fn a_request_that_comes_after_it_was_called_off_changes_nothing() {
    let place = Place::new("restore-overtaken").await;
    cluster_with_data(&place, "3.6.16").await;
    let is_asking = |method: &str, target: &str| method == "PATCH" && target.contains("/etcdclusters/db?");
    let asks = Arc::new(AtomicBool::new(false));
    let rule = {
        let asks = asks.clone();
        move |method: &str, target: &str| match is_asking(method, target) {
            true if !asks.swap(true, Ordering::Relaxed) => Fault::Delay(Duration::from_secs(8)),
            _ => Fault::None,
        }
    };
    let (slow, proxy) = place.start_disturbed(Scope::OwnNamespace, rule).await;
    let spec =
        json!({"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "b", "path": "db"}});
    place.restore("back", spec).await.unwrap();
    eventually("a pod verifies the backup", async || place.names_of::<Pod>().await == ["back-check"]).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("one is about to ask", async || asks.load(Ordering::Relaxed)).await;
    place.api::<EtcdRestore>().delete("back", &DeleteParams::default()).await.unwrap();
    let other = place.start(Scope::OwnNamespace).await;
    eventually("it is gone", async || place.names_of::<EtcdRestore>().await.is_empty()).await;
    eventually("the request was answered", async || {
        let under_way = proxy.under_way();
        !under_way.iter().any(|request| request.starts_with("PATCH") && request.contains("/etcdclusters/db?"))
    })
    .await;
    assert_eq!(asked(&place).await, None);
    slow.stop().await;
    other.stop().await;
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

/// A cluster that has nothing is asked for good: where its backup is not there any more, only another restore leads on.
#[rstest]
#[case::deleted(true)]
#[case::refused(false)]
#[tokio::test]
async fn a_restore_waits_for_none_that_was(#[case] is_deleted: bool) {
    let place = Place::new("restore-instead").await;
    place.cluster("db", json!({"size": 1, "paused": true})).await.unwrap();
    let operating = begun(&place, json!({})).await;
    place.say_that_it_ended("back-check", "Succeeded", good()).await;
    eventually("the cluster is asked", async || asked(&place).await.is_some()).await;
    let other =
        json!({"etcdCluster": {"name": "db"}, "inPlace": true, "volume": {"claim": "b", "path": "other"}});
    place.restore("other", other).await.unwrap();
    eventually("a pod verifies it, too", async || {
        place.names_of::<Pod>().await.contains(&"other-check".to_owned())
    })
    .await;
    place.say_that_it_ended("other-check", "Succeeded", good()).await;
    eventually("the other one waits, and says for what", async || {
        let other = place.api::<EtcdRestore>().get("other").await.unwrap().status.unwrap_or_default();
        other.reason.contains("goes on when that has ended, or was deleted")
    })
    .await;
    let restores = place.api::<EtcdRestore>();
    if is_deleted {
        restores.delete("back", &DeleteParams::default()).await.unwrap();
    } else {
        let refused = Patch::Merge(json!({"status": {"phase": "Refused", "reason": "it has data"}}));
        restores.patch_status("back", &PatchParams::default(), &refused).await.unwrap();
    }
    eventually("the other one goes on", async || asked(&place).await.unwrap().name == "other").await;
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
