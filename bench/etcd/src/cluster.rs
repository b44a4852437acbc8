//! The figures of real clusters, on a local cluster with three nodes.
//!
//! The way through: [`stage`] is the local cluster and what people do there; [`health`] decides whether a
//! cluster of etcd is healthy, by asking etcd; [`writing`] writes all the time.

mod health;
mod stage;
mod writing;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use health::Wanted;
use stage::Stage;
use writing::{To, Writing};

use crate::{
    mebibytes,
    options::{Figure, Options},
    results::{Measure, Results},
};

/// The version that is measured, and the one that an upgrade begins with.
const VERSION: &str = "3.6.16";
const OLD_VERSION: &str = "3.5.35";
/// The cluster that is measured, and the one that is upgraded.
const NAME: &str = "db";
const OLD_NAME: &str = "old";

/// In the order in which a round goes through them.
const STEPS: [Step; 9] = [
    Step { figure: Figure::Apply, label: "apply to 3 healthy members", at_most: 12.0, peer: "22.0 s" },
    Step { figure: Figure::Grow, label: "3 to 5 members", at_most: 8.0, peer: "13.4 s" },
    Step { figure: Figure::Shrink, label: "5 to 3 members", at_most: 1.5, peer: "1.4 s" },
    Step {
        figure: Figure::Follower,
        label: "follower's pod deleted to healthy",
        at_most: 2.5,
        peer: "2.5 s",
    },
    Step { figure: Figure::Two, label: "two of three pods deleted to healthy", at_most: 2.0, peer: "2.0 s" },
    Step { figure: Figure::Three, label: "all three pods deleted to healthy", at_most: 5.0, peer: "5.0 s" },
    Step { figure: Figure::Leader, label: "no writes, leader killed", at_most: 1.1, peer: "1.05 s" },
    Step { figure: Figure::Scale, label: "no writes, 3 to 5 members", at_most: 1.0, peer: "" },
    Step { figure: Figure::Upgrade, label: "no writes, 3.5 to 3.6", at_most: 1.0, peer: "" },
];

/// One figure of a round.
#[derive(Clone, Copy)]
struct Step {
    figure: Figure,
    label: &'static str,
    at_most: f64,
    peer: &'static str,
}

impl Step {
    /// What its samples are of; of what is told by more than one, by whom.
    fn measure(&self, by: &str) -> Measure {
        let measure = Measure::seconds(format!("{}{by}", self.label));
        match by {
            BY_PODS => measure,
            _ if self.peer.is_empty() => measure.at_most(self.at_most),
            _ => measure.at_most(self.at_most).peer(self.peer),
        }
    }
}

/// Measures what is wanted, round by round. What fails is told, and the next figure begins with a new cluster.
pub(super) async fn measure(options: &Options, results: &mut Results) -> Result<()> {
    let stage = Stage::up(options).await?;
    let memory = Measure::new("operator's memory, resident", "MiB").at_most(15.0).peer("48 to 59 MiB");
    // The rest is the program itself, which all copies on a node share.
    let anonymous = Measure::new("operator's memory, anonymous", "MiB");
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for step in STEPS.iter().filter(|step| options.figures.contains(&step.figure)) {
            match take(&stage, step.figure).await {
                Ok(samples) => {
                    for (by, value) in samples {
                        results.add(&step.measure(by), value);
                    }
                }
                Err(why) => {
                    results.add_failure(&step.measure(""), &why);
                    stage.delete(NAME).await.context("cannot begin anew")?;
                    stage.delete(OLD_NAME).await.context("cannot begin anew")?;
                }
            }
        }
        if options.figures.contains(&Figure::Memory) {
            match stage.operator_memory().await {
                Ok(used) => {
                    results.add(&memory, mebibytes(used.resident));
                    results.add(&anonymous, mebibytes(used.anonymous));
                }
                Err(why) => results.add_failure(&memory, &why),
            }
        }
        stage.delete(NAME).await?;
    }
    stage.down()
}

/// What etcd says, and what the status says.
const BY_ETCD: &str = "";
const BY_STATUS: &str = " and the status says so";
const BY_PODS: &str = " and the others' pods are gone";
const BY_SERVICE: &str = " (by the Service)";
const BY_MEMBERS: &str = " (by the members)";

/// One measurement, on a cluster that is healthy before and after.
async fn take(stage: &Stage, figure: Figure) -> Result<Vec<(&'static str, f64)>> {
    match figure {
        Figure::Apply => {
            stage.delete(NAME).await?;
            let begun = Instant::now();
            stage.apply(NAME, 3, VERSION).await?;
            until_healthy(stage, begun, Wanted::new(NAME, 3)).await
        }
        Figure::Grow => grow(stage, 3, 5).await,
        Figure::Shrink => shrink(stage, 5, 3).await,
        Figure::Follower => delete_pods(stage, |leads| !leads, 1).await,
        Figure::Two => delete_pods(stage, |_| true, 2).await,
        Figure::Three => delete_pods(stage, |_| true, 3).await,
        Figure::Leader => {
            stage.ensure(NAME, 3, VERSION).await?;
            without_writes(stage, NAME, 3, async || stage.kill_leader(NAME).await).await
        }
        Figure::Scale => {
            stage.ensure(NAME, 3, VERSION).await?;
            let samples = without_writes(stage, NAME, 5, async || stage.resize(NAME, 5).await).await;
            stage.ensure(NAME, 3, VERSION).await?;
            samples
        }
        Figure::Upgrade => {
            stage.ensure(OLD_NAME, 3, OLD_VERSION).await?;
            let upgrade = async || stage.upgrade(OLD_NAME, VERSION).await;
            let samples = without_writes(stage, OLD_NAME, 3, upgrade).await?;
            stage.delete(OLD_NAME).await?;
            Ok(samples)
        }
        Figure::Memory | Figure::Many => Ok(Vec::new()),
    }
}

async fn until_healthy(stage: &Stage, begun: Instant, wanted: Wanted) -> Result<Vec<(&'static str, f64)>> {
    let etcd = health::wait(stage, begun, &wanted).await?;
    let status = stage.wait_for_status(begun, &wanted).await?;
    Ok(vec![(BY_ETCD, etcd.as_secs_f64()), (BY_STATUS, status.max(etcd).as_secs_f64())])
}

/// A cluster that has settled: etcd lets nobody join or leave before all have been connected for five seconds, and that is not what
/// is measured.
async fn settled(stage: &Stage, size: usize) -> Result<()> {
    stage.ensure(NAME, size, VERSION).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    Ok(())
}

async fn grow(stage: &Stage, from: usize, to: usize) -> Result<Vec<(&'static str, f64)>> {
    settled(stage, from).await?;
    let begun = Instant::now();
    stage.resize(NAME, to).await?;
    until_healthy(stage, begun, Wanted::new(NAME, to)).await
}

/// Who is no member any more has a pod for a while, which is nobody's trouble: when it is gone is told apart.
async fn shrink(stage: &Stage, from: usize, to: usize) -> Result<Vec<(&'static str, f64)>> {
    settled(stage, from).await?;
    let begun = Instant::now();
    stage.resize(NAME, to).await?;
    let wanted = Wanted { pods_may_linger: true, ..Wanted::new(NAME, to) };
    let mut samples = until_healthy(stage, begun, wanted).await?;
    let gone = health::wait(stage, begun, &Wanted::new(NAME, to)).await?;
    samples.push((BY_PODS, gone.as_secs_f64()));
    Ok(samples)
}

/// Deletes so many pods, of leader or followers as it is wanted.
async fn delete_pods(
    stage: &Stage,
    is_meant: impl Fn(bool) -> bool,
    count: usize,
) -> Result<Vec<(&'static str, f64)>> {
    stage.ensure(NAME, 3, VERSION).await?;
    let leader = stage.leader(NAME).await?;
    let seats = stage.seats(NAME).now().await?;
    let meant: Vec<_> = seats.into_iter().filter(|seat| is_meant(seat.name == leader)).take(count).collect();
    let begun = Instant::now();
    stage.delete_pods(&meant).await?;
    let gone = meant.into_iter().map(|seat| seat.uid).collect();
    until_healthy(stage, begun, Wanted { gone, ..Wanted::new(NAME, 3) }).await
}

/// The longest pause between two acknowledged writes while this is done, until the cluster is healthy again.
async fn without_writes(
    stage: &Stage,
    name: &str,
    size: usize,
    disturb: impl AsyncFnOnce() -> Result<()>,
) -> Result<Vec<(&'static str, f64)>> {
    let by_service = Writing::start(&To::Service(stage.service_address(name).await?));
    let by_members = Writing::start(&To::Members(stage.seats(name).into()));
    let writings = [(BY_SERVICE, &by_service), (BY_MEMBERS, &by_members)];
    for (_, writing) in writings {
        writing.goes_on(stage.patience()).await?;
        writing.forget();
    }
    disturb().await?;
    health::wait(stage, Instant::now(), &Wanted::new(name, size)).await?;
    stage.wait_for_status(Instant::now(), &Wanted::new(name, size)).await?;
    let mut samples = Vec::new();
    for (by, writing) in writings {
        writing.goes_on(stage.patience()).await?;
        samples.push((by, writing.longest_pause()?.as_secs_f64()));
    }
    Ok(samples)
}
