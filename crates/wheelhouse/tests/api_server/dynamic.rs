//! An operator for a kind that is known only at run time.

use std::sync::Arc;

use serde_json::{Value, json};
use wheelhouse::{
    Controller, NoAction, Operator, Plan, Result, World,
    k8s_openapi::api::core::v1::ConfigMap,
    kube::core::{ApiResource, DynamicObject},
};

use super::widgets::{Place, Widget, config_map, eventually};

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
    operating.stop().await;
}
