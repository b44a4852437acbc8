//! A namespace with the CRDs of etcd, and the operator under exactly its rules.

use etcd_operator::{
    Scope,
    api::{
        EtcdCluster, EtcdMember,
        backup::{EtcdBackup, EtcdRestore},
    },
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, CustomResourceExt as _, Resource,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::{RunSettings, Started};
pub use wheelhouse_testing::eventually;
use wheelhouse_testing::{ApiProxy, ControlPlane, Fault, Identity, Namespace};

pub struct Place {
    pub namespace: Namespace,
    pub client: Client,
}

impl Place {
    pub async fn new(purpose: &str) -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        let crds = [EtcdCluster::crd(), EtcdMember::crd(), EtcdBackup::crd(), EtcdRestore::crd()];
        plane.install(&crds).await.unwrap();
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

    /// As people write it: what they leave out is left out, and what is not known is refused.
    pub async fn apply<K>(&self, manifest: Value) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + serde::de::DeserializeOwned,
    {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("kubectl").validation_strict();
        let applied = api.patch(&name, &params, &Patch::Apply(&manifest)).await?;
        Ok(serde_json::from_value(serde_json::to_value(applied).unwrap()).unwrap())
    }

    pub async fn cluster(&self, name: &str, spec: Value) -> kube::Result<EtcdCluster> {
        self.apply(manifest("EtcdCluster", name, spec)).await
    }

    pub async fn backup(&self, name: &str, spec: Value) -> kube::Result<EtcdBackup> {
        self.apply(manifest("EtcdBackup", name, spec)).await
    }

    pub async fn restore(&self, name: &str, spec: Value) -> kube::Result<EtcdRestore> {
        self.apply(manifest("EtcdRestore", name, spec)).await
    }

    /// What kubelet would have written, had the pod run and said so; once it is there.
    pub async fn say_that_it_ended(&self, pod: &str, phase: &str, said: Value) {
        let now = wheelhouse::jiff::Timestamp::now().to_string();
        let code = if phase == "Succeeded" { 0 } else { 1 };
        let pods = self.api::<Pod>();
        eventually("the pod is there", async || pods.get_opt(pod).await.unwrap().is_some()).await;
        let terminated =
            json!({"exitCode": code, "message": said.to_string(), "startedAt": now, "finishedAt": now});
        let container = json!({
            "name": "save", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        });
        let patch = Patch::Merge(json!({"status": {"phase": phase, "containerStatuses": [container]}}));
        pods.patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// What the API server would have written, had a scheduler found one.
    pub async fn say_that_it_has_a_node(&self, pod: &str) {
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let patch = Patch::Merge(json!({"status": {"conditions": [scheduled]}}));
        self.api::<Pod>().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    /// What the operator would have written, had the cluster run this version.
    pub async fn say_that_it_runs(&self, name: &str, version: &str) {
        let patch = Patch::Merge(json!({"status": {"currentVersion": version}}));
        self.api::<EtcdCluster>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Starts the operator, as somebody who may do just what it declares.
    pub async fn start(&self, scope: Scope) -> Operating {
        let identity = self.identity(scope).await;
        self.start_as(scope, identity.config()).await
    }

    /// The same, where this happens to its requests.
    pub async fn start_disturbed(
        &self,
        scope: Scope,
        rule: impl Fn(&str, &str) -> Fault + Send + Sync + 'static,
    ) -> (Operating, ApiProxy) {
        let proxy = ApiProxy::start(&self.identity(scope).await).await.unwrap();
        proxy.disturb(rule);
        (self.start_as(scope, proxy.config()).await, proxy)
    }

    async fn identity(&self, scope: Scope) -> Identity {
        let rules = etcd_operator::manager(scope).rules();
        self.namespace.with_rules(rules).await.unwrap()
    }

    async fn start_as(&self, scope: Scope, config: Config) -> Operating {
        let manager = etcd_operator::manager(scope);
        let settings = RunSettings {
            namespaces: vec![self.namespace.name().to_owned()],
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        };
        let stop = CancellationToken::new();
        let started = manager.start(config, settings, stop.clone()).await.unwrap();
        Operating { stop, started }
    }

    pub async fn names_of<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let all = self.api::<K>().list(&Default::default()).await.unwrap();
        all.items.into_iter().filter_map(|object| object.meta().name.clone()).collect()
    }

    pub async fn create_record(&self, name: &str, spec: Value) -> kube::Result<EtcdMember> {
        let record = EtcdMember::new(name, serde_json::from_value(spec).unwrap());
        self.api::<EtcdMember>().create(&PostParams::default(), &record).await
    }
}

pub fn manifest(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
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
