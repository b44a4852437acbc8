//! How a cluster begins, as far as it gets without nodes; and whose it is.

use etcd_operator::{
    Scope,
    api::{EtcdCluster, EtcdMember, Phase, SEED},
};
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod, Service},
    policy::v1::PodDisruptionBudget,
    rbac::v1::Role,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::place::{Place, eventually, manifest};

#[tokio::test]
async fn all_pods_are_made_at_once_and_wait_for_one_seed() {
    let place = Place::new("beginning").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 3})).await.unwrap();
    eventually("three pods are there", async || place.names_of::<Pod>().await.len() == 3).await;
    assert_eq!(place.names_of::<EtcdMember>().await, ["db-0", "db-1", "db-2"]);
    assert_eq!(place.names_of::<PersistentVolumeClaim>().await, ["db-0", "db-1", "db-2"]);
    assert_eq!(place.names_of::<Service>().await, ["db", "db-client"]);
    assert_eq!(place.names_of::<PodDisruptionBudget>().await, ["db"]);

    let cluster = place.api::<EtcdCluster>().get("db").await.unwrap();
    assert_eq!(cluster.metadata.annotations.unwrap()[SEED], "db-0");
    let pod = place.api::<Pod>().get("db-0").await.unwrap();
    let labels = pod.metadata.labels.unwrap();
    assert_eq!((labels["app"].as_str(), labels["etcd_cluster"].as_str()), ("etcd", "db"));
    let image = pod.spec.unwrap().containers[0].image.clone().unwrap();
    assert_eq!(image, "wheelhouse.dev/etcd:v3.6.16");
    let role = place.api::<Role>().get("db-member").await.unwrap();
    let rules = serde_json::to_value(role.rules).unwrap();
    assert_eq!(rules[1]["resourceNames"], json!(["db-0", "db-1", "db-2"]));

    eventually("it says that it begins", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        status.phase == Some(Phase::Creating)
            && status.service_name == "db-client"
            && status.client_port == 2379
            && status.last_ordinal == Some(2)
            && status.members.unready.len() == 3
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn volumes_stay_when_the_cluster_goes_unless_they_are_to_go() {
    let place = Place::new("volumes").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("kept", json!({"size": 1})).await.unwrap();
    place.cluster("gone", json!({"size": 1, "deletionPolicy": "Delete"})).await.unwrap();
    let owners = async |name: &str| {
        let volume = place.api::<PersistentVolumeClaim>().get_opt(name).await.unwrap();
        volume.map(|volume| volume.metadata.owner_references.unwrap_or_default().len())
    };
    eventually("one is owned and one is not", async || {
        owners("kept-0").await == Some(0) && owners("gone-0").await == Some(1)
    })
    .await;
    place.cluster("kept", json!({"size": 1, "deletionPolicy": "Delete"})).await.unwrap();
    place.cluster("gone", json!({"size": 1, "deletionPolicy": "Retain"})).await.unwrap();
    eventually("it is the other way round", async || {
        owners("kept-0").await == Some(1) && owners("gone-0").await == Some(0)
    })
    .await;
    place.cluster("kept", json!({"size": 1, "deletionPolicy": "Retain"})).await.unwrap();
    place.cluster("gone", json!({"size": 1, "deletionPolicy": "Delete"})).await.unwrap();
    eventually("and back again", async || {
        owners("kept-0").await == Some(0) && owners("gone-0").await == Some(1)
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_cluster_of_a_name_that_was_there_before_leaves_the_old_volumes_alone() {
    let place = Place::new("former").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let old = json!({
        "metadata": {"name": "db-4", "labels": {"etcd_cluster": "db", "etcd.database.coreos.com/cluster-uid": "before"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let volumes = place.api::<PersistentVolumeClaim>();
    volumes.create(&Default::default(), &serde_json::from_value(old).unwrap()).await.unwrap();
    place.cluster("db", json!({"size": 1})).await.unwrap();
    eventually("it begins with a number that nobody had", async || {
        place.names_of::<EtcdMember>().await == ["db-5"] && place.names_of::<Pod>().await == ["db-5"]
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_volume_of_somebody_else_is_left_to_them_and_told() {
    let place = Place::new("taken").await;
    let theirs = json!({
        "metadata": {"name": "db-0"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}},
    });
    let volumes = place.api::<PersistentVolumeClaim>();
    volumes.create(&Default::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1})).await.unwrap();
    eventually("it says why it does not begin", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        status
            .conditions
            .iter()
            .any(|known| known.type_ == "Ready" && known.message.contains("PersistentVolumeClaim"))
    })
    .await;
    assert_eq!(volumes.get("db-0").await.unwrap().metadata.labels, None);
    assert_eq!(place.names_of::<Pod>().await, [""; 0]);
    operating.stop().await;
}

#[tokio::test]
async fn a_record_that_somebody_deleted_never_begins_again() {
    let place = Place::new("deleted").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1})).await.unwrap();
    eventually("the pod is there", async || place.names_of::<Pod>().await == ["db-0"]).await;
    // As the supervisor says it.
    let began = json!({"status": {"began": true, "data": "Present", "clusterID": "c0", "memberID": "a0"}});
    let records = place.api::<EtcdMember>();
    records.patch_status("db-0", &PatchParams::default(), &Patch::Merge(began)).await.unwrap();
    eventually("the cluster is known", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        status.cluster_id.is_some()
    })
    .await;
    let uid = records.get("db-0").await.unwrap().metadata.uid;
    records.delete("db-0", &DeleteParams::default()).await.unwrap();
    eventually("there is a record again, of a member that exists", async || {
        let record = records.get_opt("db-0").await.unwrap();
        record.is_some_and(|record| {
            record.metadata.uid != uid && record.spec.intent == etcd_operator::api::Intent::Existing
        })
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn an_operator_looks_after_what_is_in_its_scope_and_nothing_else() {
    let place = Place::new("scope").await;
    let mut marked = manifest("EtcdCluster", "marked", json!({"size": 1}));
    marked["metadata"]["annotations"] = json!({"etcd.database.coreos.com/scope": "clusterwide"});
    place.apply::<EtcdCluster>(marked).await.unwrap();
    place.cluster("plain", json!({"size": 1})).await.unwrap();

    let wide = place.start(Scope::ClusterWide).await;
    eventually("the marked one begins", async || place.names_of::<Pod>().await == ["marked-0"]).await;
    wide.stop().await;
    let own = place.start(Scope::OwnNamespace).await;
    eventually("the plain one begins, too", async || {
        place.names_of::<Pod>().await == ["marked-0", "plain-0"]
    })
    .await;
    own.stop().await;
}

#[tokio::test]
async fn whoever_is_paused_is_left_alone_and_says_so() {
    let place = Place::new("paused").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1, "paused": true})).await.unwrap();
    eventually("it says so", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        status.conditions.iter().any(|known| known.type_ == "Ready" && known.reason == "Paused")
    })
    .await;
    assert_eq!(place.names_of::<Pod>().await, [""; 0]);
    operating.stop().await;
}
