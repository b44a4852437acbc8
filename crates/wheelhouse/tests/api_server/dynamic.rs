//! Operators for kinds that are not as usual: known only at run time, or in no
//! namespace.

use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse::{
    Controller, NoAction, Operator, Plan, Result, World,
    cache::Selection,
    k8s_openapi::api::core::v1::{ConfigMap, Namespace},
    kube::{
        ResourceExt as _,
        api::{Patch, PatchParams},
        core::{ApiResource, DynamicObject, Expression},
    },
};

use super::widgets::{Place, Widget, config_map, eventually, quiet};

struct Anything;

impl Operator for Anything {
    type Resource = DynamicObject;
    type Observation = Value;
    type Action = NoAction;

    async fn observe(&self, object: Arc<DynamicObject>, _: &World<'_>) -> Result<Value> {
        Ok(json!({
            "name": object.metadata.name,
            "generation": object.metadata.generation,
            "size": object.data["spec"]["size"],
        }))
    }

    fn analyse(&self, seen: &Value) -> Plan {
        let mut plan = Plan::new();
        let name = seen["name"].as_str().unwrap_or_default();
        plan.apply(&config_map(name, &[("size", &seen["size"].to_string())]), "every one has one");
        plan.set_status(&json!({"observedGeneration": seen["generation"], "note": "dynamic"}));
        plan
    }
}

#[tokio::test]
async fn a_kind_that_is_known_only_at_run_time_is_worked_on_like_any_other() {
    let place = Place::new("dynamic").await;
    let kind = ApiResource::erase::<Widget>(&());
    let controller = Controller::of(Anything, kind).named("widget").owns::<ConfigMap>();
    let operating = place.start(controller).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    place.resize(2).await;
    eventually("it follows", async || place.is_resized(2).await).await;
    quiet().await;
    let mark = place.namespace.mark().await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"looked": "at"}}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
    quiet().await;
    let calls = place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb != "watch");
    assert!(calls.is_empty(), "nothing has changed: {calls:?}");
    operating.stop().await;
}

/// Keeps a ConfigMap in every namespace that it looks at.
struct Namespaces;

impl Operator for Namespaces {
    type Resource = Namespace;
    type Observation = String;
    type Action = NoAction;

    async fn observe(&self, namespace: Arc<Namespace>, _: &World<'_>) -> Result<String> {
        Ok(namespace.name_any())
    }

    fn analyse(&self, name: &String) -> Plan {
        let mut plan = Plan::new();
        let mut child = config_map("of-the-namespace", &[("name", name)]);
        child.metadata.namespace = Some(name.clone());
        plan.apply(&child, "every namespace has one");
        plan
    }
}

#[tokio::test]
async fn a_cluster_scoped_resource_hears_of_its_children_in_a_namespace() {
    let place = Place::new("cluster-scoped").await;
    let label = "kubernetes.io/metadata.name".to_owned();
    let selection = Selection::labels(Expression::Equal(label, place.namespace.name().to_owned()));
    let operating = place.start(Controller::new(Namespaces).select(selection).owns::<ConfigMap>()).await;
    let is_there = async || place.config_maps().get_opt("of-the-namespace").await.unwrap().is_some();
    eventually("it is there", is_there).await;
    place.config_maps().delete("of-the-namespace", &Default::default()).await.unwrap();
    eventually("it is there again", is_there).await;
    operating.stop().await;
}
