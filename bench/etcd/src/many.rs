//! Hundreds and thousands of clusters on one operator, with simulated members: a real API server, no nodes.
//!
//! The way through: [`crowd`] is all the clusters, and plays their kubelets and supervisors; [`network`] is how
//! the operator reaches their members; [`operator`] is its process.

mod crowd;
mod network;
mod operator;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use crowd::Crowd;
use etcd_operator::api::{
    EtcdCluster, EtcdMember,
    backup::{EtcdBackup, EtcdRestore},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::CustomResourceExt as _;
use network::Network;
use operator::Operator;
use wheelhouse_bench::process_usage;
use wheelhouse_testing::{ControlPlane, Identity, Namespace};

use crate::{
    mebibytes,
    options::Options,
    results::{Measure, Results},
};

/// Between a change that took effect and the next one.
const PAUSE: Duration = Duration::from_millis(200);
/// So many clusters are changed at the same time by us.
const HANDS: usize = 16;
/// How many members clusters have, and how many more are wanted of those that are changed.
const SIZE: usize = 3;
const LARGER: usize = 5;
/// The loop of the original operator, which looked at one cluster after the other.
const ORIGINAL: &str = "71 s a loop at 200";

/// Everything that is measured with so many clusters.
pub(super) async fn measure(options: &Options, clusters: usize, results: &mut Results) -> Result<()> {
    eprintln!("{clusters} simulated clusters: starting etcd, the API server and the operator");
    let plane = ControlPlane::start().await?;
    let kinds = [EtcdCluster::crd(), EtcdMember::crd(), EtcdBackup::crd(), EtcdRestore::crd()];
    plane.install(&kinds).await?;
    let namespace = plane.namespace("bench").await?;
    let identity =
        namespace.with_rules(etcd_operator::manager(etcd_operator::Scope::OwnNamespace).rules()).await?;
    let crowd = Crowd::gather(namespace.client()?, namespace.name(), clusters, options.patience);
    let network = Network::open(crowd.clone(), plane.folder())?;
    let operator = Operator::start(&identity, namespace.name(), network.socket(), plane.folder())?;
    let round = Round { options, crowd, network, operator, namespace, identity, results };
    round.run().await.with_context(|| format!("with {clusters} simulated clusters"))
}

struct Round<'a> {
    options: &'a Options,
    crowd: Crowd,
    network: Network,
    operator: Operator,
    namespace: Namespace,
    identity: Identity,
    results: &'a mut Results,
}

impl Round<'_> {
    async fn run(mut self) -> Result<()> {
        self.begin().await?;
        self.idle().await?;
        let clusters = self.crowd.size();
        for round in 0..usize::from(self.options.rounds) {
            eprintln!("{clusters} simulated clusters: round {} of {}", round + 1, self.options.rounds);
            self.one_by_one(round).await?;
            self.a_tenth_at_once(round).await?;
        }
        let memory = process_usage::memory(self.operator.pid())?;
        self.add("memory, resident, at the end", "MiB", mebibytes(memory.resident));
        self.add("memory, peak", "MiB", mebibytes(memory.peak));
        Ok(())
    }

    fn add(&mut self, what: &str, unit: &'static str, value: f64) {
        let measure = Measure::new(format!("{} clusters: {what}", self.crowd.size()), unit);
        self.results.add(&measure, value);
    }

    fn add_time(&mut self, what: &str, took: Duration) {
        let measure = Measure::seconds(format!("{} clusters: {what}", self.crowd.size())).peer(ORIGINAL);
        self.results.add(&measure, took.as_secs_f64());
    }

    /// All clusters are made, and become ready.
    async fn begin(&mut self) -> Result<()> {
        let begun = Instant::now();
        self.crowd.create_all(HANDS).await?;
        self.operator.while_running(self.crowd.all_ready(SIZE)).await?;
        self.add("all made and ready", "s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Nothing happens: what does that cost?
    async fn idle(&mut self) -> Result<()> {
        // What came of the beginning has settled by then.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let time = Duration::from_secs(self.options.idle_seconds);
        let (pid, mark) = (self.operator.pid(), self.namespace.mark().await?);
        let (cpu, dialled) = (process_usage::cpu_time(pid)?, self.network.dialled());
        let nothing_happens = async {
            tokio::time::sleep(time).await;
            Ok(())
        };
        self.operator.while_running(nothing_happens).await?;
        let seconds = time.as_secs_f64().max(1.0);
        let cpu = process_usage::cpu_time(pid)?.saturating_sub(cpu);
        let dialled = self.network.dialled() - dialled;
        let requests = self.identity.requests_since(&mark).await?;
        let requests = requests.filter(|request| request.verb != "watch");
        if !requests.is_empty() {
            eprintln!("requests while nothing happens:\n{requests}");
        }
        let memory = process_usage::memory(pid)?;
        self.add("idle: processor", "% of a core", cpu.as_secs_f64() / seconds * 100.0);
        self.add("idle: API calls", "a minute", requests.len() as f64 / seconds * 60.0);
        self.add("idle: connections to members", "a second", dialled as f64 / seconds);
        self.add("idle: memory, resident", "MiB", mebibytes(memory.resident));
        self.add("idle: memory, anonymous", "MiB", mebibytes(memory.anonymous));
        self.add("idle: threads", "", process_usage::threads(pid)? as f64);
        Ok(())
    }

    /// Some clusters grow, and some lose a member, one after the other while all others are idle.
    async fn one_by_one(&mut self, round: usize) -> Result<()> {
        for change in 0..self.options.changes {
            let number = self.crowd.pick(round * self.options.changes + change);
            let grown = self.operator.while_running(self.crowd.resize(number, LARGER)).await?;
            self.add_time("3 to 5, others idle", grown);
            let shrunk = self.operator.while_running(self.crowd.resize(number, SIZE)).await?;
            self.add_time("5 to 3, others idle", shrunk);
            let replaced = self.operator.while_running(self.crowd.lose_a_member(number)).await?;
            self.add_time("member lost to replaced, others idle", replaced);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// A tenth of the clusters grow at once, and one more is changed in the middle of that.
    async fn a_tenth_at_once(&mut self, round: usize) -> Result<()> {
        let tenth = (self.crowd.size() / 10).max(1);
        let numbers: Vec<_> = (0..tenth).map(|each| self.crowd.pick(round + each * 10)).collect();
        let outsider = self.crowd.pick_other(&numbers);
        let begun = Instant::now();
        let crowd = &self.crowd;
        let all = stream::iter(numbers.clone())
            .map(|number| crowd.resize(number, LARGER))
            .buffer_unordered(tenth)
            .try_collect::<Vec<_>>();
        let one = async {
            tokio::time::sleep(PAUSE).await;
            crowd.resize(outsider, LARGER).await
        };
        let both = async { tokio::try_join!(all, one) };
        let (each, one) = self.operator.while_running(both).await?;
        let whole = begun.elapsed();
        self.add_time("3 to 5, while a tenth change", one);
        for took in each {
            self.add_time("3 to 5, each of the tenth", took);
        }
        self.add("a tenth 3 to 5, all of them", "s", whole.as_secs_f64());
        let back = stream::iter(numbers.into_iter().chain([outsider]))
            .map(|number| self.crowd.resize(number, SIZE))
            .buffer_unordered(HANDS)
            .try_collect::<Vec<_>>();
        self.operator.while_running(back).await.map(drop)
    }
}
