//! The simulated members of each namespace's cluster, played as often as somebody looks.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

use etcd_operator::simulation::Simulation;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use wheelhouse_testing::faults::Stage;

/// All there is, by namespace.
static ALL: LazyLock<Mutex<HashMap<String, Arc<Played>>>> = LazyLock::new(Mutex::default);

/// How often kubelets look.
const LOOK_EVERY: Duration = Duration::from_millis(60);

/// The cluster `db` of a namespace.
pub struct Played {
    pub members: Arc<Simulation>,
    looked: tokio::sync::Mutex<Option<Instant>>,
}

impl Played {
    pub fn of(namespace: &str) -> Arc<Self> {
        let new = || {
            let members = Simulation::new(namespace, "db", Ipv4Addr::new(192, 0, 2, 1));
            Arc::new(Self { members: Arc::new(members), looked: tokio::sync::Mutex::default() })
        };
        Arc::clone(ALL.lock().unwrap().entry(namespace.to_owned()).or_insert_with(new))
    }

    /// Kubelets and supervisors do what they do.
    pub async fn step(&self, stage: &Stage) {
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        *looked = Some(Instant::now());
        let all = Default::default();
        let volumes = stage.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items;
        let pods = stage.api::<Pod>().list(&all).await.unwrap().items;
        self.members.play(&stage.client(), &pods, &volumes).await;
    }
}
