//! The operator that holds of its Widgets and ConfigMaps only what decisions need.

use std::{fmt, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use wheelhouse::{Acting, Action, Error, Key, Operator, Plan, Result, World};

use crate::{
    tally::Tally,
    widget::{MADE_FROM, Widget, WidgetStatus, config_map, digest, digest_of_text},
};

wheelhouse::projection! {
    /// A Widget, without its payload.
    pub(crate) struct SlimWidget of Widget {
        spec: SlimSpec,
        status: Option<WidgetStatus>,
    }
}

/// A spec, with a digest in place of the payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SlimSpec {
    size: i64,
    #[serde(deserialize_with = "digested")]
    payload: u64,
}

fn digested<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Digest;
    impl serde::de::Visitor<'_> for Digest {
        type Value = u64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a text")
        }
        fn visit_str<E>(self, text: &str) -> Result<u64, E> {
            Ok(digest_of_text(text))
        }
        fn visit_u64<E>(self, digest: u64) -> Result<u64, E> {
            Ok(digest)
        }
    }
    deserializer.deserialize_any(Digest)
}

pub(crate) struct Widgets {
    pub(crate) tally: Arc<Tally>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    name: String,
    generation: Option<i64>,
    wanted: String,
    made_from: Option<String>,
}

/// Reads the Widget and writes its ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WriteConfigMap;

impl fmt::Display for WriteConfigMap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("write the ConfigMap")
    }
}

impl Action for WriteConfigMap {
    fn name(&self) -> &'static str {
        "write-config-map"
    }

    fn is_destructive(&self) -> bool {
        false
    }
}

impl Operator for Widgets {
    type Resource = SlimWidget;
    type Observation = Seen;
    type Action = WriteConfigMap;

    async fn observe(&self, widget: Arc<SlimWidget>, world: &World<'_>) -> Result<Seen> {
        self.tally.begin();
        let config_map = world.get::<PartialObjectMeta<ConfigMap>>(&widget.name_any()).await?;
        let seen = Seen {
            name: widget.name_any(),
            generation: widget.metadata.generation,
            wanted: digest(widget.spec.size, widget.spec.payload),
            made_from: config_map.and_then(|config_map| config_map.annotations().get(MADE_FROM).cloned()),
        };
        let is_told =
            widget.status.as_ref().is_some_and(|status| status.observed_generation == seen.generation);
        if is_told && seen.made_from.as_ref() == Some(&seen.wanted) {
            self.tally.note_at_rest(&Key::of(&*widget));
        }
        Ok(seen)
    }

    fn analyse(&self, seen: &Seen) -> Plan<WriteConfigMap> {
        let mut plan = Plan::new();
        if seen.made_from.as_ref() != Some(&seen.wanted) {
            plan.act(WriteConfigMap, "it was made from another spec");
        }
        plan.set_status(&WidgetStatus { observed_generation: seen.generation, ready: true });
        plan
    }

    async fn act(&self, _: WriteConfigMap, context: &Acting<'_>) -> Result<()> {
        let namespace = context.resource.namespace.as_deref().unwrap_or_default();
        let widgets: Api<Widget> = Api::namespaced(context.client.clone(), namespace);
        let name = &context.resource.name;
        let widget = widgets.get(name).await.map_err(Error::api(format!("read Widget {name}")))?;
        let mut object = serde_json::to_value(config_map(name, &widget.spec)).unwrap_or_default();
        if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            let owner = json!([{"apiVersion": "bench.wheelhouse.dev/v1", "kind": "Widget", "name": name, "uid": context.resource.uid, "controller": true}]);
            metadata.insert("ownerReferences".to_owned(), owner);
        }
        let config_maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
        let params = PatchParams::apply(context.field_manager).force();
        config_maps
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .map_err(Error::api(format!("write ConfigMap {name}")))?;
        Ok(())
    }
}
