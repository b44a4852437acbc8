//! [`Crowd`]: all the simulated clusters. It plays their kubelets and supervisors whenever something changes.

use std::{
    collections::{BTreeMap, HashSet},
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use etcd_operator::{
    api::{EtcdCluster, EtcdMember},
    children::CLUSTER_LABEL,
    simulation::Simulation,
};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
    runtime::{WatchStreamExt as _, watcher},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

/// Addresses of simulated members are here, so many for each cluster.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const ADDRESSES: u32 = 256;
/// So many clusters are played at the same time.
const PLAYERS: usize = 8;
/// Everything that could make something ready is looked at again after so long, if nothing happens.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// All the clusters. Cheap to clone; what plays them ends with the last one.
#[derive(Clone)]
pub(super) struct Crowd(Arc<Inner>);

struct Inner {
    client: Client,
    namespace: String,
    patience: Duration,
    clusters: Vec<Arc<Simulation>>,
    seen: Arc<Seen>,
    _playing: JoinSet<()>,
}

/// What watches told, and who has to be looked at.
struct Seen {
    world: Mutex<World>,
    /// Who waits for a change of each cluster hears of it here.
    changed: Vec<Notify>,
    queue: mpsc::UnboundedSender<usize>,
    queued: Mutex<HashSet<usize>>,
}

#[derive(Default)]
struct World {
    clusters: BTreeMap<usize, EtcdCluster>,
    pods: BTreeMap<usize, BTreeMap<String, Pod>>,
    volumes: BTreeMap<usize, BTreeMap<String, PersistentVolumeClaim>>,
}

impl Crowd {
    /// So many clusters, of which nothing is there yet.
    pub(super) fn gather(client: Client, namespace: &str, size: usize, patience: Duration) -> Self {
        let clusters: Vec<_> = (0..size)
            .map(|number| Arc::new(Simulation::new(namespace, &name(number), first_address(number))))
            .collect();
        let (queue, queued) = mpsc::unbounded_channel();
        let seen = Arc::new(Seen {
            world: Mutex::default(),
            changed: clusters.iter().map(|_| Notify::new()).collect(),
            queue,
            queued: Mutex::default(),
        });
        let mut playing = JoinSet::new();
        playing.spawn(watch_clusters(client.clone(), namespace.to_owned(), seen.clone()));
        playing.spawn(watch_all(client.clone(), namespace.to_owned(), seen.clone(), |world, number| {
            world.pods.entry(number).or_default()
        }));
        playing.spawn(watch_all(client.clone(), namespace.to_owned(), seen.clone(), |world, number| {
            world.volumes.entry(number).or_default()
        }));
        playing.spawn(watch_records(client.clone(), namespace.to_owned(), seen.clone()));
        let played = Played { client: client.clone(), clusters: clusters.clone(), seen: seen.clone() };
        playing.spawn(played.play(queued));
        Self(Arc::new(Inner {
            client,
            namespace: namespace.to_owned(),
            patience,
            clusters,
            seen,
            _playing: playing,
        }))
    }

    /// How many clusters there are.
    pub(super) fn size(&self) -> usize {
        self.0.clusters.len()
    }

    /// One of the clusters; another for each number that is near.
    pub(super) fn pick(&self, number: usize) -> usize {
        number % self.size().max(1)
    }

    /// One that is none of these.
    pub(super) fn pick_other(&self, taken: &[usize]) -> usize {
        (0..self.size()).rev().find(|number| !taken.contains(number)).unwrap_or_default()
    }

    /// Whose address this is.
    pub(super) fn members_at(&self, address: &str) -> Option<(usize, &Arc<Simulation>)> {
        let address: Ipv4Addr = address.split(':').next()?.parse().ok()?;
        let number = u32::from(address).checked_sub(u32::from(FIRST_ADDRESS))? / ADDRESSES;
        let number = usize::try_from(number).ok()?;
        Some((number, self.0.clusters.get(number)?))
    }

    /// Something about that cluster may have changed.
    pub(super) fn look_at(&self, number: usize) {
        self.0.seen.look_at(number);
    }

    fn api(&self) -> Api<EtcdCluster> {
        Api::namespaced(self.0.client.clone(), &self.0.namespace)
    }

    /// Creates all of them, so many at a time.
    pub(super) async fn create_all(&self, at_a_time: usize) -> Result<()> {
        let api = self.api();
        stream::iter(0..self.size())
            .map(Ok)
            .try_for_each_concurrent(at_a_time, |number| {
                let api = api.clone();
                async move {
                    let spec = serde_json::from_value(json!({"size": 3}))?;
                    api.create(&PostParams::default(), &EtcdCluster::new(&name(number), spec)).await?;
                    Ok::<_, anyhow::Error>(())
                }
            })
            .await
    }

    /// Waits until all have so many members, and say so.
    pub(super) async fn all_ready(&self, size: usize) -> Result<()> {
        // It may take long, but not long without any progress. All begin at once, so the first is ready only when much is done for all.
        let patience = self.0.patience + Duration::from_secs(self.size() as u64);
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let ready = (0..self.size()).filter(|number| self.is_ready(*number, size, None)).count();
            if ready == self.size() {
                return Ok(());
            }
            if ready > most {
                (most, since) = (ready, Instant::now());
            }
            if since.elapsed() > patience {
                bail!("only {ready} of {} clusters are ready", self.size());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether etcd has so many members, and the status of this generation, or a later one, says that all of them
    /// are ready.
    fn is_ready(&self, number: usize, size: usize, generation: Option<i64>) -> bool {
        let world = self.0.seen.world.lock();
        let Some(status) = world.clusters.get(&number).and_then(|cluster| cluster.status.as_ref()) else {
            return false;
        };
        let is_ready = status.conditions.iter().any(|each| each.type_ == "Ready" && each.status == "True");
        let voters = self.0.clusters.get(number).map_or(0, |members| members.names().len());
        let told = usize::try_from(status.ready_members).unwrap_or_default();
        is_ready && (voters, told) == (size, size) && status.observed_generation >= generation
    }

    /// Another size is wanted of one; how long until it has it, and says so.
    pub(super) async fn resize(&self, number: usize, size: usize) -> Result<Duration> {
        let begun = Instant::now();
        let patch = Patch::Merge(json!({"spec": {"size": size}}));
        let changed = self.api().patch(&name(number), &PatchParams::default(), &patch).await?;
        let generation = changed.metadata.generation;
        self.until(number, begun, || self.is_ready(number, size, generation)).await
    }

    /// A member of one loses its data; how long until another has taken its place, and the status says so.
    pub(super) async fn lose_a_member(&self, number: usize) -> Result<Duration> {
        let Some(members) = self.0.clusters.get(number) else { bail!("there is no cluster {number}") };
        let before = members.names();
        let Some(victim) = before.last() else { bail!("{} has no members", name(number)) };
        let begun = Instant::now();
        members.wipe(victim);
        self.look_at(number);
        let is_replaced = || !members.names().contains(victim) && self.is_ready(number, before.len(), None);
        self.until(number, begun, is_replaced).await
    }

    async fn until(&self, number: usize, begun: Instant, is_so: impl Fn() -> bool) -> Result<Duration> {
        let Some(changed) = self.0.seen.changed.get(number) else { bail!("there is no cluster {number}") };
        loop {
            let changed = changed.notified();
            if is_so() {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > self.0.patience {
                let world = self.0.seen.world.lock();
                let status = world.clusters.get(&number).and_then(|cluster| cluster.status.clone());
                bail!("{} did not follow within {:?}: {status:#?}", name(number), self.0.patience);
            }
            let _ = tokio::time::timeout(LOOK_AGAIN_AFTER, changed).await;
        }
    }
}

fn name(number: usize) -> String {
    format!("db{number}")
}

fn number_in(name: &str) -> Option<usize> {
    name.strip_prefix("db")?.parse().ok()
}

fn first_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or_default();
    Ipv4Addr::from(u32::from(FIRST_ADDRESS) + number * ADDRESSES)
}

impl Seen {
    fn look_at(&self, number: usize) {
        if self.queued.lock().insert(number) {
            // Fails only when nobody plays any more.
            let _ = self.queue.send(number);
        }
    }

    /// The world has changed for that cluster.
    fn note(&self, number: usize, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock());
        if let Some(changed) = self.changed.get(number) {
            changed.notify_waiters();
        }
        self.look_at(number);
    }
}

/// Who plays kubelets and supervisors.
#[derive(Clone)]
struct Played {
    client: Client,
    clusters: Vec<Arc<Simulation>>,
    seen: Arc<Seen>,
}

impl Played {
    async fn play(self, queued: mpsc::UnboundedReceiver<usize>) {
        let queued = stream::unfold(queued, async |mut queued| Some((queued.recv().await?, queued)));
        queued.for_each_concurrent(PLAYERS, |number| self.clone().play_one(number)).await;
    }

    async fn play_one(self, number: usize) {
        self.seen.queued.lock().remove(&number);
        let Some(members) = self.clusters.get(number) else { return };
        let (pods, volumes): (Vec<_>, Vec<_>) = {
            let world = self.seen.world.lock();
            let pods = world.pods.get(&number).map(|pods| pods.values().cloned().collect());
            let volumes = world.volumes.get(&number).map(|volumes| volumes.values().cloned().collect());
            (pods.unwrap_or_default(), volumes.unwrap_or_default())
        };
        members.play(&self.client, &pods, &volumes).await;
    }
}

/// Every change of a kind; a watch that breaks is begun anew.
fn changes<K>(client: Client, namespace: &str) -> impl stream::Stream<Item = (K, bool)> + use<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::namespaced(client, namespace);
    watcher(api, watcher::Config::default()).default_backoff().filter_map(|event| {
        future::ready(match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => Some((object, true)),
            Ok(watcher::Event::Delete(object)) => Some((object, false)),
            _ => None,
        })
    })
}

async fn watch_clusters(client: Client, namespace: String, seen: Arc<Seen>) {
    let mut changes = std::pin::pin!(changes::<EtcdCluster>(client, &namespace));
    while let Some((cluster, _)) = changes.next().await {
        if let Some(number) = number_in(&cluster.name_any()) {
            seen.note(number, |world| drop(world.clusters.insert(number, cluster)));
        }
    }
}

/// Keeps the objects of a kind, by cluster and name.
async fn watch_all<K>(
    client: Client,
    namespace: String,
    seen: Arc<Seen>,
    of: impl Fn(&mut World, usize) -> &mut BTreeMap<String, K>,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let mut changes = std::pin::pin!(changes::<K>(client, &namespace));
    while let Some((object, is_there)) = changes.next().await {
        let Some(number) = cluster_of(&object) else { continue };
        seen.note(number, |world| {
            let objects = of(world, number);
            match is_there {
                true => drop(objects.insert(object.name_any(), object)),
                false => drop(objects.remove(&object.name_any())),
            }
        });
    }
}

/// What is intended of members is read when they are played.
async fn watch_records(client: Client, namespace: String, seen: Arc<Seen>) {
    let mut changes = std::pin::pin!(changes::<EtcdMember>(client, &namespace));
    while let Some((record, _)) = changes.next().await {
        if let Some(number) = cluster_of(&record) {
            seen.look_at(number);
        }
    }
}

fn cluster_of(object: &impl Resource) -> Option<usize> {
    number_in(object.meta().labels.as_ref()?.get(CLUSTER_LABEL)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_has_addresses_of_its_own() {
        assert_eq!(first_address(0), Ipv4Addr::new(10, 0, 0, 0));
        assert_eq!(first_address(1999), Ipv4Addr::new(10, 7, 207, 0));
        assert_eq!(number_in(&name(17)), Some(17));
    }
}
