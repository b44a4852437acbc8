//! Gordon through every trouble: a crash after every write, lost answers, stale
//! reads, two leaders. `FAULTS=all` tries every schedule; without it, every crash,
//! every lost answer and every trouble of watches.

use gordon_operator::api::{Gordon, GordonSpec, Gordons};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Config, CustomResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
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
    gordon_operator::manager().run(config, settings, CancellationToken::new()).await.unwrap();
}

async fn create(stage: Stage, replicas: i32) {
    let gordon = Gordon::new("g", GordonSpec { gordon: Gordons { replicas, ..Gordons::default() } });
    stage.api::<Gordon>().create(&PostParams::default(), &gordon).await.unwrap();
}

async fn scale(stage: Stage, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    stage.api::<Gordon>().patch_scale("g", &PatchParams::default(), &patch).await.unwrap();
}

/// So many pods are there, and the status names them.
async fn has(stage: Stage, replicas: usize) -> bool {
    let pods = stage.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let status = stage.api::<Gordon>().get("g").await.unwrap().status.unwrap_or_default();
    pods.len() == replicas && status.pods.len() == replicas
}

fn scenario() -> Scenario {
    Scenario::new()
        .act("three are wanted", |stage| create(stage, 3), |stage| has(stage, 3))
        .act("four are wanted", |stage| scale(stage, 4), |stage| has(stage, 4))
        .act(
            "one is lost",
            |stage| async move {
                stage.api::<Pod>().delete("g-1", &Default::default()).await.unwrap();
            },
            |stage| has(stage, 4),
        )
        .act("two are wanted", |stage| scale(stage, 2), |stage| has(stage, 2))
}

async fn install() {
    ControlPlane::shared().await.unwrap().install(&[Gordon::crd()]).await.unwrap();
}

fn subject() -> Subject {
    Subject::new("gordon", gordon_operator::manager().rules(), run)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_schema_allows_can_be_taken_back() {
    install().await;
    let resource = json!({"metadata": {"name": "g"}, "spec": {"gordon": {"replicas": 2}}});
    let report = SpecTrial::new(subject(), Gordon::crd(), resource).run().await.unwrap();
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.refused >= 4 && report.taken_back >= 5, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gordon_ends_up_where_it_should_whatever_happens() {
    install().await;
    let mut trial = Trial::new(subject(), scenario());
    if std::env::var("FAULTS").as_deref() != Ok("all") {
        let is_quick = |one: &Disturbance| {
            matches!(
                one,
                Disturbance::CrashAfterWrite(_)
                    | Disturbance::LoseAnswerToWrite(_)
                    | Disturbance::Watches(_)
                    | Disturbance::TwoLeaders
            )
        };
        trial = trial.pairs(0, 1).when(is_quick);
    }
    let report = trial.run().await.unwrap();
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
}
