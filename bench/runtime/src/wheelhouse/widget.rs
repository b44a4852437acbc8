//! The Widget as this contestant knows it, and what it makes of it.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{CustomResource, core::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Says which spec a ConfigMap was made from, without holding it.
pub(crate) const MADE_FROM: &str = "bench.wheelhouse.dev/made-from";

/// What is wanted.
#[derive(Clone, Debug, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.wheelhouse.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
pub(crate) struct WidgetSpec {
    pub(crate) size: i64,
    pub(crate) payload: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WidgetStatus {
    pub(crate) observed_generation: Option<i64>,
    pub(crate) ready: bool,
}

/// The ConfigMap of a Widget.
pub(crate) fn config_map(name: &str, spec: &WidgetSpec) -> ConfigMap {
    let made_from = digest(spec.size, digest_of_text(&spec.payload));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::from([(MADE_FROM.to_owned(), made_from)])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            ("size".to_owned(), spec.size.to_string()),
            ("payload".to_owned(), spec.payload.clone()),
        ])),
        ..ConfigMap::default()
    }
}

/// A spec, in a few letters.
pub(crate) fn digest(size: i64, payload: u64) -> String {
    format!("{size}-{payload:016x}")
}

/// A text, in eight bytes.
pub(crate) fn digest_of_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
