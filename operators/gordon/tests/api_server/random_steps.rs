//! Hundreds of random steps: people scale and delete, answers get lost, the
//! operator is restarted. After each the count is right, and on the way there
//! were never more pods than somebody had wanted since it last settled.
//!
//! `STEPS` says how many: 100 unless told otherwise; `make e2e` takes 500.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, pin_mut};
use kube::{
    ResourceExt as _,
    runtime::watcher::{self, Event},
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use wheelhouse_testing::{ApiProxy, Fault};

use super::place::{Place, eventually};

/// The most live pods since somebody last looked, from the watch history.
#[derive(Default)]
struct History {
    live: BTreeSet<String>,
    most: usize,
}

impl History {
    fn note(&mut self, event: Event<k8s_openapi::api::core::v1::Pod>) {
        match event {
            Event::Apply(pod) | Event::InitApply(pod) if pod.metadata.deletion_timestamp.is_none() => {
                self.live.insert(pod.name_any());
            }
            Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) => {
                self.live.remove(&pod.name_any());
            }
            Event::Init | Event::InitDone => {}
        }
        self.most = self.most.max(self.live.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_every_random_step_the_count_is_right_and_there_were_never_too_many() {
    let steps: usize =
        std::env::var("STEPS").ok().map_or(100, |text| text.parse().expect("STEPS is a number"));
    let seed: u64 = std::env::var("SEED").ok().map_or(1, |text| text.parse().expect("SEED is a number"));
    let mut random = SmallRng::seed_from_u64(seed);
    let place = Place::new("random").await;
    let identity = place.identity("gordon").await;
    let proxy = ApiProxy::start(&identity).await.unwrap();
    let chance = Mutex::new(SmallRng::seed_from_u64(seed + 1));
    proxy.disturb(move |method, _| {
        let is_write = method != "GET";
        match chance.lock().unwrap().random_range(0..20) {
            0 if is_write => Fault::LoseAnswer,
            1 if is_write => Fault::LoseRequest,
            2 if is_write => Fault::Refuse(500),
            _ => Fault::None,
        }
    });

    let history: Arc<Mutex<History>> = Arc::default();
    let noted = history.clone();
    let pods = place.pods();
    let watching = tokio::spawn(async move {
        let events = watcher::watcher(pods, watcher::Config::default()).into_stream();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            noted.lock().unwrap().note(event.unwrap());
        }
    });

    let mut wanted = 3;
    place.create(wanted).await;
    let mut operating = Some(place.start(proxy.config()).await);
    let mut taken = [0; 3];
    for step in 0..steps {
        let before = wanted;
        let kind = random.random_range(0..3);
        taken[kind] += 1;
        match kind {
            0 => {
                wanted = random.random_range(0..9);
                place.scale(wanted).await;
            }
            1 => {
                let live = place.live_pods().await;
                if !live.is_empty() {
                    // It may have gone by itself meanwhile.
                    let _ = place
                        .pods()
                        .delete(&live[random.random_range(0..live.len())], &Default::default())
                        .await;
                }
            }
            _ => {
                operating.take().unwrap().stop().await;
                operating = Some(place.start(proxy.config()).await);
            }
        }
        let names: Vec<_> = (0..wanted).map(|index| format!("g-{index}")).collect();
        let settled = eventually("it settles", async || {
            place.live_pods().await == names && history.lock().unwrap().live.iter().eq(&names)
        });
        if tokio::time::timeout(Duration::from_secs(20), settled).await.is_err() {
            let (live, under_way) = (place.live_pods().await, proxy.under_way());
            panic!(
                "step {step} of seed {seed}: {wanted} are wanted, {live:?} are there; under way: {under_way:#?}"
            );
        }
        let mut history = history.lock().unwrap();
        let most = usize::try_from(wanted.max(before)).unwrap();
        assert!(
            history.most <= most,
            "step {step} of seed {seed}: {} pods, {most} were wanted at most",
            history.most
        );
        history.most = history.live.len();
    }
    println!(
        "{steps} steps of seed {seed}: {} scalings, {} deletions, {} restarts, never too many pods",
        taken[0], taken[1], taken[2]
    );
    operating.unwrap().stop().await;
    watching.abort();
}
