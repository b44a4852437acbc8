//! Backups, as far as they get without nodes: what is refused, which pods are made, and what becomes of what
//! they say.

use etcd_operator::{
    Scope,
    api::{
        EtcdCluster,
        backup::{EtcdBackup, EtcdBackupStatus, Stage},
    },
};
use k8s_openapi::api::{
    core::v1::{Pod, ServiceAccount},
    rbac::v1::Role,
};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    admission::refusal,
    place::{Place, eventually},
};

/// The original's, but for the version.
#[rstest]
#[case::once(json!({"etcdEndpoints": ["http://example-etcd-cluster-client:2379"], "storageType": "S3", "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}))]
#[case::with_tls(json!({"etcdEndpoints": ["https://example-client:2379"], "storageType": "S3", "clientTLSSecret": "etcd-client-tls", "s3": {"path": "mybucket/a/b/etcd.backup", "awsSecret": "aws", "endpoint": "https://s3.example.com", "forcePathStyle": true}}))]
#[case::periodic(json!({"etcdEndpoints": ["http://e:2379"], "storageType": "S3", "backupPolicy": {"backupIntervalInSecond": 125, "maxBackups": 4, "timeoutInSecond": 60}, "s3": {"path": "mybucket/etcd.backup", "awsSecret": "aws"}}))]
#[case::of_a_cluster(json!({"cluster": "db", "volume": {"claim": "backups", "path": "db"}}))]
#[case::scheduled(json!({"cluster": "db", "schedule": "0 3 * * *", "retention": {"keepLast": 7, "keepForSeconds": 604_800}, "volume": {"claim": "backups", "path": "nightly/db"}}))]
#[tokio::test]
async fn manifests_of_the_original_and_new_ones_are_understood(#[case] spec: Value) {
    Place::new("backup-original").await.backup("example", spec).await.unwrap();
}

#[rstest]
#[case::nowhere(json!({"cluster": "db"}), "say where backups go")]
#[case::to_two_places(json!({"cluster": "db", "volume": {"claim": "b", "path": "db"}, "s3": {"path": "bucket/db", "awsSecret": "a"}}), "say where backups go")]
#[case::of_nothing(json!({"volume": {"claim": "b", "path": "db"}}), "say what to back up")]
#[case::of_two(json!({"cluster": "db", "etcdEndpoints": ["http://a:2379"], "volume": {"claim": "b", "path": "db"}}), "say what to back up")]
#[case::another_storage(json!({"cluster": "db", "storageType": "S3", "volume": {"claim": "b", "path": "db"}}), "storageType S3 goes with s3")]
#[case::abs(json!({"cluster": "db", "storageType": "ABS", "volume": {"claim": "b", "path": "db"}}), "Unsupported value")]
#[case::two_schedules(json!({"cluster": "db", "schedule": "@daily", "backupPolicy": {"backupIntervalInSecond": 9}, "volume": {"claim": "b", "path": "db"}}), "either schedule or")]
#[case::no_cron(json!({"cluster": "db", "schedule": "every night", "volume": {"claim": "b", "path": "db"}}), "write it as cron does")]
#[case::two_retentions(json!({"cluster": "db", "retention": {"keepLast": 3}, "backupPolicy": {"maxBackups": 3}, "volume": {"claim": "b", "path": "db"}}), "either retention or backupPolicy.maxBackups")]
#[case::nothing_is_kept(json!({"cluster": "db", "retention": {"keepLast": 0}, "volume": {"claim": "b", "path": "db"}}), "keepLast")]
#[case::kept_for_a_moment(json!({"cluster": "db", "retention": {"keepForSeconds": 5}, "volume": {"claim": "b", "path": "db"}}), "keepForSeconds")]
#[case::odd_endpoint(json!({"etcdEndpoints": ["etcd:2379"], "volume": {"claim": "b", "path": "db"}}), "etcdEndpoints")]
#[case::without_credentials(json!({"cluster": "db", "s3": {"path": "bucket/db"}}), "awsSecret")]
#[case::no_bucket(json!({"cluster": "db", "s3": {"path": "bucket", "awsSecret": "a"}}), "spec.s3.path")]
#[case::out_of_the_volume(json!({"cluster": "db", "volume": {"claim": "b", "path": "../../etc/passwd"}}), "spec.volume.path")]
#[tokio::test]
async fn bad_input_is_refused_in_words_that_help(#[case] spec: Value, #[case] words: &str) {
    let said = refusal(Place::new("backup-bad").await.backup("example", spec).await);
    assert!(said.contains(words), "{said}");
}

/// What a pod of a backup is told, and what it has mounted.
#[tokio::test]
async fn a_backup_of_any_etcd_is_taken_as_its_spec_says() {
    let place = Place::new("backup-spec").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let s3 = json!({
        "path": "bucket/etcd/db", "awsSecret": "aws", "endpoint": "https://s3:9000", "region": "eu-west-1",
        "forcePathStyle": true, "caSecret": "authorities",
    });
    let spec = json!({
        "etcdEndpoints": ["https://a:2379", "https://b:2379"], "clientTLSSecret": "client", "storageType": "S3",
        "backupPolicy": {"timeoutInSecond": 77}, "s3": s3,
    });
    place.backup("any", spec).await.unwrap();
    eventually("its pod is there", async || place.names_of::<Pod>().await.len() == 1).await;
    let pod = place.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    let spec = serde_json::to_value(pod.spec).unwrap();
    assert_eq!(spec["activeDeadlineSeconds"], 77);
    let environment = spec["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| environment.iter().find(|one| one["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("ENDPOINTS"), "https://a:2379,https://b:2379");
    assert_eq!(serde_json::from_str::<Value>(value("PLACE").as_str().unwrap()).unwrap(), json!({"s3": s3}));
    let volumes = spec["volumes"].as_array().unwrap();
    let secrets: Vec<_> = volumes.iter().filter_map(|one| one["secret"]["secretName"].as_str()).collect();
    assert_eq!(secrets, ["aws", "authorities", "client"]);
    operating.stop().await;
}

/// Nobody has to say which Secret members know their clients by.
#[tokio::test]
async fn a_backup_of_a_cluster_that_speaks_tls_shows_the_clusters_own_certificate() {
    let place = Place::new("backup-tls").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1, "paused": true, "TLS": {"automatic": {}}})).await.unwrap();
    let ready = Patch::Merge(json!({"status": {"members": {"ready": ["db-0"]}}}));
    place.api::<EtcdCluster>().patch_status("db", &PatchParams::default(), &ready).await.unwrap();
    place.backup("a", json!({"cluster": "db", "volume": {"claim": "b", "path": "db"}})).await.unwrap();
    eventually("its pod is there", async || place.names_of::<Pod>().await.len() == 1).await;
    let pod = place.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    let text = serde_json::to_string(&pod.spec).unwrap();
    let namespace = place.namespace.name();
    assert!(text.contains(&format!("https://db-0.db.{namespace}.svc:2379")), "{text}");
    assert!(text.contains(r#""secretName":"db-client-tls""#), "{text}");
    assert!(text.contains(r#""claimName":"b""#), "{text}");
    operating.stop().await;
}

fn nightly(path: &str) -> Value {
    json!({"etcdEndpoints": ["http://e:2379"], "schedule": "0 3 * * *", "volume": {"claim": "b", "path": path}})
}

#[tokio::test]
async fn where_backups_are_and_what_time_it_was_does_not_change() {
    let place = Place::new("backup-moved").await;
    place.backup("a", nightly("db")).await.unwrap();
    let said = refusal(place.backup("a", nightly("elsewhere")).await);
    assert!(said.contains("make another EtcdBackup"), "{said}");
    let backups = place.api::<EtcdBackup>();
    let say = async |time: &str| {
        let patch = Patch::Merge(json!({"status": {"lastScheduled": time}}));
        backups.patch_status("a", &PatchParams::default(), &patch).await
    };
    say("2026-05-02T03:00:00Z").await.unwrap();
    let said = refusal(say("2026-05-01T03:00:00Z").await);
    assert!(said.contains("time does not go back"), "{said}");
}

async fn status(place: &Place, name: &str) -> EtcdBackupStatus {
    place.api::<EtcdBackup>().get(name).await.unwrap().status.unwrap_or_default()
}

fn is(status: &EtcdBackupStatus, kind: &str, state: &str) -> bool {
    status.conditions.iter().any(|known| known.type_ == kind && known.status == state)
}

/// What a pod says of a backup that is there.
fn good(pod: &Pod, path: &str, revision: i64) -> Value {
    let environment = pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
    let scheduled = environment.into_iter().find(|one| one.name == "SCHEDULED").unwrap().value;
    json!({
        "outcome": "Good", "path": path, "scheduled": scheduled, "at": "2026-05-02T03:00:09Z", "size": 4096, "sha256": "ab",
        "revision": revision, "etcdVersion": "3.6.16", "clusterID": "c1",
    })
}

#[tokio::test]
async fn a_backup_is_taken_once_by_a_pod_of_its_own_and_what_it_says_is_told() {
    let place = Place::new("backup-once").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let events = place.namespace.events().await.unwrap();
    place.cluster("db", json!({"size": 1, "paused": true})).await.unwrap();
    let spec = json!({"cluster": "db", "s3": {"path": "bucket/etcd/db", "awsSecret": "aws", "endpoint": "http://s3:8333", "forcePathStyle": true}});
    place.backup("once", spec).await.unwrap();
    eventually("it waits for the cluster", async || {
        let status = status(&place, "once").await;
        status.conditions.iter().any(|known| known.reason == "NoEtcd" && known.message.contains("no member"))
    })
    .await;
    let ready = Patch::Merge(json!({"status": {"members": {"ready": ["db-0", "db-1"]}}}));
    place.api::<EtcdCluster>().patch_status("db", &PatchParams::default(), &ready).await.unwrap();
    eventually("its pod is there", async || place.names_of::<Pod>().await.len() == 1).await;

    let pod = place.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    let name = pod.name_any();
    let made = place.api::<EtcdBackup>().get("once").await.unwrap().metadata.creation_timestamp.unwrap();
    assert_eq!(name, format!("once-{}", made.0.strftime("%Y%m%d%H%M%S")));
    let spec = pod.spec.clone().unwrap();
    let environment = spec.containers[0].env.clone().unwrap();
    let value = |name: &str| environment.iter().find(|one| one.name == name).unwrap().value.clone().unwrap();
    let namespace = place.namespace.name();
    assert_eq!(
        value("ENDPOINTS"),
        format!("http://db-0.db.{namespace}.svc:2379,http://db-1.db.{namespace}.svc:2379")
    );
    assert_eq!(serde_json::from_str::<Value>(&value("PLACE")).unwrap()["s3"]["path"], "bucket/etcd/db");
    assert_eq!(spec.service_account_name.as_deref(), Some("once-backup"));
    assert!(place.names_of::<ServiceAccount>().await.contains(&"once-backup".to_owned()));
    let rules = serde_json::to_value(place.api::<Role>().get("once-backup").await.unwrap().rules).unwrap();
    for (number, resource) in ["etcdbackups", "etcdbackups/status"].into_iter().enumerate() {
        assert_eq!(rules[number]["resourceNames"], json!(["once"]));
        assert_eq!(rules[number]["resources"], json!([resource]));
    }
    assert_eq!(rules.as_array().unwrap().len(), 2);

    place.say_that_it_ended(&name, "Succeeded", good(&pod, "bucket/etcd/db", 42)).await;
    eventually("it says so, and the pod is gone", async || {
        let status = status(&place, "once").await;
        status.succeeded
            && is(&status, "Ready", "True")
            && is(&status, "Failed", "False")
            && place.names_of::<Pod>().await.is_empty()
    })
    .await;
    let told = status(&place, "once").await;
    assert_eq!((told.etcd_revision, told.size, told.kept), (Some(42), Some(4096), 1));
    assert_eq!(told.last_success_date.unwrap().to_string(), "2026-05-02T03:00:09Z");
    assert_eq!((told.last_scheduled, told.next), (Some(made.0), None), "there is to be no other");
    assert_eq!(told.progress.unwrap().stage, Stage::Done);
    assert_eq!((told.reason.as_str(), told.failure), ("", None));
    assert_eq!(told.observed_generation, Some(1));
    assert_eq!((told.leaving.len(), told.unfinished.len()), (0, 0));
    assert_eq!(told.etcd_version, "3.6.16");
    assert_eq!(told.history[0].path, "bucket/etcd/db");
    let note = "Backup bucket/etcd/db: revision 42, 4096 bytes, verified";
    events.expect(wheelhouse_testing::EventType::Normal, "BackedUp", note).await.unwrap();
    operating.stop().await;
}

#[tokio::test]
async fn a_failure_is_told_and_tried_again_and_a_refusal_waits_for_another_spec() {
    let place = Place::new("backup-fails").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let spec = |endpoint: &str| json!({"etcdEndpoints": [endpoint], "volume": {"claim": "b", "path": "db"}});
    place.backup("a", spec("http://e:2379")).await.unwrap();
    let the_pod = async || place.api::<Pod>().list(&Default::default()).await.unwrap().items.pop();
    eventually("its pod is there", async || the_pod().await.is_some()).await;
    let first = the_pod().await.unwrap();
    let said = json!({"outcome": "Refused", "message": "db is there, and no EtcdBackup wrote it"});
    place.say_that_it_ended(&first.name_any(), "Failed", said).await;
    eventually("it is told", async || {
        let status = status(&place, "a").await;
        !status.succeeded && status.reason.contains("no EtcdBackup wrote it") && is(&status, "Failed", "True")
    })
    .await;
    assert_eq!(the_pod().await.unwrap().uid(), first.uid(), "it stays to be looked at");

    place.backup("a", spec("http://other:2379")).await.unwrap();
    eventually("another pod is made", async || the_pod().await.is_some_and(|pod| pod.uid() != first.uid()))
        .await;
    let second = the_pod().await.unwrap();
    assert_eq!(second.name_any(), first.name_any());
    place.say_that_it_ended(&second.name_any(), "Succeeded", good(&second, "db", 7)).await;
    eventually("it succeeds", async || is(&status(&place, "a").await, "Ready", "True")).await;
    assert!(is(&status(&place, "a").await, "Failed", "False"));
    operating.stop().await;
}

#[tokio::test]
async fn old_backups_leave_by_a_pod_and_are_forgotten_when_they_are_gone() {
    let place = Place::new("backup-retention").await;
    let mut spec = nightly("db");
    spec["retention"] = json!({"keepLast": 1});
    spec["paused"] = json!(true);
    place.backup("a", spec).await.unwrap();
    let kept = |day: u32| {
        json!({
            "path": format!("db_2026050{day}030000"), "scheduled": format!("2026-05-0{day}T03:00:00Z"),
            "at": format!("2026-05-0{day}T03:00:09Z"), "size": 1, "sha256": "ab", "revision": day,
        })
    };
    let taken = json!({"lastScheduled": "2026-05-03T03:00:00Z", "history": [kept(3), kept(2), kept(1)]});
    let patch = Patch::Merge(json!({"status": taken}));
    place.api::<EtcdBackup>().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    let operating = place.start(Scope::OwnNamespace).await;
    eventually("a pod is to remove them", async || !place.names_of::<Pod>().await.is_empty()).await;
    let pod = place.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    let arguments = pod.spec.as_ref().unwrap().containers[0].args.clone().unwrap();
    assert_eq!(arguments, ["backup", "remove", "db_20260502030000", "db_20260501030000"]);
    let said = json!({"outcome": "Removed", "paths": ["db_20260502030000", "db_20260501030000"], "left": [], "whole": []});
    place.say_that_it_ended(&pod.name_any(), "Succeeded", said).await;
    eventually("they are forgotten, and the pod is gone", async || {
        let status = status(&place, "a").await;
        status.leaving.is_empty() && status.kept == 1 && place.names_of::<Pod>().await.is_empty()
    })
    .await;
    assert_eq!(status(&place, "a").await.history[0].path, "db_20260503030000");
    operating.stop().await;
}

#[tokio::test]
async fn a_schedule_that_cron_does_not_know_is_told() {
    let place = Place::new("backup-cron").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let mut spec = nightly("db");
    spec["schedule"] = json!("61 3 * * *");
    place.backup("a", spec).await.unwrap();
    eventually("it is told", async || {
        let status = status(&place, "a").await;
        status.conditions.iter().any(|known| known.type_ == "Ready" && known.reason == "Invalid")
    })
    .await;
    operating.stop().await;
}
