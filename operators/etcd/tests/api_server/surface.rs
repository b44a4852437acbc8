//! What people type and see: names of kinds, columns, scaling; and how everything of a cluster is found.

use etcd_operator::{
    Scope,
    api::{
        EtcdCluster, EtcdMember,
        backup::{EtcdBackup, EtcdRestore},
    },
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
        policy::v1::PodDisruptionBudget,
        rbac::v1::{Role, RoleBinding},
    },
};
use kube::{
    Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::ObjectMeta,
};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::place::{Place, eventually};

#[rstest]
#[case("etcdclusters", "EtcdCluster", &["etcdclus", "etcd"])]
#[case("etcdmembers", "EtcdMember", &["etcdm"])]
#[case("etcdbackups", "EtcdBackup", &["etcdbk"])]
#[case("etcdrestores", "EtcdRestore", &["etcdrs"])]
#[tokio::test]
async fn kinds_have_short_names(#[case] plural: &str, #[case] kind: &str, #[case] short: &[&str]) {
    let place = Place::new("names-of-kinds").await;
    eventually("the API server has heard of it", async || {
        let group = place.client.list_api_group_resources("etcd.database.coreos.com/v1beta2").await;
        let all = group.map(|group| group.resources).unwrap_or_default();
        all.into_iter().any(|one| {
            one.name == plural
                && one.kind == kind
                && one.namespaced
                && one.short_names.unwrap_or_default() == short
        })
    })
    .await;
}

/// What `kubectl get` shows: the names of the columns, and the first row but for its age.
async fn shown(place: &Place, plural: &str) -> Vec<(String, Value)> {
    let namespace = place.namespace.name();
    let path = format!("/apis/etcd.database.coreos.com/v1beta2/namespaces/{namespace}/{plural}");
    let request = http::Request::get(path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = place.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter();
    let names = names.map(|column| column["name"].as_str().unwrap().to_owned());
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    names.zip(cells).filter(|(name, _)| name != "Age").collect()
}

async fn say<K>(place: &Place, name: &str, status: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"status": status}));
    place.api::<K>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

fn row(cells: &[(&str, Value)]) -> Vec<(String, Value)> {
    cells.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

#[tokio::test]
async fn columns_show_what_matters() {
    let place = Place::new("columns").await;
    place.cluster("db", json!({"size": 5})).await.unwrap();
    say::<EtcdCluster>(
        &place,
        "db",
        json!({"phase": "Running", "readyMembers": 3, "currentVersion": "3.6.16"}),
    )
    .await;
    assert_eq!(
        shown(&place, "etcdclusters").await,
        row(&[
            ("Name", json!("db")),
            ("Phase", json!("Running")),
            ("Wanted", json!(5)),
            ("Ready", json!(3)),
            ("Version", json!("3.6.16")),
        ])
    );

    let record = json!({"cluster": "db", "ordinal": 0, "intent": "Waiting"});
    place.create_record("db-0", record).await.unwrap();
    say::<EtcdMember>(&place, "db-0", json!({"began": true, "data": "Present", "memberID": "1f"})).await;
    assert_eq!(
        shown(&place, "etcdmembers").await,
        row(&[
            ("Name", json!("db-0")),
            ("Cluster", json!("db")),
            ("Intent", json!("Waiting")),
            ("Data", json!("Present")),
            ("ID", json!("1f")),
        ])
    );

    let volume = json!({"claim": "b", "path": "db"});
    place.backup("nightly", json!({"cluster": "db", "schedule": "@daily", "volume": volume})).await.unwrap();
    let status = json!({
        "succeeded": true, "progress": {"stage": "Done"}, "etcdRevision": 42, "size": 4096, "kept": 7,
        "next": "2026-05-03T00:00:00Z",
    });
    say::<EtcdBackup>(&place, "nightly", status).await;
    let backups = shown(&place, "etcdbackups").await;
    assert_eq!(
        backups.into_iter().filter(|(name, _)| name != "Last").collect::<Vec<_>>(),
        row(&[
            ("Name", json!("nightly")),
            ("Succeeded", json!(true)),
            ("Doing", json!("Done")),
            ("Revision", json!(42)),
            ("Size", json!(4096)),
            ("Kept", json!(7)),
            ("Next", json!("2026-05-03T00:00:00Z")),
        ])
    );

    place.restore("back", json!({"etcdCluster": {"name": "db"}, "volume": volume})).await.unwrap();
    let backup = json!({"size": 1, "sha256": "ab", "revision": 42});
    say::<EtcdRestore>(&place, "back", json!({"phase": "Restoring", "backup": backup})).await;
    assert_eq!(
        shown(&place, "etcdrestores").await,
        row(&[
            ("Name", json!("back")),
            ("Cluster", json!("db")),
            ("Phase", json!("Restoring")),
            ("Revision", json!(42)),
        ])
    );
}

#[tokio::test]
async fn a_cluster_is_scaled_by_its_scale() {
    let place = Place::new("scale").await;
    place.cluster("db", json!({"size": 3})).await.unwrap();
    say::<EtcdCluster>(&place, "db", json!({"size": 3, "selector": "app=etcd,etcd_cluster=db"})).await;
    let clusters = place.api::<EtcdCluster>();
    let five = Patch::Merge(json!({"spec": {"replicas": 5}}));
    clusters.patch_scale("db", &PatchParams::default(), &five).await.unwrap();
    assert_eq!(clusters.get("db").await.unwrap().spec.size, 5);
    let status = clusters.get_scale("db").await.unwrap().status.unwrap();
    assert_eq!((status.replicas, status.selector.as_deref()), (3, Some("app=etcd,etcd_cluster=db")));
    let eight = Patch::Merge(json!({"spec": {"replicas": 8}}));
    assert!(clusters.patch_scale("db", &PatchParams::default(), &eight).await.is_err(), "more than 7");
}

/// The metadata of everything of that kind that has the labels of the cluster `db`.
async fn found<K>(place: &Place) -> Vec<ObjectMeta>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let labels = ListParams::default().labels("app=etcd,etcd_cluster=db");
    let all = place.api::<K>().list(&labels).await.unwrap();
    all.items.into_iter().map(|mut object| std::mem::take(object.meta_mut())).collect()
}

/// Everything of the cluster `db`.
async fn everything(place: &Place) -> Vec<ObjectMeta> {
    [
        found::<EtcdMember>(place).await,
        found::<Pod>(place).await,
        found::<PersistentVolumeClaim>(place).await,
        found::<Service>(place).await,
        found::<ServiceAccount>(place).await,
        found::<Role>(place).await,
        found::<RoleBinding>(place).await,
        found::<PodDisruptionBudget>(place).await,
        found::<Secret>(place).await,
        found::<EtcdBackup>(place).await,
    ]
    .concat()
}

/// Nothing of a cluster belongs to the operator, or waits for it: who deletes the operator deletes nothing else, and who
/// deletes a cluster need not bring it back first.
#[tokio::test]
async fn everything_of_a_cluster_has_its_labels_belongs_to_it_and_stays_when_the_operator_goes() {
    let place = Place::new("belongs").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let backup = json!({"schedule": "@yearly", "volume": {"claim": "b", "path": "db"}});
    let spec = json!({"size": 1, "TLS": {"automatic": {}}, "backup": backup});
    place.cluster("db", spec).await.unwrap();
    let mut expected = vec![
        "db",
        "db",
        "db",
        "db-0",
        "db-0",
        "db-0",
        "db-authority",
        "db-client",
        "db-client-tls",
        "db-member",
        "db-member",
        "db-member",
        "db-peer-tls",
        "db-server-tls",
    ];
    expected.sort_unstable();
    let names = |all: &[ObjectMeta]| {
        let mut names: Vec<_> = all.iter().map(|one| one.name.clone().unwrap()).collect();
        names.sort();
        names
    };
    eventually("all of it is there", async || names(&everything(&place).await) == expected).await;
    let all = everything(&place).await;
    operating.stop().await;

    let cluster = place.api::<EtcdCluster>().get("db").await.unwrap();
    assert_eq!(cluster.finalizers(), [""; 0]);
    for one in &all {
        let owners = one.owner_references.clone().unwrap_or_default();
        assert!(owners.iter().all(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref()), "{one:?}");
        let finalizers = one.finalizers.clone().unwrap_or_default();
        assert!(finalizers.iter().all(|name| name.starts_with("kubernetes.io/")), "{one:?}");
    }
    let owned = all.iter().filter(|one| one.owner_references.is_some()).count();
    assert_eq!(owned, all.len() - 1, "all but the volume go with the cluster");
    let uids = |all: &[ObjectMeta]| all.iter().map(|one| one.uid.clone()).collect::<Vec<_>>();
    assert_eq!(uids(&everything(&place).await), uids(&all), "the operator is gone, and took nothing along");
}

#[tokio::test]
async fn backups_in_the_spec_of_a_cluster_come_and_go_with_it() {
    let place = Place::new("cluster-backup").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let backup = |schedule: &str| json!({"schedule": schedule, "retention": {"keepLast": 2}, "volume": {"claim": "b", "path": "db"}});
    let spec = |backup: Value| json!({"size": 1, "backup": backup});
    place.cluster("db", spec(backup("@yearly"))).await.unwrap();
    let schedule = async || {
        let backup = place.api::<EtcdBackup>().get_opt("db").await.unwrap()?;
        assert_eq!(backup.spec.cluster.as_deref(), Some("db"));
        assert_eq!(backup.spec.retention.and_then(|retention| retention.keep_last), Some(2));
        backup.spec.schedule
    };
    eventually("there is an EtcdBackup", async || schedule().await.as_deref() == Some("@yearly")).await;
    eventually("it says when it is due", async || {
        let backup = place.api::<EtcdBackup>().get("db").await.unwrap();
        let next = backup.status.and_then(|status| status.next);
        next.is_some_and(|next| next.to_string().ends_with("-01-01T00:00:00Z"))
    })
    .await;
    place.cluster("db", spec(backup("@monthly"))).await.unwrap();
    eventually("it follows", async || schedule().await.as_deref() == Some("@monthly")).await;
    place.cluster("db", json!({"size": 1})).await.unwrap();
    eventually("it is gone", async || schedule().await.is_none()).await;
    operating.stop().await;
}

/// Somebody else's EtcdBackup of the cluster's name is theirs. The cluster says so, and begins all the same.
#[tokio::test]
async fn an_etcdbackup_of_somebody_else_is_left_to_them_and_told() {
    let place = Place::new("others-backup").await;
    let volume = json!({"claim": "theirs", "path": "db"});
    let theirs = json!({"etcdEndpoints": ["http://e:2379"], "paused": true, "volume": volume});
    place.backup("db", theirs).await.unwrap();
    let operating = place.start(Scope::OwnNamespace).await;
    let backup = json!({"schedule": "@yearly", "volume": {"claim": "b", "path": "db"}});
    place.cluster("db", json!({"size": 1, "backup": backup})).await.unwrap();
    eventually("it is told", async || {
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        let ready = status.conditions.iter().find(|known| known.type_ == "Ready");
        ready.is_some_and(|known| known.message.contains("EtcdBackup"))
    })
    .await;
    assert_eq!(place.names_of::<Pod>().await, ["db-0"]);
    assert_eq!(place.api::<EtcdBackup>().get("db").await.unwrap().spec.volume.unwrap().claim, "theirs");
    operating.stop().await;
}
