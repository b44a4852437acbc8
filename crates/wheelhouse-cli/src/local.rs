//! `wheelhouse local`: clusters on this machine.

use std::{
    future::Future,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use wheelhouse_local::{
    Cluster, Error, Progress, Request, Shape,
    binaries::Binaries,
    cluster::{Health, Status},
    kubeconfig,
    progress::tell,
};

use crate::{nobody_reads, say};

const DEFAULT_NAME: &str = "dev";

/// The verbs of `wheelhouse local`.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Bring a cluster up, or complete one that is there
    #[command(after_help = "\
Examples:
  wheelhouse local up                        a cluster called `dev` with one node
  wheelhouse local up demo --nodes 3         a cluster called `demo` with three nodes
  wheelhouse local up api --control-plane-only
                                             only the control plane; needs no root

The context `wheelhouse-NAME` is added to your kubeconfig and selected.
Run it again at any time: it starts what does not run and leaves alone what does.")]
    Up(Up),
    /// Take a cluster down; nothing of it remains
    #[command(after_help = "\
Examples:
  wheelhouse local down                      the cluster called `dev`
  wheelhouse local down demo --if-exists     no error if there is none")]
    Down {
        /// The cluster
        #[arg(default_value = DEFAULT_NAME)]
        name: String,
        /// Succeed when there is no such cluster
        #[arg(long)]
        if_exists: bool,
    },
    /// Tell how the clusters on this machine are
    #[command(after_help = "\
Examples:
  wheelhouse local status
  wheelhouse local status --output json")]
    Status {
        /// Only this cluster
        name: Option<String>,
        /// How to print it
        #[arg(long, short, value_enum, default_value = "table")]
        output: Output,
    },
    /// Print the path of a cluster's kubeconfig
    #[command(after_help = "\
Example:
  kubectl --kubeconfig $(wheelhouse local kubeconfig demo) get nodes")]
    Kubeconfig {
        /// The cluster; by default the only one, or the one whose context is selected
        name: Option<String>,
    },
    /// Build Kubernetes into the cache ahead of time; `up` does it too
    #[command(after_help = "\
Example:
  wheelhouse local prepare                   ten minutes on two cores the first time, then nothing")]
    Prepare,
    /// Load the images of an archive into every node
    #[command(after_help = "\
Examples:
  docker save my-image:1.0 -o my-image.tar && wheelhouse local load my-image.tar
  wheelhouse local load --cluster demo my-image.tar")]
    Load {
        #[command(flatten)]
        which: Which,
        /// What `docker save` or `buildah push ... docker-archive:` wrote
        image: PathBuf,
    },
    /// Print the log of a component
    #[command(after_help = "\
Examples:
  wheelhouse local logs kube-apiserver
  wheelhouse local logs node-2/kubelet --follow
  wheelhouse local logs coredns --cluster demo")]
    Logs {
        #[command(flatten)]
        which: Which,
        /// As in `kube-apiserver` or `node-1/kubelet`
        component: String,
        /// Go on as it grows, until interrupted
        #[arg(long, short)]
        follow: bool,
    },
    /// Cut a node off from the rest, or heal it
    #[command(subcommand)]
    Node(NodeVerb),
    /// Run kubectl against a cluster
    #[command(after_help = "\
Examples:
  wheelhouse local kubectl get nodes
  wheelhouse local kubectl --cluster demo apply -f app.yaml    (before kubectl's own words)")]
    Kubectl {
        /// The cluster; by default the only one, or the one whose context is selected
        #[arg(long)]
        cluster: Option<String>,
        /// What kubectl is given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        args: Vec<String>,
    },
}

/// What `up` takes.
#[derive(Args)]
pub(crate) struct Up {
    /// The cluster: lower-case letters, digits and dashes
    #[arg(default_value = DEFAULT_NAME)]
    name: String,
    /// How many nodes; more than before adds nodes to a cluster that is there [default: as it is, or 1]
    #[arg(long, value_name = "N", conflicts_with = "control_plane_only")]
    nodes: Option<u8>,
    /// Only etcd, API server, controller manager and scheduler, on loopback; needs no root
    #[arg(long)]
    control_plane_only: bool,
    /// The API server's port [default: a free one]
    #[arg(long, value_name = "PORT", requires = "control_plane_only")]
    port: Option<u16>,
}

/// Which cluster a verb is about.
#[derive(Args)]
pub(crate) struct Which {
    /// The cluster; by default the only one, or the one whose context is selected
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
}

impl Which {
    fn open(self) -> Result<Cluster, Error> {
        self.cluster.map_or_else(Cluster::implied, |name| Cluster::open(&name))
    }
}

/// The verbs of `wheelhouse local node`.
#[derive(Subcommand)]
pub(crate) enum NodeVerb {
    /// Pull a node's plug: it reaches nothing, and nothing reaches it
    #[command(after_help = "Example:\n  wheelhouse local node cut node-2")]
    Cut {
        #[command(flatten)]
        which: Which,
        /// As in `node-1`
        node: String,
    },
    /// Put a node's plug in again
    #[command(after_help = "Example:\n  wheelhouse local node heal node-2")]
    Heal {
        #[command(flatten)]
        which: Which,
        /// As in `node-1`
        node: String,
    },
}

/// How a table is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Up(request) => up(request).await?,
        Verb::Down { name, if_exists } => down(&name, if_exists).await?,
        Verb::Status { name, output } => status(name, output).await?,
        Verb::Kubeconfig { name } => say(Which { cluster: name }.open()?.kubeconfig().display())?,
        Verb::Prepare => {
            let progress = Progress::shown();
            let binaries = Binaries::ensure(&progress).await;
            progress.clear();
            say(binaries?.folder().display())?;
        }
        Verb::Load { which, image } => {
            for name in which.open()?.load(&image).await? {
                say(format_args!("loaded {name}"))?;
            }
        }
        Verb::Logs { which, component, follow } => logs(&which.open()?.log(&component)?, follow).await?,
        Verb::Node(NodeVerb::Cut { which, node }) => {
            which.open()?.set_connected(&node, false).await?;
            say(format_args!("{node} is cut off; Kubernetes calls it NotReady within a minute"))?;
        }
        Verb::Node(NodeVerb::Heal { which, node }) => {
            which.open()?.set_connected(&node, true).await?;
            say(format_args!("{node} is connected again"))?;
        }
        Verb::Kubectl { cluster, args } => return kubectl(Which { cluster }.open()?, args).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(request: Up) -> Result<()> {
    let interruption = interruption()?;
    let shape = match request.nodes {
        Some(count) => Shape::Nodes(count),
        None if request.control_plane_only => Shape::ControlPlaneOnly { port: request.port },
        None => Cluster::open(&request.name).map_or(Shape::Nodes(1), |existing| existing.shape()),
    };
    let progress = Progress::shown();
    let begun = std::time::Instant::now();
    let cluster = Cluster::up(&Request { name: request.name, shape }, &progress, interruption).await;
    progress.clear();
    let cluster = cluster?;
    let (name, context) = (cluster.name(), kubeconfig::context(cluster.name()));
    let seconds = begun.elapsed().as_secs_f64();
    say(format_args!("cluster {name} is up ({seconds:.1} s); kubectl's context is {context}"))?;
    say(format_args!(
        "next: `wheelhouse local kubectl get nodes`, `wheelhouse local status`, `wheelhouse local down {name}`"
    ))
}

/// Listens from now on; the future ends when the user or the system asks us to stop.
pub(crate) fn interruption() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

async fn down(name: &str, if_exists: bool) -> Result<()> {
    let progress = Progress::shown();
    let outcome = Cluster::down(name, &progress).await;
    progress.clear();
    match outcome {
        Err(Error::UnknownCluster { .. }) if if_exists => Ok(()),
        outcome => Ok(outcome?),
    }
}

async fn status(name: Option<String>, output: Output) -> Result<()> {
    let names = match &name {
        Some(name) => vec![name.clone()],
        None => Cluster::names()?,
    };
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    for each in names {
        match Cluster::open(&each) {
            Ok(cluster) => all.push(cluster.status().await?),
            // It went down while we looked, or its record is damaged; the others are still to be told.
            Err(Error::UnknownCluster { .. }) if name.is_none() => {}
            Err(error @ Error::Malformed { .. }) if name.is_none() => unreadable.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    for error in unreadable {
        tell(format_args!("warning: {error}"));
    }
    match output {
        Output::Json => say(serde_json::to_string_pretty(&all)?),
        Output::Table if all.is_empty() => say("no clusters; `wheelhouse local up` makes one"),
        Output::Table => say(table(&all).trim_end()),
    }
}

fn table(all: &[Status]) -> String {
    let mut text =
        format!("{:<16} {:<12} {:<28} {:<24} {}\n", "NAME", "STATE", "API SERVER", "CREATED", "NODES");
    for status in all {
        let (state, advice) = match &status.health {
            Health::Running => ("running", None),
            Health::Unfinished => {
                ("unfinished", Some("`up` is at work or was killed: run it again, or `down`".to_owned()))
            }
            Health::HalfDead { missing } => (
                "half dead",
                Some(format!("not running: {}; `up` starts them, `down` clears it away", missing.join(", "))),
            ),
            Health::Dead => {
                ("dead", Some("nothing of it runs: `up` starts it again, `down` clears it away".to_owned()))
            }
        };
        let nodes: Vec<_> = status
            .nodes
            .iter()
            .map(|node| {
                let ready = match node.ready {
                    Some(true) => "ready",
                    Some(false) => "not ready",
                    None => "unknown",
                };
                format!(
                    "{} {ready}{}",
                    node.name,
                    if node.connected == Some(false) { " (cut off)" } else { "" }
                )
            })
            .collect();
        let created = status.created.strftime("%Y-%m-%d %H:%M:%S").to_string();
        text.push_str(&format!(
            "{:<16} {state:<12} {:<28} {created:<24} {}\n",
            status.name,
            status.server,
            nodes.join(", ")
        ));
        if let Some(advice) = advice {
            text.push_str(&format!("  {advice}\n"));
        }
    }
    text
}

async fn logs(path: &std::path::Path, follow: bool) -> Result<()> {
    let mut file =
        std::fs::File::open(path).with_context(|| format!("cannot open the log {}", path.display()))?;
    loop {
        match std::io::copy(&mut file, &mut std::io::stdout().lock()) {
            Err(error) if nobody_reads(&error) => return Ok(()),
            copied => copied.map(drop).context("cannot print")?,
        }
        if !follow {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Becomes kubectl, so that terminals, signals and exit codes are its own.
async fn kubectl(cluster: Cluster, args: Vec<String>) -> Result<ExitCode> {
    let kubectl = Binaries::ensure_there(&Progress::shown()).await?.program("kubectl");
    let mut command = Command::new(&kubectl);
    command.args(args).env("KUBECONFIG", cluster.kubeconfig());
    for proxy in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", kubectl.display()))
}

#[cfg(test)]
mod tests {
    use wheelhouse_local::cluster::NodeStatus;

    use super::*;

    #[test]
    fn the_table_tells_how_each_cluster_is_and_what_to_do() {
        let node = |name: &str, connected, ready| NodeStatus { name: name.to_owned(), connected, ready };
        let status = |name: &str, health, nodes| Status {
            name: name.to_owned(),
            health,
            server: "https://198.18.0.2:6443".to_owned(),
            created: "2026-01-02T03:04:05Z".parse().unwrap(),
            nodes,
        };
        let missing = vec!["node-2/kubelet".to_owned()];
        insta::assert_snapshot!(table(&[
            status("fine", Health::Running, vec![node("node-1", Some(true), Some(true))]),
            status(
                "half",
                Health::HalfDead { missing },
                vec![node("node-1", Some(false), Some(false)), node("node-2", None, None)]
            ),
            status("dead", Health::Dead, Vec::new()),
            status("killed", Health::Unfinished, Vec::new()),
        ]));
    }
}
