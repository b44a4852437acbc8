//! Law 11: a panic, a hang or a slow resource costs that resource a retry, and
//! not its neighbours.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use wheelhouse::{
    Controller, ControllerSettings, Exclusion, Key, Plan,
    k8s_openapi::api::core::v1::Secret,
    kube::{
        Api, ResourceExt as _,
        api::{ObjectMeta, PostParams},
    },
    queue::QueueSettings,
};

use wheelhouse_testing::{CapturedEvent, EventType};

use super::widgets::{Place, Widgets, eventually, one_config_map};

const WORKERS: usize = 4;
const OTHERS: usize = 1_000;

fn settings() -> ControllerSettings {
    ControllerSettings {
        deadline: Duration::from_secs(3),
        queue: QueueSettings { workers: WORKERS, ..QueueSettings::default() },
        ..ControllerSettings::default()
    }
}

/// How long each of many keys waited from its trigger to its decision: the median and the 99th percentile.
async fn latencies(place: &Place, trouble: &[&str]) -> (Duration, Duration) {
    let decided: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let decisions = decided.clone();
    let mut widgets = Widgets::new(move |seen| {
        match seen.name() {
            name if name.starts_with("panic") => panic!("as the test says"),
            // Blocks the thread, not only the task.
            name if name.starts_with("block") => std::thread::sleep(Duration::from_secs(2)),
            name => {
                decisions.lock().unwrap().insert(name.to_owned(), Instant::now());
            }
        }
        Plan::new()
    });
    widgets.hook = Arc::new(|widget| {
        let hangs = widget.metadata.name.as_ref().unwrap().starts_with("hang");
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
        })
    });
    let (poke, pokes) = futures::channel::mpsc::unbounded();
    let operating = place.start(widgets.controller().settings(settings()).triggered_by(pokes)).await;
    eventually("all were decided on once", async || decided.lock().unwrap().len() == OTHERS).await;
    for name in trouble {
        place.create(name, 1).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    decided.lock().unwrap().clear();
    let mut sent = HashMap::new();
    for number in 0..OTHERS {
        let name = format!("other-{number}");
        poke.unbounded_send(Key::namespaced(place.namespace.name(), &name)).unwrap();
        sent.insert(name, Instant::now());
        if number % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    eventually("all were decided on", async || decided.lock().unwrap().len() == OTHERS).await;
    let decided = decided.lock().unwrap().clone();
    let mut waits: Vec<_> =
        sent.iter().map(|(name, sent)| decided[name].saturating_duration_since(*sent)).collect();
    waits.sort();
    operating.stop().await;
    (waits[OTHERS / 2], waits[OTHERS * 99 / 100])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_hanging_panicking_and_blocking_resources_as_workers_leave_the_latency_of_others_as_it_was() {
    let place = Place::new("isolation").await;
    for number in 0..OTHERS {
        place.create(&format!("other-{number}"), 1).await;
    }
    let alone = latencies(&place, &[]).await;
    let with_trouble = latencies(
        &place,
        &[
            "hang-0", "hang-1", "hang-2", "hang-3", "panic-0", "panic-1", "panic-2", "panic-3", "block-0",
            "block-1", "block-2", "block-3",
        ],
    )
    .await;
    println!("1,000 others, median and p99: alone {alone:?}, with trouble {with_trouble:?}");
    // If trouble kept a worker, the others would wait for its deadline of 3 s.
    assert!(
        with_trouble.1 < alone.1 + Duration::from_millis(250),
        "alone {alone:?}, with trouble {with_trouble:?}"
    );
}

#[tokio::test]
async fn a_panic_and_a_hang_are_tried_again_and_told() {
    let place = Place::new("retried").await;
    let events = place.namespace.events().await.unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = tries.clone();
    let mut widgets = Widgets::new(move |seen| {
        if seen.name() == "panic" && tried.fetch_add(1, Ordering::SeqCst) < 3 {
            panic!("as the test says");
        }
        one_config_map(seen)
    });
    let looks = Arc::new(AtomicUsize::new(0));
    let looked = looks.clone();
    widgets.hook = Arc::new(move |widget| {
        let hangs = widget.name_any() == "hang" && looked.fetch_add(1, Ordering::SeqCst) < 1;
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
        })
    });
    let operating = place.start(widgets.controller().settings(settings())).await;
    for name in ["panic", "hang"] {
        place.create(name, 1).await;
        eventually("it went well in the end", async || {
            place.config_maps().get_opt(name).await.unwrap().is_some()
        })
        .await;
    }
    let note = "the operator panicked: as the test says";
    events.expect(EventType::Warning, "Panic", note).await.unwrap();
    assert!(tries.load(Ordering::SeqCst) >= 4);
    eventually("the hang is told", async || {
        let told = |event: &CapturedEvent| event.reason == "DeadlineExceeded" && event.message.contains("3s");
        events.seen().await.unwrap().iter().any(told)
    })
    .await;
    assert!(looks.load(Ordering::SeqCst) >= 2);
    operating.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_never_worked_on_twice_at_the_same_time_and_shared_keys_exclude_each_other() {
    let place = Place::new("exclusion").await;
    let running: Arc<Mutex<HashSet<String>>> = Arc::default();
    let overlaps = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let widgets = {
        let (running, overlaps, done) = (running.clone(), overlaps.clone(), done.clone());
        let mut widgets = Widgets::new(|_| Plan::new());
        widgets.hook = Arc::new(move |_| {
            let (running, overlaps, done) = (running.clone(), overlaps.clone(), done.clone());
            Box::pin(async move {
                // All Widgets of this test share one key.
                if !running.lock().unwrap().insert("shared".into()) {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                running.lock().unwrap().remove("shared");
                done.fetch_add(1, Ordering::SeqCst);
            })
        });
        widgets
    };
    let exclusion = Exclusion::new();
    let (poke, pokes) = futures::channel::mpsc::unbounded();
    let shared = |controller: Controller<Widgets>| {
        controller.shares_key(&exclusion, |_| Key::namespaced("any", "shared"))
    };
    let first = shared(widgets.clone().controller()).triggered_by(pokes);
    let second = shared(widgets.controller()).named("second");
    let stop = tokio_util::sync::CancellationToken::new();
    let manager = wheelhouse::Manager::new("test-operator").controller(first).controller(second);
    let started = manager.start(place.identity.config(), place.settings(), stop.clone()).await.unwrap();
    for name in ["a", "b", "c"] {
        place.create(name, 1).await;
    }
    eventually("many were worked on", async || {
        poke.unbounded_send(Key::namespaced(place.namespace.name(), "a")).unwrap();
        done.load(Ordering::SeqCst) >= 20
    })
    .await;
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    stop.cancel();
    started.finished().await.unwrap();
}

#[tokio::test]
async fn a_map_and_a_predicate_that_panic_do_not_end_the_watch() {
    let place = Place::new("panicking-maps").await;
    let namespace = place.namespace.name().to_owned();
    let controller = Widgets::new(one_config_map)
        .controller()
        .when(Arc::new(|_, widget| match widget.spec.size {
            13 => panic!("as the test says"),
            _ => true,
        }))
        .watches::<Secret, _>(move |secret| match secret.name_any().as_str() {
            "bad" => panic!("as the test says"),
            _ => vec![Key::namespaced(&namespace, "a")],
        });
    let operating = place.start(controller).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    place.resize(13).await;
    eventually("when in doubt, it looks", async || place.is_resized(13).await).await;
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    for name in ["bad", "good"] {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        secrets.create(&PostParams::default(), &Secret { metadata, ..Default::default() }).await.unwrap();
    }
    place.resize(2).await;
    eventually("the watch goes on", async || place.is_resized(2).await).await;
    operating.stop().await;
}
