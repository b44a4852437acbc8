//! {{ api.kind }} on a real API server.

use {{ crate_name }}::{
    manager,
    {{ api.module }}::api::{{ api.kind }},
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;
use wheelhouse_testing::{EventType, Place, eventually};

const IMAGE: &str = "wheelhouse.dev/nginx:0.1.0";

/// The operator at work in a namespace of its own.
async fn place(purpose: &str) -> Place {
    Place::with(purpose, &manager()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_made_and_kept() {
    let place = place("{{ api.short }}-made").await;
    let events = {{ "place.cluster_events()" if api.cluster_scoped else "place.namespace().events()" }}.await.unwrap();
    let operating = place.start(manager()).await.unwrap();
    let spec = json!({"replicas": 2, "image": IMAGE{% if api.cluster_scoped %}, "namespace": place.namespace().name(){% endif %}});
    place.apply::<{{ api.kind }}>("{{ api.sample_name }}", spec).await.unwrap();

    let deployments: Api<Deployment> = place.api();
    let replicas = async || deployments.get_opt("{{ api.sample_name }}").await.unwrap().and_then(|made| made.spec?.replicas);
    eventually("the Deployment is there", async || replicas().await == Some(2)).await;
    let message = "Creating Deployment {{ api.sample_name }}";
    events.expect(EventType::Normal, "Creating", message).await.unwrap();

    // Somebody changes what is not theirs: it is put back.
    deployments.delete("{{ api.sample_name }}", &Default::default()).await.unwrap();
    eventually("the Deployment is there again", async || replicas().await == Some(2)).await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_says_what_it_waits_for() {
    let place = place("{{ api.short }}-status").await;
    let operating = place.start(manager()).await.unwrap();
    let spec = json!({"replicas": 1, "image": IMAGE{% if api.cluster_scoped %}, "namespace": place.namespace().name(){% endif %}});
    place.apply::<{{ api.kind }}>("{{ api.sample_name }}", spec).await.unwrap();
    let resources: Api<{{ api.kind }}> = {{ "Api::all(place.client())" if api.cluster_scoped else "place.api()" }};
    eventually("the status is there", async || {
        let status = resources.get("{{ api.sample_name }}").await.unwrap().status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        status.observed_generation == Some(1)
            && ready.is_some_and(|ready| ready.reason == "Deploying" && ready.message == "0 of 1 pods are ready")
    })
    .await;
    operating.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let place = place("{{ api.short }}-refused").await;
    for spec in [json!({"image": ""}), json!({"replicas": -1, "image": IMAGE}), json!({})] {
        let refused = place.apply::<{{ api.kind }}>("{{ api.sample_name }}", spec.clone()).await;
        assert!(refused.is_err(), "{spec} was taken");
    }
{%- if api.cluster_scoped %}
    let spec = |namespace: &str| json!({"image": IMAGE, "namespace": namespace});
    place.apply::<{{ api.kind }}>("{{ api.sample_name }}", spec("default")).await.unwrap();
    let moved = place.apply::<{{ api.kind }}>("{{ api.sample_name }}", spec("kube-system")).await;
    assert!(moved.unwrap_err().to_string().contains("cannot move to another namespace"));
{%- endif %}
}
