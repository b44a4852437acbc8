//! Law 5: own writes are seen. Law 13: nothing is lost. And what else the cache promises.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use wheelhouse::{
    Key, Plan,
    cache::{Cache, Namespaces, Selection},
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        Api,
        api::{ApiResource, Patch, PatchParams, PostParams},
        core::{DynamicObject, Expression, GroupVersionKind, PartialObjectMeta},
    },
};
use wheelhouse_testing::{ApiProxy, Fault};

use super::widgets::{Place, Seen, Widgets, config_map, eventually, one_config_map, quiet};

/// Creates what is missing, by counting what is there: wrong as soon as one of
/// its own writes is not seen.
fn one_more(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    let there = seen.config_maps.len();
    if there < usize::try_from(seen.widget.spec.size).unwrap() {
        plan.create(&config_map(&format!("{}-{there}", seen.name()), &[]), "one more is wanted");
    }
    plan
}

#[tokio::test]
async fn an_answered_write_is_visible_to_the_next_observation() {
    let place = Place::new("own-writes").await;
    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(Widgets::new(one_more).controller()).await;
    place.create("a", 40).await;
    eventually("all are there", async || {
        place.config_maps().list(&Default::default()).await.unwrap().items.len() == 40
    })
    .await;
    quiet().await;
    let writes = place.identity.requests_since(&mark).await.unwrap().writes();
    assert_eq!(writes.len(), 40, "none was sent twice: {writes:?}");
    assert!(writes.iter().all(|write| write.code == 201), "{writes:?}");
    operating.stop().await;
}

#[tokio::test]
async fn an_answered_deletion_is_visible_to_the_next_observation() {
    let place = Place::new("own-deletes").await;
    let analyse = |seen: &Seen| {
        let mut plan = Plan::new();
        if seen.widget.spec.size == 0 {
            plan.prune(&seen.children, |_| false);
            return plan;
        }
        one_more(seen)
    };
    let operating = place.start(Widgets::new(analyse).controller()).await;
    place.create("a", 20).await;
    eventually("all are there", async || {
        place.config_maps().list(&Default::default()).await.unwrap().items.len() == 20
    })
    .await;
    let mark = place.namespace.mark().await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"size": 0}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
    eventually("all are gone", async || {
        place.config_maps().list(&Default::default()).await.unwrap().items.is_empty()
    })
    .await;
    quiet().await;
    let deletes = place.identity.requests_since(&mark).await.unwrap().writes();
    assert_eq!(deletes.len(), 20, "each was deleted once: {deletes:?}");
    operating.stop().await;
}

#[tokio::test]
async fn after_a_write_whose_answer_was_lost_the_next_observation_is_live() {
    let place = Place::new("lost-answers").await;
    let proxy = ApiProxy::start(&place.identity).await.unwrap();
    let watched_late = Arc::new(AtomicUsize::new(0));
    let lost = Arc::new(Mutex::new(HashSet::new()));
    // Every create loses its answer once.
    proxy.disturb({
        let count = watched_late.clone();
        move |method, target| {
            if method == "POST" && target.contains("configmaps") {
                let number = count.fetch_add(1, Ordering::SeqCst);
                if number.is_multiple_of(2) && lost.lock().unwrap().insert(number) {
                    return Fault::LoseAnswer;
                }
            }
            Fault::None
        }
    });
    let mark = place.namespace.mark().await.unwrap();
    let operating =
        place.start_with(proxy.config(), place.settings(), Widgets::new(one_more).controller()).await;
    place.create("a", 10).await;
    eventually("all are there", async || {
        place.config_maps().list(&Default::default()).await.unwrap().items.len() == 10
    })
    .await;
    quiet().await;
    let creates = place
        .identity
        .requests_since(&mark)
        .await
        .unwrap()
        .filter(|request| request.verb == "create" && request.resource == "configmaps");
    assert!(creates.iter().all(|create| create.code == 201), "none was sent twice: {creates:?}");
    assert_eq!(creates.len(), 10);
    let lists = place.identity.requests_since(&mark).await.unwrap().count("list", "configmaps");
    assert!(lists > 5, "the first list, and one after each of five lost answers: {lists}");
    operating.stop().await;
}

#[tokio::test]
async fn what_vanished_while_nobody_watched_is_reported_after_the_watch_expired() {
    let place = Place::new("expired").await;
    let proxy = ApiProxy::start(&place.identity).await.unwrap();
    let operating =
        place.start_with(proxy.config(), place.settings(), Widgets::new(one_more).controller()).await;
    place.create("a", 2).await;
    eventually("both are there", async || {
        place.config_maps().list(&Default::default()).await.unwrap().items.len() == 2
    })
    .await;
    quiet().await;
    // The watches break and cannot be taken up again; meanwhile one is deleted.
    proxy.disturb(|_, _| Fault::LoseRequest);
    proxy.break_connections();
    place.config_maps().delete("a-1", &Default::default()).await.unwrap();
    let expired = Arc::new(AtomicUsize::new(0));
    proxy.disturb({
        let expired = expired.clone();
        move |_, target| match target.contains("watch=true") && expired.fetch_add(1, Ordering::SeqCst) < 2 {
            true => Fault::ExpireWatch,
            false => Fault::None,
        }
    });
    eventually("the lost one is made again", async || {
        place.config_maps().get_opt("a-1").await.unwrap().is_some()
    })
    .await;
    assert!(expired.load(Ordering::SeqCst) >= 2);
    operating.stop().await;
}

#[tokio::test]
async fn kinds_are_read_typed_dynamic_and_as_metadata_and_informers_start_and_stop_at_run_time() {
    let place = Place::new("kinds").await;
    let cache = Cache::new(place.client.clone(), Namespaces::only([place.namespace.name()]));
    let create = async |name: &str, colour: &str| {
        let mut object = config_map(name, &[("a", "b")]);
        object.metadata.labels = Some([("colour".to_owned(), colour.to_owned())].into());
        place.config_maps().create(&PostParams::default(), &object).await.unwrap();
    };
    create("red", "red").await;
    create("blue", "blue").await;
    let typed = cache.lister::<ConfigMap>();
    let metadata = cache.lister::<PartialObjectMeta<ConfigMap>>();
    let red = Expression::Equal("colour".into(), "red".into());
    let selected = cache.lister_of::<ConfigMap>((), Selection::labels(red.clone()));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let dynamic = cache.lister_of::<DynamicObject>(resource, Selection::everything());
    cache.synced().await;
    let namespace = place.namespace.name();
    assert_eq!(typed.list(Some(namespace)).len(), 2);
    assert_eq!(typed.select(Some(namespace), &red.into()).len(), 1);
    assert_eq!(selected.len(), 1);
    assert_eq!(dynamic.get(&Key::namespaced(namespace, "blue")).unwrap().data["data"]["a"], "b");
    assert!(metadata.get(&Key::namespaced(namespace, "blue")).unwrap().metadata.managed_fields.is_none());
    let by_colour = typed.index("colour", |object| {
        object.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect()
    });
    assert_eq!(by_colour.find("red").len(), 1);

    cache.stop(&typed);
    create("late", "red").await;
    eventually("the others go on", async || metadata.len() == 3 && selected.len() == 2 && dynamic.len() == 3)
        .await;
    assert_eq!(typed.len(), 2, "it was stopped");
    let again = cache.lister::<ConfigMap>();
    again.synced().await;
    assert_eq!(again.len(), 3);
}

#[tokio::test]
async fn one_kind_is_watched_once_however_many_ask() {
    let place = Place::new("shared").await;
    let mark = place.namespace.mark().await.unwrap();
    let cache = Cache::new(place.identity.client().unwrap(), Namespaces::only([place.namespace.name()]));
    let one = cache.lister::<ConfigMap>();
    let _other = cache.lister::<ConfigMap>();
    one.synced().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let requests = place.identity.requests_since(&mark).await.unwrap();
    assert_eq!(requests.count("list", "configmaps"), 1);
    assert_eq!(requests.count("watch", "configmaps"), 1);
}

#[tokio::test]
async fn what_is_not_among_the_namespaces_is_not_seen() {
    let (here, elsewhere) = (Place::new("here").await, Place::new("elsewhere").await);
    let third = Place::new("third").await;
    for place in [&here, &elsewhere, &third] {
        place.config_maps().create(&PostParams::default(), &config_map("a", &[])).await.unwrap();
    }
    let cache = Cache::new(
        here.identity.client().unwrap(),
        Namespaces::only([here.namespace.name(), third.namespace.name()]),
    );
    let lister = cache.lister::<ConfigMap>();
    lister.synced().await;
    let found: HashSet<_> =
        lister.list(None).iter().map(|object| object.metadata.namespace.clone().unwrap()).collect();
    assert_eq!(found, HashSet::from([here.namespace.name().to_owned(), third.namespace.name().to_owned()]));
    let all: Api<ConfigMap> = Api::all(here.client.clone());
    assert!(all.list(&Default::default()).await.unwrap().items.len() >= 3);
}

#[tokio::test]
async fn nothing_is_decided_before_everything_was_listed() {
    let place = Place::new("early").await;
    let proxy = ApiProxy::start(&place.identity).await.unwrap();
    place.create("a", 1).await;
    let mark = place.namespace.mark().await.unwrap();
    let is_list = |target: &str| target.contains("/configmaps?") && !target.contains("watch=true");
    proxy.disturb(move |_, target| if is_list(target) { Fault::Hang } else { Fault::None });
    let operating =
        place.start_with(proxy.config(), place.settings(), Widgets::new(one_config_map).controller()).await;
    quiet().await;
    assert!(place.identity.requests_since(&mark).await.unwrap().writes().is_empty(), "no child is known");
    proxy.calm();
    proxy.break_connections();
    eventually("then it works", async || place.is_resized(1).await).await;
    operating.stop().await;
}
