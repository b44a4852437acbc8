//! Resources that name what they depend on hear of its changes, by an index.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::json;
use wheelhouse::{
    Key, Plan,
    k8s_openapi::api::core::v1::Secret,
    kube::{
        Api, ResourceExt as _,
        api::{Patch, PatchParams, PostParams},
    },
};

use super::widgets::{Place, Widget, Widgets, eventually, quiet};

/// A Widget depends on the Secret that has its size in its name.
fn secret_of(widget: &Widget) -> Vec<Key> {
    vec![Key::new(widget.namespace().as_deref(), &format!("secret-{}", widget.spec.size))]
}

#[tokio::test]
async fn a_change_is_heard_by_whoever_depends_on_it_and_by_nobody_else() {
    let place = Place::new("dependencies").await;
    let looks: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let mut widgets = Widgets::new(|_| Plan::new());
    let counted = looks.clone();
    widgets.hook = Arc::new(move |widget| {
        *counted.lock().entry(widget.name_any()).or_default() += 1;
        Box::pin(async {})
    });
    let operating = place.start(widgets.controller().depends_on::<Secret, _>(secret_of)).await;
    place.create("a", 1).await;
    place.create("b", 2).await;
    eventually("both were looked at", async || looks.lock().len() == 2).await;
    quiet().await;
    let looks_at = |name: &str| looks.lock()[name];
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "secret-1"}})).unwrap();

    let (before_a, before_b) = (looks_at("a"), looks_at("b"));
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    eventually("who depends on it looks", async || looks_at("a") > before_a).await;
    assert_eq!(looks_at("b"), before_b);

    // Now `b` depends on it, and `a` on nothing that is there.
    place.resize(3).await;
    let patch = Patch::Merge(json!({"spec": {"size": 1}}));
    place.widgets().patch("b", &PatchParams::default(), &patch).await.unwrap();
    quiet().await;
    let (before_a, before_b) = (looks_at("a"), looks_at("b"));
    secrets.delete("secret-1", &Default::default()).await.unwrap();
    eventually("who depends on it now looks", async || looks_at("b") > before_b).await;
    assert_eq!(looks_at("a"), before_a);
    operating.stop().await;
}
