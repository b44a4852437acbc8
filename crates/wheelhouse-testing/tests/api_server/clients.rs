//! Clients act as whom they say and under the rules given.

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Namespace, Pod, Secret},
};
use kube::{Api, Client, Config, api::PostParams, config::Kubeconfig};
use serde_json::json;
use wheelhouse_testing::{ControlPlane, rule};

fn assert_forbidden<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) {
    match outcome {
        Err(kube::Error::Api(status)) => assert_eq!(403, status.code, "{status:?}"),
        other => panic!("expected 403, got {other:?}"),
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn a_client_acts_as_its_service_account() {
    let namespace = ControlPlane::shared().await.unwrap().namespace("whoami").await.unwrap();
    let operator = namespace.service_account("operator").await.unwrap();
    let answer = whoami(operator.client().unwrap()).await;
    assert_eq!(format!("system:serviceaccount:{}:operator", namespace.name()), answer);
    assert_eq!(operator.user(), answer);
}

#[tokio::test]
async fn a_program_with_its_kubeconfig_acts_as_the_service_account() {
    let namespace = ControlPlane::shared().await.unwrap().namespace("program").await.unwrap();
    let operator = namespace.service_account("operator").await.unwrap();
    let kubeconfig = Kubeconfig::read_from(operator.kubeconfig().unwrap()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    config.proxy_url = None;
    assert_eq!(operator.user(), whoami(Client::try_from(config).unwrap()).await);
}

async fn whoami(client: Client) -> String {
    let review =
        Api::all(client).create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    review.status.unwrap().user_info.unwrap().username.unwrap()
}

#[tokio::test]
async fn a_client_under_rules_can_do_what_they_allow_and_nothing_else() {
    let control_plane = ControlPlane::shared().await.unwrap();
    let namespace = control_plane.namespace("rules").await.unwrap();
    let elsewhere = control_plane.namespace("rules-elsewhere").await.unwrap();
    let rules = vec![rule(&["create", "get"], "", &["configmaps"])];
    let client = namespace.with_rules(rules).await.unwrap().client().unwrap();

    let allowed: Api<ConfigMap> = Api::default_namespaced(client.clone());
    allowed.create(&PostParams::default(), &config_map("allowed")).await.unwrap();
    allowed.get("allowed").await.unwrap();

    assert_forbidden(allowed.list(&Default::default()).await);
    assert_forbidden(allowed.delete("allowed", &Default::default()).await.map(drop));
    assert_forbidden(Api::<Secret>::default_namespaced(client.clone()).get("any").await);
    assert_forbidden(Api::<ConfigMap>::namespaced(client, elsewhere.name()).get("any").await);
}

#[tokio::test]
async fn cluster_rules_hold_in_every_namespace_and_for_cluster_scoped_resources() {
    let control_plane = ControlPlane::shared().await.unwrap();
    let namespace = control_plane.namespace("cluster-rules").await.unwrap();
    let elsewhere = control_plane.namespace("cluster-rules-elsewhere").await.unwrap();
    let rules = vec![rule(&["get"], "", &["namespaces"]), rule(&["list"], "", &["configmaps"])];
    let client = namespace.with_cluster_rules(rules).await.unwrap().client().unwrap();

    Api::<Namespace>::all(client.clone()).get("default").await.unwrap();
    Api::<ConfigMap>::all(client.clone()).list(&Default::default()).await.unwrap();
    Api::<ConfigMap>::namespaced(client.clone(), elsewhere.name()).list(&Default::default()).await.unwrap();
    assert_forbidden(Api::<Namespace>::all(client).list(&Default::default()).await);
}

#[tokio::test]
async fn an_identity_can_be_allowed_more_and_may_at_once() {
    let namespace = ControlPlane::shared().await.unwrap().namespace("more").await.unwrap();
    // Often, since without waiting for the rules it goes well now and then.
    for round in 0..20 {
        let operator = namespace.service_account(&format!("operator-{round}")).await.unwrap();
        let config_maps: Api<ConfigMap> = Api::default_namespaced(operator.client().unwrap());
        let secrets: Api<Secret> = Api::default_namespaced(operator.client().unwrap());
        assert_forbidden(config_maps.list(&Default::default()).await);
        operator.allow(vec![rule(&["list"], "", &["configmaps"])]).await.unwrap();
        config_maps.list(&Default::default()).await.unwrap();
        // The first rule holds already, so that it says nothing about the second.
        let both = vec![rule(&["list"], "", &["configmaps"]), rule(&["list"], "", &["secrets"])];
        assert_forbidden(secrets.list(&Default::default()).await);
        operator.allow_everywhere(both).await.unwrap();
        secrets.list(&Default::default()).await.unwrap();
    }
}

#[tokio::test]
async fn pods_are_accepted_in_a_new_namespace() {
    let namespace = ControlPlane::shared().await.unwrap().namespace("pods").await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }))
    .unwrap();
    let pods = Api::default_namespaced(namespace.client().unwrap());
    let created: Pod = pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(Some("default".to_owned()), created.spec.unwrap().service_account_name);
}
