//! The program, run against a real API server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::process::Command;

use cdn_operator::api::{CdnCluster, Role};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, CustomResourceExt as _,
    api::{ListParams, PostParams},
};
use wheelhouse_testing::{ControlPlane, eventually, rule};

#[tokio::test]
async fn it_creates_a_config_map_and_a_cluster() {
    let plane = ControlPlane::shared().await.unwrap();
    let client = plane.client().unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &CdnCluster::crd()).await.unwrap();
    eventually("the CRD is served", async || {
        Api::<CdnCluster>::all(client.clone()).list(&ListParams::default()).await.is_ok()
    })
    .await;
    let namespace = plane.namespace("client").await.unwrap();
    let rules = vec![
        rule(&["create"], "", &["configmaps"]),
        rule(&["create"], "cluster.anevia.com", &["cdnclusters"]),
    ];
    let identity = namespace.with_rules(rules).await.unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_example-client"))
        .env("KUBECONFIG", identity.kubeconfig().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let client = namespace.client().unwrap();
    Api::<ConfigMap>::default_namespaced(client.clone()).get("cmap").await.unwrap();
    let cluster = Api::<CdnCluster>::default_namespaced(client).get("cdn").await.unwrap();
    assert_eq!((cluster.spec.role, cluster.spec.sources.len()), (Role::Balancer, 0));
}
