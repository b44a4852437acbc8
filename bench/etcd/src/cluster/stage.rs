//! [`Stage`]: a local cluster with the operator, and what people do there.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use etcd_operator::{
    api::{EtcdCluster, EtcdMember},
    etcd::{self, Tcp},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wheelhouse_bench::{
    LocalCluster,
    process_usage::{self, Memory},
};

use super::health::{self, Wanted};
use crate::options::Options;

const CLUSTER: &str = "bench-etcd";
const NAMESPACE: &str = "default";
const NODES: usize = 3;
const IMAGES: [&str; 3] = ["etcd-v3.5.35", "etcd-v3.6.16", "etcd-operator"];
/// How often is looked for what has to become so.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a member may take to say who leads.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Run by the shell of a pod: kills etcd itself, not its supervisor.
const KILL_ETCD: &str = r#"for p in /proc/[0-9]*; do if [ "$(cat $p/comm 2>/dev/null)" = etcd ]; then kill -9 ${p#/proc/}; fi; done"#;

/// The local cluster; it ends with this.
pub(super) struct Stage {
    cluster: LocalCluster,
    client: Client,
    patience: Duration,
}

/// Where a member sits.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// The name of its pod.
    pub(super) name: String,
    /// This very pod.
    pub(super) uid: String,
    /// Where clients reach it, once it has an address.
    pub(super) address: Option<String>,
    /// Whether the pod is being deleted.
    pub(super) is_leaving: bool,
}

/// Where the members of a cluster sit.
pub(super) struct Seats {
    pods: Api<Pod>,
    selector: String,
}

impl Seats {
    /// As it is now.
    pub(super) async fn now(&self) -> Result<Vec<Seat>> {
        let pods = self.pods.list(&ListParams::default().labels(&self.selector)).await?;
        Ok(pods.items.into_iter().map(seat).collect())
    }
}

fn seat(pod: Pod) -> Seat {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
    Seat {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        address: address.map(|address| format!("{address}:2379")),
        is_leaving: pod.metadata.deletion_timestamp.is_some(),
    }
}

impl Stage {
    /// Brings it up, with the operator.
    pub(super) async fn up(options: &Options) -> Result<Self> {
        let cluster = tokio::task::block_in_place(|| {
            let cluster = LocalCluster::up(&options.wheelhouse, CLUSTER, NODES)?;
            cluster.load(&IMAGES)?;
            cluster.install_operator("deploy/etcd-cluster-wide.yaml", "etcd-operator")?;
            Ok::<_, anyhow::Error>(cluster)
        })?;
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()?)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { cluster, client: Client::try_from(config)?, patience: options.patience })
    }

    /// Takes it down.
    pub(super) fn down(self) -> Result<()> {
        tokio::task::block_in_place(|| self.cluster.down())
    }

    /// How long anything may take.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Where the members of that cluster sit.
    pub(super) fn seats(&self, name: &str) -> Seats {
        Seats { pods: self.api(), selector: format!("etcd_cluster={name}") }
    }

    /// As people apply it.
    pub(super) async fn apply(&self, name: &str, size: usize, version: &str) -> Result<()> {
        let cluster = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdCluster",
            "metadata": {"name": name, "annotations": {"etcd.database.coreos.com/scope": "clusterwide"}},
            "spec": {"size": size, "version": version, "deletionPolicy": "Delete", "storage": {"size": "1Gi"}},
        });
        let params = PatchParams::apply("bench-etcd").force();
        self.api::<EtcdCluster>().patch(name, &params, &Patch::Apply(cluster)).await?;
        Ok(())
    }

    /// A healthy cluster of that size: the one that is there, or a new one.
    pub(super) async fn ensure(&self, name: &str, size: usize, version: &str) -> Result<()> {
        self.apply(name, size, version).await?;
        let (begun, wanted) = (Instant::now(), Wanted::new(name, size));
        health::wait(self, begun, &wanted).await?;
        self.wait_for_status(begun, &wanted).await.map(drop)
    }

    /// Deletes a cluster, if it is there, and waits until nothing is left of it.
    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        match self.api::<EtcdCluster>().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
        self.eventually(&format!("{name} is gone"), async || {
            let left = self.count::<Pod>(name).await?
                + self.count::<PersistentVolumeClaim>(name).await?
                + self.count::<EtcdMember>(name).await?;
            Ok(left == 0)
        })
        .await
        .map(drop)
    }

    async fn count<K>(&self, name: &str) -> Result<usize>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let ours = ListParams::default().labels(&format!("etcd_cluster={name}"));
        Ok(self.api::<K>().list(&ours).await?.items.len())
    }

    /// Waits until the status says that this is so; for how long since `begun`.
    pub(super) async fn wait_for_status(&self, begun: Instant, wanted: &Wanted) -> Result<Duration> {
        let size = i32::try_from(wanted.size)?;
        let what = format!("the status of {} says that {size} members are ready", wanted.name);
        self.eventually(&what, async || {
            let cluster = self.api::<EtcdCluster>().get(&wanted.name).await?;
            let status = cluster.status.unwrap_or_default();
            let is_ready =
                status.conditions.iter().any(|each| each.type_ == "Ready" && each.status == "True");
            let is_meant = status.observed_generation == cluster.metadata.generation;
            Ok(is_ready && is_meant && (status.size, status.ready_members) == (size, size))
        })
        .await?;
        Ok(begun.elapsed())
    }

    async fn eventually(&self, what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_so().await? {
            if begun.elapsed() > self.patience {
                bail!("waited {:?} in vain: {what}", self.patience);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Another size is wanted.
    pub(super) async fn resize(&self, name: &str, size: usize) -> Result<()> {
        self.change(name, json!({"size": size})).await
    }

    /// Another version is wanted; waits until all members have it.
    pub(super) async fn upgrade(&self, name: &str, version: &str) -> Result<()> {
        self.change(name, json!({"version": version})).await?;
        self.eventually(&format!("all members of {name} run {version}"), async || {
            let status = self.api::<EtcdCluster>().get(name).await?.status.unwrap_or_default();
            Ok(status.current_version == version)
        })
        .await
    }

    async fn change(&self, name: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<EtcdCluster>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The pod of the leader.
    pub(super) async fn leader(&self, name: &str) -> Result<String> {
        for seat in self.seats(name).now().await? {
            let Some(address) = &seat.address else { continue };
            let asked = async {
                let client = etcd::Client::connect(Arc::new(Tcp), address, ANSWERS_WITHIN).await?;
                client.status().await
            };
            let status = asked.await.with_context(|| format!("{} does not say who leads", seat.name))?;
            if status.header.unwrap_or_default().member_id == status.leader {
                return Ok(seat.name);
            }
        }
        bail!("nobody leads {name}")
    }

    /// Kills the process of the leader.
    pub(super) async fn kill_leader(&self, name: &str) -> Result<()> {
        let leader = self.leader(name).await?;
        let exec = ["exec", "-n", NAMESPACE, &leader, "--", "sh", "-c", KILL_ETCD];
        tokio::task::block_in_place(|| self.cluster.kubectl(&exec)).map(drop)
    }

    /// Deletes these very pods, and does not wait.
    pub(super) async fn delete_pods(&self, seats: &[Seat]) -> Result<()> {
        let pods = self.api::<Pod>();
        for seat in seats {
            pods.delete(&seat.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Where clients reach whoever is ready.
    pub(super) async fn service_address(&self, name: &str) -> Result<String> {
        let service = self.api::<Service>().get(&format!("{name}-client")).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        address.map(|address| format!("{address}:2379")).with_context(|| format!("{name} has no address"))
    }

    /// The memory of the operator: of the copy that has more, which is the one that leads.
    pub(super) async fn operator_memory(&self) -> Result<Memory> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "wheelhouse-system");
        let ours = ListParams::default().labels("app.kubernetes.io/name=etcd-operator");
        let uids: Vec<_> = pods.list(&ours).await?.iter().filter_map(|pod| pod.uid()).collect();
        let used = operators_of(&uids)?.into_iter().map(process_usage::memory);
        let used = used.collect::<Result<Vec<_>>>()?;
        used.into_iter()
            .max_by_key(|used| used.resident)
            .ok_or_else(|| anyhow!("no process of the operator is found"))
    }
}

/// The processes of the operator in these pods, which the kernel names by their control groups.
fn operators_of(pods: &[String]) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end meanwhile.
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let groups = read("cgroup").replace('_', "-");
        // The other process of a pod only holds its namespaces.
        if read("comm").trim() != "pause" && pods.iter().any(|uid| groups.contains(uid.as_str())) {
            found.push(pid);
        }
    }
    Ok(found)
}
