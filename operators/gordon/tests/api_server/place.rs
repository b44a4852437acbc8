//! A namespace with Gordon's CRD, and identities that may do what Gordon declares.

use gordon_operator::api::{Gordon, GordonSpec, Gordons};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, CustomResourceExt as _, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::{RunSettings, Started};
pub use wheelhouse_testing::eventually;
use wheelhouse_testing::{ControlPlane, Identity, Namespace};

pub struct Place {
    pub namespace: Namespace,
    pub client: Client,
}

impl Place {
    pub async fn new(purpose: &str) -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        plane.install(&[Gordon::crd()]).await.unwrap();
        let namespace = plane.namespace(purpose).await.unwrap();
        let client = namespace.client().unwrap();
        Self { namespace, client }
    }

    /// Somebody who may do what Gordon declares, in this namespace, and nothing else.
    pub async fn identity(&self, name: &str) -> Identity {
        let manager = gordon_operator::manager();
        let identity = self.namespace.service_account(name).await.unwrap();
        identity.allow([manager.rules(), manager.lease_rules()].concat()).await.unwrap();
        identity
    }

    pub fn gordons(&self) -> Api<Gordon> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create(&self, replicas: i32) -> Gordon {
        let gordon = Gordon::new("g", GordonSpec { gordon: Gordons { replicas, ..Gordons::default() } });
        self.gordons().create(&PostParams::default(), &gordon).await.unwrap()
    }

    pub async fn scale(&self, replicas: i32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.gordons().patch_scale("g", &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pods that are there and do not go.
    pub async fn live_pods(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let live = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        live.map(ResourceExt::name_any).collect()
    }

    pub fn settings(&self) -> RunSettings {
        RunSettings {
            namespaces: vec![self.namespace.name().to_owned()],
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        }
    }

    pub async fn start(&self, config: Config) -> Operating {
        if let Ok(log_level) = std::env::var("LOG_LEVEL") {
            let settings = RunSettings { log_level, ..self.settings() };
            let _logs = wheelhouse::manager::start_logs("gordon-operator", &settings).unwrap();
        }
        let stop = CancellationToken::new();
        let started = gordon_operator::manager().start(config, self.settings(), stop.clone()).await.unwrap();
        Operating { stop, started }
    }
}

pub struct Operating {
    stop: CancellationToken,
    started: Started,
}

impl Operating {
    pub async fn stop(self) {
        self.stop.cancel();
        self.started.finished().await.unwrap();
    }
}
