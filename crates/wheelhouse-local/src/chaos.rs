//! Chaos for whole clusters: kills, stops, fills and cuts off what runs, from a seed,
//! and heals everything at the end.
//!
//! Invariants:
//! - What is done is known before anything is: a [`Plan`] follows from the seed, the time
//!   and how much there is to hit. The same again gives the same plan. Pods come and go, so
//!   a plan says which of those that run just then, in the order of their names.
//! - Whatever lasts is healed: at its end, when the time is over, and when whoever
//!   runs this asks for it to stop.
//! - Never more than one node is cut off, and never everything that runs is stopped at
//!   the same time: what a cluster cannot survive tells nothing.

use std::{
    fmt,
    future::Future,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use nix::sys::signal::Signal;

use crate::{
    cluster::Cluster,
    error::{Error, Result},
    processes,
    progress::Progress,
    random::Random,
    volumes::SIZED_CLASS,
};

/// Between two strikes there is at least so much time to recover.
const PAUSE: Duration = Duration::from_secs(5);
/// What lasts, lasts between these.
const LASTS: [u64; 2] = [3, 15];

/// How much can be hit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// How many pods.
    pub pods: usize,
    /// How many pods of the operator that looks after them.
    pub operators: usize,
    /// How many of the pods have volumes that can be filled.
    pub with_volumes: usize,
    /// The nodes.
    pub nodes: Vec<String>,
}

/// Whom chaos is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whom {
    /// The namespace of the pods; none for all.
    pub namespace: Option<String>,
    /// The labels of the pods.
    pub selector: String,
    /// The labels of the pods of the operator that looks after them, if it is to be hit, too.
    pub operator_selector: Option<String>,
}

/// What is done. Pods are said by their place among those that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blow {
    /// The pod is deleted, without any grace.
    DeletePod(usize),
    /// Its processes are killed.
    KillProcesses(usize),
    /// Its processes are stopped (SIGSTOP) for a while.
    StopProcesses(usize),
    /// Its volumes have no room left for a while.
    FillVolumes(usize),
    /// The operator's processes are stopped for a while.
    StopOperator(usize),
    /// The node is cut off from everything else for a while.
    CutNode(String),
    /// Nothing on the node reaches the API server for a while; everything else it reaches.
    BlockApiServer(String),
}

impl fmt::Display for Blow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeletePod(place) => write!(formatter, "delete pod {}", place + 1),
            Self::KillProcesses(place) => write!(formatter, "kill the processes of pod {}", place + 1),
            Self::StopProcesses(place) => write!(formatter, "stop the processes of pod {}", place + 1),
            Self::FillVolumes(place) => write!(formatter, "fill the volumes of pod {}", place + 1),
            Self::StopOperator(place) => write!(formatter, "stop the operator in pod {}", place + 1),
            Self::CutNode(node) => write!(formatter, "cut off {node}"),
            Self::BlockApiServer(node) => write!(formatter, "keep {node} from the API server"),
        }
    }
}

/// What is done when, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// When, from the beginning.
    pub at: Duration,
    /// What.
    pub blow: Blow,
    /// For how long; nothing, if it does not last.
    pub lasts: Duration,
}

impl fmt::Display for Strike {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:>4} s: {}", self.at.as_secs(), self.blow)?;
        if !self.lasts.is_zero() {
            write!(formatter, " for {} s", self.lasts.as_secs())?;
        }
        Ok(())
    }
}

/// Everything that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Strike after strike.
    pub strikes: Vec<Strike>,
}

impl Plan {
    /// What follows from a seed, for that long: the same again from the same.
    pub fn new(seed: u64, time: Duration, targets: &Targets) -> Self {
        let mut random = Random::from_seed(seed);
        let mut strikes = Vec::new();
        let mut at = PAUSE;
        while at + PAUSE < time {
            let Some(blow) = blow(&mut random, targets) else { break };
            let does_last = !matches!(blow, Blow::DeletePod(_) | Blow::KillProcesses(_));
            let [least, most] = LASTS;
            let lasts = if does_last { least + random.below(most - least + 1) } else { 0 };
            // The last one has to be healed within the time.
            let lasts = Duration::from_secs(lasts).min(time.saturating_sub(at + PAUSE));
            strikes.push(Strike { at, blow, lasts });
            at += lasts + PAUSE + Duration::from_secs(random.below(6));
        }
        Self { strikes }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.strikes.iter().try_for_each(|strike| writeln!(formatter, "{strike}"))
    }
}

fn blow(random: &mut Random, targets: &Targets) -> Option<Blow> {
    type OfPods = fn(usize) -> Blow;
    type OfNodes = fn(String) -> Blow;
    let of_pods: [(usize, OfPods); 5] = [
        (targets.pods, Blow::DeletePod),
        (targets.pods, Blow::KillProcesses),
        (targets.pods, Blow::StopProcesses),
        (targets.with_volumes, Blow::FillVolumes),
        (targets.operators, Blow::StopOperator),
    ];
    let of_pods: Vec<_> = of_pods.into_iter().filter(|(count, _)| *count > 0).collect();
    let of_nodes: &[OfNodes] =
        if targets.nodes.len() > 1 { &[Blow::CutNode, Blow::BlockApiServer] } else { &[] };
    let kind = random.index(of_pods.len() + of_nodes.len())?;
    match of_pods.get(kind) {
        Some((count, make)) => random.index(*count).map(make),
        None => {
            let make = of_nodes.get(kind - of_pods.len())?;
            targets.nodes.get(random.index(targets.nodes.len())?).cloned().map(make)
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many strikes hit something.
    pub hit: usize,
    /// How many found nothing there to hit, such as a pod that was not running just then.
    pub missed: usize,
    /// Whether somebody asked for it to end early.
    pub interrupted: bool,
}

impl Whom {
    /// How much there is to hit, and the cluster's nodes.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn targets(&self, cluster: &Cluster) -> Result<Targets> {
        let client = cluster.client().await?;
        Ok(Targets {
            pods: self.pods(&client).await?.len(),
            operators: self.operators(&client).await?.len(),
            with_volumes: self.with_volumes(&client).await?.len(),
            nodes: cluster.node_names(),
        })
    }

    async fn pods(&self, client: &Client) -> Result<Vec<Pod>> {
        running(client, &self.selector, self.namespace.as_deref()).await
    }

    async fn operators(&self, client: &Client) -> Result<Vec<Pod>> {
        match &self.operator_selector {
            Some(selector) => running(client, selector, None).await,
            None => Ok(Vec::new()),
        }
    }

    async fn with_volumes(&self, client: &Client) -> Result<Vec<Pod>> {
        let mut found = Vec::new();
        for pod in self.pods(client).await? {
            if !volumes_of(client, &pod).await?.is_empty() {
                found.push(pod);
            }
        }
        Ok(found)
    }

    /// The pod that a blow is for, if it is for one and there is any.
    async fn victim(&self, client: &Client, blow: &Blow) -> Result<Option<Pod>> {
        let (mut pods, place) = match blow {
            Blow::DeletePod(place) | Blow::KillProcesses(place) | Blow::StopProcesses(place) => {
                (self.pods(client).await?, *place)
            }
            Blow::FillVolumes(place) => (self.with_volumes(client).await?, *place),
            Blow::StopOperator(place) => (self.operators(client).await?, *place),
            Blow::CutNode(_) | Blow::BlockApiServer(_) => return Ok(None),
        };
        // There may be fewer than when the plan was made.
        let place = place.checked_rem(pods.len());
        Ok(place.map(|place| pods.swap_remove(place)))
    }
}

/// The pods that run, in the order of their names.
async fn running(client: &Client, selector: &str, namespace: Option<&str>) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = pods.list(&ListParams::default().labels(selector)).await;
    let mut found = found.map_err(Error::api("see which pods there are"))?.items;
    let runs =
        |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
    found.retain(|pod| runs(pod) && pod.metadata.deletion_timestamp.is_none());
    found.sort_by_key(name_of);
    Ok(found)
}

fn name_of(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Does what the plan says, and heals everything; also when `interrupted` ends early.
pub async fn run(
    cluster: &Cluster,
    plan: &Plan,
    whom: &Whom,
    progress: &Progress,
    interrupted: impl Future<Output = ()>,
) -> Result<Outcome> {
    let client = cluster.client().await?;
    let began = Instant::now();
    let mut outcome = Outcome::default();
    tokio::pin!(interrupted);
    for strike in &plan.strikes {
        let wait = strike.at.saturating_sub(began.elapsed());
        if tokio::time::timeout(wait, &mut interrupted).await.is_ok() {
            outcome.interrupted = true;
            break;
        }
        let victim = whom.victim(&client, &strike.blow).await?;
        let name = victim.as_ref().map(|pod| format!(" ({})", name_of(pod)));
        progress.line(format!("{strike}{}", name.unwrap_or_default()));
        let Some(wound) = hit(cluster, &client, &strike.blow, victim).await? else {
            progress.line("        nothing there to hit");
            outcome.missed += 1;
            continue;
        };
        outcome.hit += 1;
        let is_over = tokio::time::timeout(strike.lasts, &mut interrupted).await.is_ok();
        heal(cluster, wound).await?;
        if is_over {
            outcome.interrupted = true;
            break;
        }
    }
    Ok(outcome)
}

/// What has to be undone.
enum Wound {
    None,
    Stopped(Vec<i32>),
    Filled { node: String, volumes: Vec<PathBuf> },
    Cut(String),
    Blocked(String),
}

async fn hit(cluster: &Cluster, client: &Client, blow: &Blow, victim: Option<Pod>) -> Result<Option<Wound>> {
    let pod = match (blow, victim) {
        (Blow::CutNode(node), _) => {
            cluster.set_connected(node, false).await?;
            return Ok(Some(Wound::Cut(node.clone())));
        }
        (Blow::BlockApiServer(node), _) => {
            cluster.set_api_server_reachable(node, false).await?;
            return Ok(Some(Wound::Blocked(node.clone())));
        }
        (_, None) => return Ok(None),
        (_, Some(pod)) => pod,
    };
    Ok(match blow {
        Blow::DeletePod(_) => {
            let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            match pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await {
                Ok(_) => Some(Wound::None),
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                Err(error) => return Err(Error::api(format!("delete pod {}", name_of(&pod)))(error)),
            }
        }
        Blow::KillProcesses(_) => {
            let found = processes_of(&pod)?;
            found.iter().for_each(|pid| processes::signal(*pid, Signal::SIGKILL));
            (!found.is_empty()).then_some(Wound::None)
        }
        Blow::StopProcesses(_) | Blow::StopOperator(_) => {
            let found = processes_of(&pod)?;
            found.iter().for_each(|pid| processes::signal(*pid, Signal::SIGSTOP));
            (!found.is_empty()).then_some(Wound::Stopped(found))
        }
        Blow::FillVolumes(_) => fill_volumes(cluster, client, &pod).await?,
        Blow::CutNode(_) | Blow::BlockApiServer(_) => None,
    })
}

async fn heal(cluster: &Cluster, wound: Wound) -> Result<()> {
    match wound {
        Wound::None => {}
        Wound::Stopped(pids) => pids.iter().for_each(|pid| processes::signal(*pid, Signal::SIGCONT)),
        Wound::Filled { node, volumes } => {
            for volume in volumes {
                cluster.set_room(&node, &volume, true).await?;
            }
        }
        Wound::Cut(node) => cluster.set_connected(&node, true).await?,
        Wound::Blocked(node) => cluster.set_api_server_reachable(&node, true).await?,
    }
    Ok(())
}

async fn fill_volumes(cluster: &Cluster, client: &Client, pod: &Pod) -> Result<Option<Wound>> {
    let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return Ok(None) };
    let mut filled = Vec::new();
    for volume in volumes_of(client, pod).await? {
        match cluster.set_room(&node, &volume, false).await {
            Ok(true) => filled.push(volume),
            Ok(false) => {}
            Err(error) => {
                heal(cluster, Wound::Filled { node, volumes: filled }).await?;
                return Err(error);
            }
        }
    }
    Ok((!filled.is_empty()).then_some(Wound::Filled { node, volumes: filled }))
}

/// Where those volumes of a pod are, on its node, that have a file system of their own.
async fn volumes_of(client: &Client, pod: &Pod) -> Result<Vec<PathBuf>> {
    let namespace = pod.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let looking = || Error::api(format!("look at the volumes of pod {}", name_of(pod)));
    let mut found = Vec::new();
    let used = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for claim in used.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
        let claim = claims.get_opt(&claim.claim_name).await.map_err(looking())?;
        let Some(claim) = claim.and_then(|claim| claim.spec) else { continue };
        if claim.storage_class_name.as_deref() != Some(SIZED_CLASS) {
            continue;
        }
        let Some(volume) = claim.volume_name else { continue };
        let volume = volumes.get_opt(&volume).await.map_err(looking())?;
        found.extend(volume.and_then(|volume| Some(PathBuf::from(volume.spec?.local?.path))));
    }
    Ok(found)
}

/// The processes of a pod on this host, those that hold its namespaces aside.
fn processes_of(pod: &Pod) -> Result<Vec<i32>> {
    let Some(uid) = pod.uid() else { return Ok(Vec::new()) };
    // systemd's way of writing control groups has underscores.
    let marks = [format!("pod{uid}"), format!("pod{}", uid.replace('-', "_"))];
    let mut pids = Vec::new();
    let entries = std::fs::read_dir("/proc").map_err(Error::file("list", Path::new("/proc")))?;
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let groups = read("cgroup");
        if marks.iter().any(|mark| groups.contains(mark)) && read("comm").trim() != "pause" {
            pids.push(pid);
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Targets {
        let nodes = ["node-1", "node-2"].map(str::to_owned).to_vec();
        Targets { pods: 2, operators: 1, with_volumes: 1, nodes }
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        let plan = |seed| Plan::new(seed, Duration::from_secs(600), &targets());
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
        assert!(plan(1).strikes.len() > 30, "{}", plan(1));
    }

    #[test]
    fn strikes_do_not_overlap_and_all_is_healed_within_the_time() {
        for seed in 0..50 {
            let time = Duration::from_secs(120);
            let plan = Plan::new(seed, time, &targets());
            for pair in plan.strikes.windows(2) {
                assert!(pair[0].at + pair[0].lasts + PAUSE <= pair[1].at, "{plan}");
            }
            let last = plan.strikes.last().unwrap();
            assert!(last.at + last.lasts + PAUSE <= time, "{plan}");
        }
    }

    #[test]
    fn every_kind_of_blow_is_struck() {
        let plan = Plan::new(7, Duration::from_secs(3600), &targets()).to_string();
        for words in [
            "delete pod",
            "kill the processes",
            "stop the processes",
            "fill the volumes of pod 1",
            "stop the operator",
            "cut off",
            "keep node",
        ] {
            assert!(plan.contains(words), "no {words}: {plan}");
        }
    }

    #[test]
    fn where_there_is_nothing_to_hit_nothing_is_planned() {
        assert_eq!(Plan::new(1, Duration::from_secs(600), &Targets::default()).strikes, []);
        let one_node = Targets { nodes: vec!["node-1".to_owned()], ..Targets::default() };
        assert_eq!(
            Plan::new(1, Duration::from_secs(600), &one_node).strikes,
            [],
            "the only node is never cut off"
        );
    }
}
