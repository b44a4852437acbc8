//! The verbs that explain, run as people run them.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::place::{Place, eventually};

fn run(kubeconfig: &Path, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gordon-operator"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_writes_nothing_and_is_what_is_then_done() {
    let place = Place::new("plan").await;
    let identity = place.identity("gordon").await;
    let operating = place.start(identity.config()).await;
    place.create(2).await;
    eventually("two are there", async || place.live_pods().await == ["g-0", "g-1"]).await;
    operating.stop().await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gordon.yaml");
    let wanted = json!({
        "apiVersion": "operator.prgcont.cz/v1",
        "kind": "Gordon",
        "metadata": {"name": "g", "namespace": place.namespace.name()},
        "spec": {"gordon": {"replicas": 4}},
    });
    std::fs::write(&file, wanted.to_string()).unwrap();
    let kubeconfig = identity.kubeconfig().unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let namespace = place.namespace.name();
    let plan = ["plan", "-f", file.to_str().unwrap(), "--namespace", namespace];
    let (went_well, told, error) = run(&kubeconfig, &plan);
    assert!(went_well, "{error}");
    assert!(told.contains("1. create Pod g-2: Deploying 4 replicas of gordon"), "{told}");
    let (_, as_json, _) = run(&kubeconfig, &[&plan[..], &["--json"]].concat());
    let as_json: Value = serde_json::from_str(&as_json).unwrap();
    let writes = place.namespace.requests_since(&mark).await.unwrap().writes();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(place.live_pods().await.len(), 2);

    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(identity.config()).await;
    place.scale(4).await;
    eventually("four are there", async || place.live_pods().await.len() == 4).await;
    eventually("the status says so", async || {
        place.gordons().get("g").await.unwrap().status.is_some_and(|status| status.replicas == 4)
    })
    .await;
    let done = identity.requests_since(&mark).await.unwrap().writes();
    let pods: Vec<_> = done.iter().filter(|write| write.resource == "pods").collect();
    assert!(pods.iter().all(|write| write.verb == "create" && write.code == 201), "{done:?}");
    let would = ["create Pod g-2", "create Pod g-3", "write the status"];
    assert_eq!(as_json[0]["would"], json!(would));
    assert_eq!(pods.len(), 2, "the plan is what was then done");
    operating.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_resource_can_be_planned_before_it_is_there() {
    let place = Place::new("plan-new").await;
    let kubeconfig = place.identity("gordon").await.kubeconfig().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.yaml");
    let sample = include_str!("../../samples/gordon.yaml");
    std::fs::write(&file, sample).unwrap();
    let arguments = ["plan", "-f", file.to_str().unwrap(), "--namespace", place.namespace.name()];
    let (went_well, told, error) = run(&kubeconfig, &arguments);
    assert!(went_well, "{error}");
    assert!(told.contains("-0: Deploying") && told.contains("what would change something"), "{told}");

    std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n").unwrap();
    let (went_well, _, error) = run(&kubeconfig, &arguments);
    assert!(!went_well);
    assert_eq!(error, "error: Pod is no kind of this operator's: it has Gordon\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_replays_to_the_same_plan_without_a_cluster() {
    let place = Place::new("record").await;
    let identity = place.identity("gordon").await;
    let operating = place.start(identity.config()).await;
    place.create(2).await;
    eventually("two are there", async || place.live_pods().await.len() == 2).await;
    operating.stop().await;
    place.scale(1).await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("incident.json");
    let path = file.to_str().unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let kubeconfig = identity.kubeconfig().unwrap();
    let (went_well, _, error) = run(&kubeconfig, &["record", "g", "-n", place.namespace.name(), "-o", path]);
    assert!(went_well, "{error}");
    let writes = place.namespace.requests_since(&mark).await.unwrap().writes();
    assert!(writes.is_empty(), "{writes:?}");

    let nowhere = Path::new("/nowhere/kubeconfig");
    let (went_well, told, error) = run(nowhere, &["replay", path]);
    assert!(went_well, "{error}");
    assert!(told.contains("the plan is as it was recorded") && told.contains("delete Pod g-1"), "{told}");

    let mut recording: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    recording["observation"]["gordon"]["spec"]["gordon"]["replicas"] = json!(3);
    std::fs::write(&file, recording.to_string()).unwrap();
    let (went_well, _, error) = run(nowhere, &["replay", path]);
    assert!(!went_well);
    assert!(error.contains("the plan is not what was recorded") && error.contains("create"), "{error}");

    let (went_well, _, error) = run(&kubeconfig, &["record", "missing", "-n", place.namespace.name()]);
    assert!(!went_well);
    assert!(error.contains("there is none"), "{error}");
}
