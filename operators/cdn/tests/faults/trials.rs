//! The CDN through every trouble: a crash after every write, lost answers, stale
//! reads, two leaders. `FAULTS=all` tries every schedule; without it, every crash,
//! every lost answer and every trouble of watches.

use cdn_operator::api::{CdnCluster, CdnPurge, State};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Config, CustomResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::RunSettings;
use wheelhouse_testing::{
    ControlPlane,
    faults::{Disturbance, Scenario, Stage, Subject, Trial},
    specs::SpecTrial,
};

async fn run(config: Config, namespace: String) {
    let settings = RunSettings {
        namespaces: vec![namespace],
        no_leader_election: true,
        listen: ([127, 0, 0, 1], 0).into(),
        ..RunSettings::default()
    };
    cdn_operator::without_webhooks().run(config, settings, CancellationToken::new()).await.unwrap();
}

async fn create(stage: &Stage, name: &str, spec: Value) {
    let cluster: CdnCluster =
        serde_json::from_value(json!({"apiVersion": "cluster.anevia.com/v1", "kind": "CdnCluster", "metadata": {"name": name}, "spec": spec})).unwrap();
    stage.api::<CdnCluster>().create(&PostParams::default(), &cluster).await.unwrap();
}

async fn state(stage: &Stage, name: &str) -> Option<State> {
    stage.api::<CdnCluster>().get(name).await.unwrap().status.and_then(|status| status.state)
}

/// A pod that takes requests; here there is no kubelet to say so.
async fn pod_ready(stage: &Stage, cluster: &str) {
    let pods = stage.api::<Pod>();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": format!("{cluster}-pod"), "labels": {"cluster.anevia.com/cluster": cluster}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "nginx", "image": "nginx"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    pods.patch_status(&format!("{cluster}-pod"), &PatchParams::default(), &patch).await.unwrap();
}

fn scenario() -> Scenario {
    let balancer = || json!({"role": "balancer", "sources": [{"name": "cache", "pathCondition": "^/live/"}]});
    Scenario::new()
        .act(
            "a balancer waits for its cache",
            move |stage| async move { create(&stage, "front", balancer()).await },
            |stage| async move { state(&stage, "front").await == Some(State::WaitingSource) },
        )
        .act(
            "the cache comes",
            |stage| async move { create(&stage, "cache", json!({"role": "cache", "sources": []})).await },
            |stage| async move { state(&stage, "cache").await == Some(State::Deploying) },
        )
        .act(
            "the cache serves, and the balancer goes on",
            |stage| async move { pod_ready(&stage, "cache").await },
            |stage| async move { state(&stage, "front").await == Some(State::Deploying) },
        )
        .act(
            "something is purged",
            |stage| async move {
                // Without pods nobody has to confirm it: here there is no agent that could.
                create(&stage, "empty", json!({"role": "cache", "sources": []})).await;
                let purge: CdnPurge = serde_json::from_value(json!({
                    "apiVersion": "cluster.anevia.com/v1", "kind": "CdnPurge",
                    "metadata": {"name": "p"}, "spec": {"cluster": "empty", "prefix": "/a"},
                }))
                .unwrap();
                stage.api::<CdnPurge>().create(&PostParams::default(), &purge).await.unwrap();
            },
            |stage| async move {
                let purge = stage.api::<CdnPurge>().get("p").await.unwrap();
                purge.status.is_some_and(|status| {
                    status.number.is_some()
                        && status.conditions.iter().any(|condition| condition.status == "True")
                })
            },
        )
        .act(
            "the balancer is scaled",
            |stage| async move {
                let patch = Patch::Merge(json!({"spec": {"replicas": 4}}));
                stage
                    .api::<CdnCluster>()
                    .patch_scale("front", &PatchParams::default(), &patch)
                    .await
                    .unwrap();
            },
            |stage| async move {
                // After a failure it is told to be deploying before there is anything deployed.
                let deployment = stage.api::<Deployment>().get_opt("front-deployment").await.unwrap();
                let front = stage.api::<CdnCluster>().get("front").await.unwrap();
                deployment.is_some_and(|deployment| deployment.spec.unwrap().replicas == Some(4))
                    && front.status.unwrap().observed_generation == front.metadata.generation
            },
        )
}

async fn install() {
    let plane = ControlPlane::shared().await.unwrap();
    plane.install(&[CdnCluster::crd(), CdnPurge::crd()]).await.unwrap();
}

fn subject() -> Subject {
    Subject::new("cdn", cdn_operator::without_webhooks().rules(), run)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_schema_allows_can_be_taken_back() {
    install().await;
    let resource = json!({
        "metadata": {"name": "c"},
        "spec": {"role": "cache", "sources": [{"name": "o", "origin": {"host": "origin.example"}}]},
    });
    let report = SpecTrial::new(subject(), CdnCluster::crd(), resource).run().await.unwrap();
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.refused >= 10 && report.taken_back >= 20, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cdn_ends_up_where_it_should_whatever_happens() {
    install().await;
    let mut trial = Trial::new(subject(), scenario());
    if std::env::var("FAULTS").as_deref() != Ok("all") {
        let is_quick = |one: &Disturbance| {
            matches!(one, Disturbance::CrashAfterWrite(_) | Disturbance::Watches(_) | Disturbance::TwoLeaders)
        };
        trial = trial.pairs(0, 1).when(is_quick);
    }
    let report = trial.run().await.unwrap();
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
}
