//! The etcd operator through every trouble: a crash after every write, lost answers, stale reads, two
//! leaders; with simulated members. `FAULTS=all` tries every schedule, which takes most of an hour; without it, every
//! trouble of watches, and two leaders.

use std::sync::Arc;

use crate::simulation::Played;
use etcd_operator::{
    EtcdClusters, Scope,
    api::{
        EtcdCluster, EtcdMember,
        backup::{EtcdBackup, EtcdRestore},
    },
    simulation::Simulated,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Config, CustomResourceExt as _, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::RunSettings;
use wheelhouse_testing::{
    ControlPlane,
    faults::{Difference, Disturbance, Finding, Scenario, Stage, Subject, Symptom, Trial},
    specs::SpecTrial,
};

fn operator(namespace: &str) -> EtcdClusters {
    let dialer = Arc::new(Simulated(Played::of(namespace).members.clone()));
    EtcdClusters { dialer, ..EtcdClusters::from_environment(Scope::OwnNamespace) }
}

async fn run(config: Config, namespace: String) {
    let manager = etcd_operator::manager_of(operator(&namespace));
    let settings = RunSettings {
        namespaces: vec![namespace],
        no_leader_election: true,
        listen: ([127, 0, 0, 1], 0).into(),
        ..RunSettings::default()
    };
    manager.run(config, settings, CancellationToken::new()).await.unwrap();
}

fn subject() -> Subject {
    Subject::new("etcd", etcd_operator::manager(Scope::OwnNamespace).rules(), run)
}

async fn install() {
    let plane = ControlPlane::shared().await.unwrap();
    let crds = [EtcdCluster::crd(), EtcdMember::crd(), EtcdBackup::crd(), EtcdRestore::crd()];
    plane.install(&crds).await.unwrap();
}

/// Whether these are the members, all is said to be ready, and nothing is left of others.
async fn is_ready(stage: &Stage, members: &[&str]) -> bool {
    let played = Played::of(stage.namespace());
    played.step(stage).await;
    // What costs least is looked at first: everybody asks the same API server all the time.
    if played.members.names() != members {
        return false;
    }
    let cluster = stage.api::<EtcdCluster>().get("db").await.unwrap();
    let status = cluster.status.unwrap_or_default();
    let ready = status.conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True");
    let is_said =
        status.observed_generation == cluster.metadata.generation && status.members.ready == members;
    if !ready || !is_said {
        return false;
    }
    let all = Default::default();
    let there = [
        stage.api::<Pod>().list(&all).await.unwrap().items.len(),
        stage.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items.len(),
        stage.api::<EtcdMember>().list(&all).await.unwrap().items.len(),
    ];
    there == [members.len(); 3]
}

async fn resize(stage: Stage, size: i32) {
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    stage.api::<EtcdCluster>().patch("db", &PatchParams::default(), &patch).await.unwrap();
}

fn scenario() -> Scenario {
    Scenario::new()
        .act(
            "a cluster of two begins",
            |stage| async move {
                let cluster = EtcdCluster::new("db", serde_json::from_value(json!({"size": 2})).unwrap());
                stage.api::<EtcdCluster>().create(&PostParams::default(), &cluster).await.unwrap();
            },
            |stage| async move { is_ready(&stage, &["db-0", "db-1"]).await },
        )
        .act(
            "three are wanted",
            |stage| resize(stage, 3),
            |stage| async move { is_ready(&stage, &["db-0", "db-1", "db-2"]).await },
        )
        .act(
            "one loses its data",
            |stage| async move { Played::of(stage.namespace()).members.wipe("db-1") },
            |stage| async move { is_ready(&stage, &["db-0", "db-2", "db-3"]).await },
        )
        .act(
            "a pod is deleted",
            |stage| async move { drop(stage.api::<Pod>().delete("db-2", &Default::default()).await) },
            |stage| async move { is_ready(&stage, &["db-0", "db-2", "db-3"]).await },
        )
        .act(
            "one is wanted",
            |stage| resize(stage, 1),
            |stage| async move { is_ready(&stage, &["db-0"]).await },
        )
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_ends_up_where_it_should_whatever_happens() {
    install().await;
    let mut trial = Trial::new(subject(), scenario());
    if std::env::var("FAULTS").as_deref() != Ok("all") {
        let is_quick = |one: &Disturbance| matches!(one, Disturbance::Watches(_) | Disturbance::TwoLeaders);
        trial = trial.pairs(0, 1).when(is_quick);
    }
    let report = trial.run().await.unwrap();
    println!("{report}");
    assert!(report.findings.iter().all(is_a_member_too_many), "{report}");
}

/// Of two leaders one may not have heard of the last record yet, and make another member, which goes again. All that may be left of it
/// is that its number is used; and nothing may be deleted but what was its own.
fn is_a_member_too_many(finding: &Finding) -> bool {
    let is_its_number = |difference: &Difference| match difference {
        Difference::Changed(path, is, should) => {
            path == "EtcdCluster db/status/lastOrdinal" && is == "4" && should == "3"
        }
        _ => false,
    };
    finding.schedule.0.contains(&Disturbance::TwoLeaders)
        && finding.symptom == Symptom::EndsElsewhere
        && finding.differences.iter().all(is_its_number)
        && finding.deleted.iter().all(|object| object.ends_with(" db-4"))
}

/// As the controller of volumes does once nobody uses one that is to go.
async fn release_volumes() {
    let client = ControlPlane::shared().await.unwrap().client().unwrap();
    loop {
        let all = Api::<PersistentVolumeClaim>::all(client.clone()).list(&Default::default()).await.unwrap();
        for volume in all.items.iter().filter(|volume| volume.metadata.deletion_timestamp.is_some()) {
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(client.clone(), &volume.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
            let _ = claims.patch(&volume.name_any(), &PatchParams::default(), &patch).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_schema_allows_can_be_taken_back() {
    install().await;
    let releasing = tokio::spawn(release_volumes());
    // Nothing begins here, and nobody is given up for that however long the trial takes.
    let recovery = json!({"replaceAfterSeconds": 604_800});
    let resource = json!({"metadata": {"name": "db"}, "spec": {"size": 1, "recovery": recovery}});
    let report = SpecTrial::new(subject(), EtcdCluster::crd(), resource).run().await.unwrap();
    releasing.abort();
    println!("{report}");
    // The numbers of members are never used again: that one cannot be taken back.
    let only_the_number =
        |problem: &str| problem.contains("/status/lastOrdinal is") && !problem.contains("; ");
    assert!(report.findings.iter().all(|finding| only_the_number(&finding.problem)), "{report}");
    assert!(report.refused >= 4 && report.taken_back >= 5, "{report}");
}
