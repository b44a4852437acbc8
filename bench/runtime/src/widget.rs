//! The resource that the contestants reconcile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, GroupVersionKind, Object, PostParams},
};
use rand::{RngExt as _, SeedableRng as _, distr::Alphanumeric, rngs::SmallRng};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The API group.
pub(crate) const GROUP: &str = "bench.wheelhouse.dev";

/// The name of the resource in paths and rules.
pub(crate) const PLURAL: &str = "widgets";

/// Serving a new resource takes the API server about a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Widget.
pub(crate) type Widget = Object<Spec, Status>;

/// What goes into the ConfigMap.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Some number, which latency is measured by changing.
    pub(crate) size: i64,
    /// Some text, which makes objects large or small.
    pub(crate) payload: String,
}

/// For which generation the ConfigMap is right.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// The generation.
    pub(crate) observed_generation: Option<i64>,
}

/// How large the text of a Widget is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// 32 bytes.
    Small,
    /// 2 KB.
    Large,
}

impl Payload {
    /// A text that no other Widget has, and that cannot be compressed.
    fn text(self, index: usize) -> String {
        let length = match self {
            Self::Small => 32,
            Self::Large => 2048,
        };
        let random = SmallRng::seed_from_u64(index as u64);
        random.sample_iter(Alphanumeric).take(length).map(char::from).collect()
    }
}

/// The kind, for clients.
pub(crate) fn api_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Widget"), PLURAL)
}

/// The name of a Widget.
pub(crate) fn name(index: usize) -> String {
    format!("widget-{index:06}")
}

/// A Widget to create.
pub(crate) fn new(index: usize, payload: Payload) -> Widget {
    Widget::new(&name(index), &api_resource(), Spec { size: 1, payload: payload.text(index) })
}

/// Installs the definition, and waits until it is served.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let definition: CustomResourceDefinition =
        serde_json::from_value(definition()).context("the definition of Widgets is none")?;
    Api::all(client.clone())
        .create(&PostParams::default(), &definition)
        .await
        .context("cannot install the definition of Widgets")?;
    let widgets: Api<Widget> = Api::all_with(client.clone(), &api_resource());
    let begun = Instant::now();
    while let Err(error) = widgets.list(&Default::default()).await {
        if begun.elapsed() > PATIENCE {
            bail!("Widgets are still not served {PATIENCE:?} after their definition was installed: {error}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn definition() -> serde_json::Value {
    json!({
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": PLURAL, "singular": "widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "required": ["size", "payload"],
                            "properties": {
                                "size": {"type": "integer", "format": "int64"},
                                "payload": {"type": "string"},
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": {
                                "observedGeneration": {"type": "integer", "format": "int64"},
                                "ready": {"type": "boolean"},
                            },
                        },
                    },
                }},
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_their_size_and_differ() {
        assert_eq!(32, Payload::Small.text(7).len());
        assert_eq!(2048, Payload::Large.text(7).len());
        assert_ne!(Payload::Large.text(7), Payload::Large.text(8));
    }
}
