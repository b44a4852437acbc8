//! The keys that a real controller reconciles arrive at its test.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::PostParams,
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;
use wheelhouse_testing::{ControlPlane, Error, reconciled_keys};

const SOON: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refused;

async fn reconcile(object: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Refused> {
    match object.metadata.name.as_deref() {
        Some("broken") => Err(Refused),
        _ => Ok(Action::await_change()),
    }
}

#[tokio::test]
async fn each_reconciled_key_arrives_also_of_a_reconcile_that_failed() {
    let namespace = ControlPlane::shared().await.unwrap().namespace("reconciled").await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(namespace.client().unwrap());
    let (recorder, mut keys) = reconciled_keys();
    let controller = Controller::new(api.clone(), watcher::Config::default()).run(
        recorder.wrap(reconcile),
        |_, _, _| Action::await_change(),
        Arc::new(()),
    );
    let controller = tokio::spawn(controller.for_each(|_| std::future::ready(())));

    for name in ["fine", "broken"] {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        assert_eq!(format!("{}/{name}", namespace.name()), keys.next_key(SOON).await.unwrap());
    }
    let nothing = keys.next_key(Duration::from_millis(300)).await;
    assert!(matches!(nothing, Err(Error::NothingReconciled { .. })), "{nothing:?}");

    controller.abort();
    assert_eq!(None, keys.next().await);
}
