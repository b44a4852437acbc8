//! A namespace with the CDN's CRDs, and the operator under exactly its rules.

use cdn_operator::api::{CdnCluster, CdnClusterStatus, CdnPurge, State};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, CustomResourceExt as _, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wheelhouse::{
    Manager,
    manager::{RunSettings, Started},
};
pub use wheelhouse_testing::eventually;
use wheelhouse_testing::{ControlPlane, Namespace};

pub struct Place {
    pub namespace: Namespace,
    pub client: Client,
}

impl Place {
    pub async fn new(purpose: &str) -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        plane.install(&[CdnCluster::crd(), CdnPurge::crd()]).await.unwrap();
        let namespace = plane.namespace(purpose).await.unwrap();
        let client = namespace.client().unwrap();
        Self { namespace, client }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create<K>(&self, name: &str, spec: Value) -> kube::Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        // As people write it: what they leave out is left out.
        let resource = kube::api::ApiResource::erase::<K>(&());
        let object = kube::api::DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        let api: Api<kube::api::DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let created = api.create(&PostParams::default(), &object).await?;
        Ok(serde_json::from_value(serde_json::to_value(created).unwrap()).unwrap())
    }

    pub async fn cluster(&self, name: &str, spec: Value) -> CdnCluster {
        self.create(name, spec).await.unwrap()
    }

    pub async fn edit(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<CdnCluster>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn status(&self, name: &str) -> CdnClusterStatus {
        self.api::<CdnCluster>().get(name).await.unwrap().status.unwrap_or_default()
    }

    pub async fn state(&self, name: &str) -> Option<State> {
        self.status(name).await.state
    }

    pub async fn has_deployment(&self, name: &str) -> bool {
        self.api::<Deployment>().get_opt(&format!("{name}-deployment")).await.unwrap().is_some()
    }

    /// A pod of a cluster that takes requests; here there is no kubelet to say so.
    pub async fn ready_pod(&self, cluster: &str) {
        let pods = self.api::<Pod>();
        let pod = json!({
            "metadata": {"generateName": format!("{cluster}-"), "labels": {"cluster.anevia.com/cluster": cluster}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        let patch = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let name = pod.metadata.name.unwrap();
        pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub fn settings(&self) -> RunSettings {
        RunSettings {
            namespaces: vec![self.namespace.name().to_owned()],
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        }
    }

    /// Starts the operator, as somebody who may do just what it declares.
    pub async fn start(&self, manager: Manager) -> Operating {
        let identity = self.namespace.with_rules(manager.rules()).await.unwrap();
        let stop = CancellationToken::new();
        let started = manager.start(identity.config(), self.settings(), stop.clone()).await.unwrap();
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
