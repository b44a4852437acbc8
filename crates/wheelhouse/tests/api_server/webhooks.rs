//! Webhooks that look after themselves: validating, defaulting and conversion on a
//! live API server, while certificates are replaced.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use wheelhouse::{
    Manager, Webhooks,
    certificates::Validity,
    k8s_openapi::{
        api::core::v1::Secret,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        Api, Client, CustomResource,
        api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
        core::{ApiResource, GroupVersionKind},
    },
    manager::RunSettings,
    schemars::{self, JsonSchema},
};

use wheelhouse_testing::{Identity, free_address};

use super::widgets::{Operating, Place, eventually};

const GROUP: &str = "webhooks.wheelhouse.dev";

/// The newer version, which is what is stored.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "webhooks.wheelhouse.dev", version = "v2", kind = "Gizmo", namespaced)]
#[kube(crates(
    kube_core = "::wheelhouse::kube::core",
    k8s_openapi = "::wheelhouse::k8s_openapi",
    schemars = "::wheelhouse::schemars",
    serde = "::serde",
    serde_json = "::serde_json"
))]
struct GizmoSpec {
    dimensions: Dimensions,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct Dimensions {
    size: i64,
    colour: Option<String>,
}

fn crd() -> CustomResourceDefinition {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}},
        })
    };
    let flat = version("v1", false, json!({"size": {"type": "integer"}}));
    let dimensions =
        json!({"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}});
    let nested = version("v2", true, json!({"dimensions": dimensions}));
    serde_json::from_value(json!({
        "metadata": {"name": format!("gizmos.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [flat, nested],
            "names": {"kind": "Gizmo", "plural": "gizmos", "singular": "gizmo"},
        },
    }))
    .unwrap()
}

/// From `size` to `dimensions.size` and back; the colour, which v1 does not have, is
/// kept in an annotation.
fn convert(mut object: Value, wanted: &str) -> Result<Value, String> {
    let spec = object["spec"].take();
    let version = wanted.rsplit('/').next().unwrap_or_default();
    object["spec"] = match version {
        "v1" => {
            if let Some(colour) = spec.pointer("/dimensions/colour") {
                object["metadata"]["annotations"]["colour"] = colour.clone();
            }
            json!({"size": spec["dimensions"]["size"]})
        }
        "v2" => {
            let mut dimensions = json!({"size": spec["size"]});
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut()
                && let Some(colour) = annotations.remove("colour")
            {
                dimensions["colour"] = colour;
            }
            json!({"dimensions": dimensions})
        }
        other => return Err(format!("there is no {other}")),
    };
    Ok(object)
}

fn webhooks() -> Webhooks {
    Webhooks::new()
        .converts(format!("gizmos.{GROUP}"), convert)
        .validates::<Gizmo>(|request| {
            let colour = request.object.as_ref().and_then(|gizmo| gizmo.spec.dimensions.colour.as_deref());
            match (request.operation.as_str(), colour) {
                ("CREATE" | "UPDATE", Some("green")) => Err("nothing is green".to_owned()),
                _ => Ok(()),
            }
        })
        .defaults::<Gizmo>(|gizmo| {
            gizmo.spec.dimensions.colour.get_or_insert_with(|| "grey".to_owned());
        })
}

/// Takes connections to one of several servers, and breaks them now and then, so
/// that there are many handshakes.
async fn in_front_of(servers: Vec<SocketAddr>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (servers, next) = (servers.clone(), next.clone());
            tokio::spawn(async move {
                for _ in 0..servers.len() {
                    let server = servers[next.fetch_add(1, Ordering::SeqCst) % servers.len()];
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                        return;
                    }
                }
            });
        }
    });
    address
}

fn gizmos(client: &Client, namespace: &str, version: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, "Gizmo"));
    Api::namespaced_with(client.clone(), namespace, &kind)
}

fn manager() -> Manager {
    Manager::new("webhooks-test").webhooks(webhooks())
}

/// Who may do what an operator with webhooks does, and nothing else.
async fn identity(place: &Place) -> Identity {
    let identity = place.namespace.with_cluster_rules(manager().webhook_rules()).await.unwrap();
    identity.allow([manager().rules(), manager().lease_rules()].concat()).await.unwrap();
    identity
}

async fn start(
    place: &Place,
    identity: &Identity,
    (listen, front): (SocketAddr, SocketAddr),
    validity: Validity,
) -> Operating {
    let settings = RunSettings {
        webhook_listen: listen,
        webhook_url: Some(format!("https://{front}")),
        certificate_validity: validity,
        lease_namespace: Some(place.namespace.name().to_owned()),
        ..place.settings()
    };
    Operating::start(manager(), identity.config(), settings).await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_answer_while_their_certificates_are_replaced_and_two_replicas_share_them() {
    let place = Place::new("webhooks").await;
    Api::all(place.client.clone()).create(&PostParams::default(), &crd()).await.unwrap();
    let namespace = place.namespace.name().to_owned();
    let (one, other) = (free_address(), free_address());
    let front = in_front_of(vec![one, other]).await;
    let seconds = Duration::from_secs;
    let validity = Validity { authority: seconds(30), leaf: seconds(12), overlap: seconds(4) };
    let identity = identity(&place).await;
    let mark = place.namespace.mark().await.unwrap();
    let first = start(&place, &identity, (one, front), validity).await;
    let second = start(&place, &identity, (other, front), validity).await;
    let (v1, v2) = (gizmos(&place.client, &namespace, "v1"), gizmos(&place.client, &namespace, "v2"));
    eventually("the kind is served", async || v1.list(&ListParams::default()).await.is_ok()).await;

    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    let served =
        async || secrets.get("webhooks-test-webhooks").await.unwrap().data.unwrap()["ca.crt"].0.clone();
    let bundle = served().await;
    let began = Instant::now();
    let (mut requests, mut bundles) = (0, 1);
    let mut last = bundle;
    while began.elapsed() < seconds(40) {
        let name = format!("g-{requests}");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Gizmo"));
        let new = DynamicObject::new(&name, &kind).data(json!({"spec": {"size": requests}}));
        v1.create(&PostParams::default(), &new).await.unwrap();
        let read = v2.get(&name).await.unwrap();
        assert_eq!(read.data["spec"]["dimensions"]["size"], requests);
        assert_eq!(read.data["spec"]["dimensions"]["colour"], "grey", "it was filled in");
        let patch = Patch::Merge(json!({"spec": {"dimensions": {"colour": "red"}}}));
        v2.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        let read = v1.get(&name).await.unwrap();
        assert_eq!(read.data["spec"]["size"], requests);
        assert_eq!(read.metadata.annotations.unwrap()["colour"], "red");
        assert_eq!(v2.get(&name).await.unwrap().data["spec"]["dimensions"]["colour"], "red", "and back");
        let green = Patch::Merge(json!({"spec": {"dimensions": {"colour": "green"}}}));
        let error = v2.patch(&name, &PatchParams::default(), &green).await.unwrap_err().to_string();
        assert!(error.contains("nothing is green"), "{error}");
        requests += 1;
        let now = served().await;
        if now != last {
            bundles += 1;
            last = now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let rules = [manager().rules(), manager().lease_rules(), manager().webhook_rules()].concat();
    let report = identity.check_rules(&rules, &mark).await.unwrap();
    assert!(report.missing.is_empty(), "{report}");
    println!("{requests} rounds of six requests, none failed; {bundles} bundles; {report}");
    assert!(bundles >= 3, "certificates were replaced: {bundles}");

    // One replica ends; the other goes on.
    first.stop().await;
    assert!(v1.list(&ListParams::default()).await.is_ok());
    second.stop().await;
}
