//! Law 2: a reconcile that changes nothing makes no API call. Law 6: what is
//! ours is restored, what is not mentioned is left alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use wheelhouse::{
    Controller, Key, Kind, Plan,
    cache::Selection,
    k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap},
    kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
        core::PartialObjectMeta,
    },
    plan::{Object, Step},
};
use wheelhouse_testing::{EventType, Mark};

use super::widgets::{Place, Seen, WidgetStatus, Widgets, config_map, eventually, one_config_map, quiet};

/// Everything but watches, which are what listening is.
async fn calls_since(place: &Place, mark: &Mark) -> Vec<String> {
    let requests = place.identity.requests_since(mark).await.unwrap();
    let calls = requests.filter(|request| request.verb != "watch");
    calls.iter().map(|request| format!("{} {} {}", request.verb, request.resource, request.name)).collect()
}

async fn is_settled(place: &Place, name: &str) -> bool {
    let widget = place.widgets().get(name).await.unwrap();
    widget.status.is_some_and(|status| status.observed_generation == widget.metadata.generation)
}

/// Keys to look at again, from outside.
fn poked(
    controller: Controller<Widgets>,
) -> (Controller<Widgets>, futures::channel::mpsc::UnboundedSender<Key>) {
    let (poke, pokes) = futures::channel::mpsc::unbounded();
    (controller.triggered_by(pokes), poke)
}

/// Counts reconciles.
fn counted(mut widgets: Widgets) -> (Widgets, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let inner = widgets.analyse.clone();
    widgets.analyse = Arc::new(move |seen| {
        counter.fetch_add(1, Ordering::SeqCst);
        inner(seen)
    });
    (widgets, count)
}

#[tokio::test]
async fn a_new_resource_costs_two_writes_and_then_nothing_costs_anything() {
    let place = Place::new("two-writes").await;
    let mark = place.namespace.mark().await.unwrap();
    let (widgets, reconciles) = counted(Widgets::new(one_config_map));
    let (controller, poke) = poked(widgets.controller());
    let operating = place.start(controller).await;
    place.create("a", 3).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    quiet().await;
    let writes = place.identity.requests_since(&mark).await.unwrap().writes();
    let table: Vec<_> = writes.iter().map(|write| format!("{} {}", write.verb, write.resource)).collect();
    assert_eq!(table, ["patch configmaps", "patch widgets/status"]);

    let mark = place.namespace.mark().await.unwrap();
    let before = reconciles.load(Ordering::SeqCst);
    poke.unbounded_send(Key::namespaced(place.namespace.name(), "a")).unwrap();
    eventually("it was reconciled again", async || reconciles.load(Ordering::SeqCst) > before).await;
    quiet().await;
    assert_eq!(calls_since(&place, &mark).await, [""; 0]);
    operating.stop().await;
}

#[tokio::test]
async fn an_edit_of_a_field_that_is_not_ours_is_left_alone_and_costs_nothing() {
    let place = Place::new("not-ours").await;
    let (widgets, reconciles) = counted(Widgets::new(one_config_map));
    let operating = place.start(widgets.controller()).await;
    place.create("a", 3).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    quiet().await;
    let mark = place.namespace.mark().await.unwrap();
    let before = reconciles.load(Ordering::SeqCst);
    edit(&place, json!({"data": {"theirs": "yes"}, "metadata": {"labels": {"team": "a"}}})).await;
    eventually("the change was looked at", async || reconciles.load(Ordering::SeqCst) > before).await;
    quiet().await;
    assert_eq!(calls_since(&place, &mark).await, [""; 0]);
    assert_eq!(place.config_maps().get("a").await.unwrap().data.unwrap()["theirs"], "yes");
    operating.stop().await;
}

#[tokio::test]
async fn an_edit_of_a_field_that_is_ours_is_restored_by_one_apply_and_the_event_names_who() {
    let place = Place::new("ours").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 3).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    quiet().await;
    let mark = place.namespace.mark().await.unwrap();
    edit(&place, json!({"data": {"size": "999"}})).await;
    eventually("it is restored", async || {
        place.config_maps().get("a").await.unwrap().data.unwrap()["size"] == "3"
    })
    .await;
    let note = "restored what kubectl-edit had changed: apply ConfigMap a";
    events.expect(EventType::Normal, "Restored", note).await.unwrap();
    quiet().await;
    let calls = calls_since(&place, &mark).await;
    assert_eq!(
        calls.iter().filter(|call| !call.starts_with("create events")).collect::<Vec<_>>(),
        ["patch configmaps a"]
    );
    operating.stop().await;
}

async fn edit(place: &Place, patch: serde_json::Value) {
    let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..Default::default() };
    place.config_maps().patch("a", &params, &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_field_that_is_no_longer_mentioned_goes_away() {
    let place = Place::new("removed").await;
    let analyse = |seen: &Seen| {
        let mut plan = one_config_map(seen);
        if seen.widget.spec.size == 1 {
            plan.steps.clear();
            plan.apply(&config_map("a", &[("size", "1"), ("extra", "yes")]), "small ones have more");
        }
        plan
    };
    let operating = place.start(Widgets::new(analyse).controller()).await;
    place.create("a", 1).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    assert!(place.config_maps().get("a").await.unwrap().data.unwrap().contains_key("extra"));
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
    eventually("the field is gone", async || {
        let data = place.config_maps().get("a").await.unwrap().data.unwrap();
        data.get("size").is_some_and(|size| size == "2") && !data.contains_key("extra")
    })
    .await;
    operating.stop().await;
}

/// What servers make of values: quantities, ports that are numbers or names,
/// defaulted list keys and fields, empty maps.
fn deployment(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    let content = json!({
        "metadata": {"name": seen.name()},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {
                    "containers": [{
                        "name": "a",
                        "image": "a",
                        "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "other"}],
                        "livenessProbe": {"httpGet": {"port": "other"}},
                        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "env": [{"name": "A", "value": ""}],
                    }],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "nodeSelector": {},
                    "tolerations": [{"key": "k", "operator": "Exists"}],
                },
            },
        },
    });
    plan.step(Step::Apply(Object::new(Kind::of::<Deployment>(&()), content)), "every Widget has one");
    plan.set_status(&WidgetStatus {
        observed_generation: seen.widget.metadata.generation,
        note: String::new(),
        ..Default::default()
    });
    plan
}

#[tokio::test]
async fn what_the_server_makes_of_values_does_not_matter_and_neither_does_a_restart() {
    let place = Place::new("normalised").await;
    let operating = place.start(Widgets::new(deployment).controller().owns::<Deployment>()).await;
    place.create("a", 1).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    quiet().await;
    operating.stop().await;

    let mark = place.namespace.mark().await.unwrap();
    let (widgets, reconciles) = counted(Widgets::new(deployment));
    let operating = place.start(widgets.controller().owns::<Deployment>()).await;
    eventually("it was reconciled again", async || reconciles.load(Ordering::SeqCst) > 0).await;
    quiet().await;
    let writes = place.identity.requests_since(&mark).await.unwrap().writes();
    assert_eq!(writes.len(), 0, "{writes:?}");
    operating.stop().await;
}

#[tokio::test]
async fn children_of_which_only_the_metadata_is_held_are_kept_just_the_same() {
    let place = Place::new("metadata-only").await;
    type Meta = PartialObjectMeta<ConfigMap>;
    let controller = || {
        let (widgets, reconciles) = counted(Widgets::new(one_config_map));
        (
            Controller::new(OnlyMetadata(widgets)).owns_of::<Meta>((), Selection::everything(), vec![]),
            reconciles,
        )
    };
    let stop = tokio_util::sync::CancellationToken::new();
    let manager = wheelhouse::Manager::new("test-operator").controller(controller().0);
    let started = manager.start(place.identity.config(), place.settings(), stop.clone()).await.unwrap();
    place.create("a", 3).await;
    eventually("the Widget settles", async || is_settled(&place, "a").await).await;
    let mark = place.namespace.mark().await.unwrap();
    edit(&place, json!({"data": {"theirs": "yes"}})).await;
    quiet().await;
    assert_eq!(calls_since(&place, &mark).await, [""; 0]);
    edit(&place, json!({"data": {"size": "999"}})).await;
    eventually("it is restored", async || {
        place.config_maps().get("a").await.unwrap().data.unwrap()["size"] == "3"
    })
    .await;
    stop.cancel();
    started.finished().await.unwrap();

    let mark = place.namespace.mark().await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let (controller, reconciles) = controller();
    let manager = wheelhouse::Manager::new("test-operator").controller(controller);
    let started = manager.start(place.identity.config(), place.settings(), stop.clone()).await.unwrap();
    eventually("it was reconciled again", async || reconciles.load(Ordering::SeqCst) > 0).await;
    quiet().await;
    let requests = place.identity.requests_since(&mark).await.unwrap();
    assert_eq!(requests.writes().len(), 0, "{requests:?}");
    stop.cancel();
    started.finished().await.unwrap();
}

/// Knows nothing of its ConfigMaps but that they are there.
struct OnlyMetadata(Widgets);

impl wheelhouse::Operator for OnlyMetadata {
    type Resource = super::widgets::Widget;
    type Observation = Seen;
    type Action = wheelhouse::NoAction;

    async fn observe(
        &self,
        widget: Arc<Self::Resource>,
        world: &wheelhouse::World<'_>,
    ) -> wheelhouse::Result<Seen> {
        Ok(Seen {
            widget: (*widget).clone(),
            config_maps: Vec::new(),
            children: world.children().await?,
            now: world.now(),
        })
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        (self.0.analyse)(seen)
    }
}

#[tokio::test]
async fn an_object_of_somebody_else_is_never_taken() {
    let place = Place::new("foreign").await;
    let events = place.namespace.events().await.unwrap();
    place
        .config_maps()
        .create(&PostParams::default(), &config_map("a", &[("precious", "data")]))
        .await
        .unwrap();
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 3).await;
    let note = format!(
        "cannot apply ConfigMap {}/a: there is a ConfigMap a already, and it belongs to nobody, and was not made by this resource: rename or remove it",
        place.namespace.name()
    );
    events.expect(EventType::Warning, "NotOurs", &note).await.unwrap();
    let theirs = place.config_maps().get("a").await.unwrap();
    assert_eq!(theirs.data.unwrap().into_keys().collect::<Vec<_>>(), ["precious"]);
    assert!(theirs.metadata.owner_references.is_none());
    place.config_maps().delete("a", &Default::default()).await.unwrap();
    eventually("the Widget settles once the name is free", async || is_settled(&place, "a").await).await;
    operating.stop().await;
}

#[tokio::test]
async fn on_an_object_that_is_not_ours_nothing_is_forced() {
    let place = Place::new("foreign-apply").await;
    let events = place.namespace.events().await.unwrap();
    let foreign = |value: &'static str| {
        move |_: &Seen| {
            let mut plan = Plan::new();
            let object = Object::of(&config_map("shared", &[("x", value)]));
            plan.step(Step::ApplyForeign(object), "it is shared");
            plan
        }
    };
    let shared: Api<ConfigMap> = place.config_maps();
    let params = PatchParams::apply("somebody");
    shared.patch("shared", &params, &Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"x": "theirs"}}))).await.unwrap();
    place.create("a", 1).await;
    let operating = place.start(Widgets::new(foreign("ours")).controller()).await;
    eventually("the conflict is told", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.message.contains("conflict"))
    })
    .await;
    assert_eq!(shared.get("shared").await.unwrap().data.unwrap()["x"], "theirs");
    operating.stop().await;
}

#[tokio::test]
async fn two_controllers_share_an_object_that_is_neithers() {
    let place = Place::new("two-foreign").await;
    let foreign = |field: &'static str| {
        Widgets::new(move |_: &Seen| {
            let mut plan = Plan::new();
            plan.step(Step::ApplyForeign(Object::of(&config_map("shared", &[(field, "1")]))), "it is shared");
            plan
        })
        .controller()
        .named(field)
    };
    let shared = place.config_maps();
    shared.create(&PostParams::default(), &config_map("shared", &[("theirs", "1")])).await.unwrap();
    place.create("a", 1).await;
    let (one, other) = (place.start(foreign("one")).await, place.start(foreign("other")).await);
    eventually("both are in it", async || shared.get("shared").await.unwrap().data.unwrap().len() == 3).await;
    quiet().await;
    let mark = place.namespace.mark().await.unwrap();
    place.resize(2).await;
    quiet().await;
    let calls = place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb != "watch");
    assert!(calls.is_empty(), "{calls:?}");
    one.stop().await;
    other.stop().await;
}
