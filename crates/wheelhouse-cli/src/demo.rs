//! `wheelhouse demo`: what `make demo` runs.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use wheelhouse_local::{
    Cluster, Error, Progress, Request, Shape,
    demo::{Demo, Running, Source},
};

use crate::{local::interruption, say};

const CLUSTER: &str = "demo";
const NODES: u8 = 3;

/// The verbs of `wheelhouse demo`.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Install every operator of this tree with its samples, on a local cluster of three nodes
    #[command(after_help = "\
Examples:
  wheelhouse demo up
  wheelhouse demo up --kubeconfig ~/.kube/config --registry registry.example.com/team")]
    Up(Where),
    /// Undo it
    #[command(after_help = "\
Examples:
  wheelhouse demo down
  wheelhouse demo down --kubeconfig ~/.kube/config")]
    Down(Where),
}

/// Where the demo runs.
#[derive(Args)]
pub(crate) struct Where {
    /// The tree that has `deploy/`, `images/` and `operators/`
    #[arg(long, default_value = ".")]
    tree: PathBuf,
    /// Use the cluster of this kubeconfig instead of a local one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The registry that the images go through, for a cluster that is not local
    #[arg(long, value_name = "HOST/PATH")]
    registry: Option<String>,
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Up(place) => up(place).await,
        Verb::Down(place) => down(place).await,
    }
}

async fn up(place: Where) -> Result<()> {
    let demo = Demo::read(&place.tree)?;
    let progress = Progress::shown();
    let running = match (&place.kubeconfig, &place.registry) {
        (Some(_), None) => bail!(
            "a cluster that is not local takes its images from a registry: say which, as in `make demo KUBECONFIG=... REGISTRY=registry.example.com/team`"
        ),
        (None, Some(_)) => {
            bail!("a registry is of use only with a cluster that is not local: say which with KUBECONFIG=...")
        }
        (Some(kubeconfig), Some(registry)) => {
            let client = wheelhouse_local::cluster::client(kubeconfig).await?;
            tokio::select! {
                running = demo.install(&client, Source::Registry(registry), &progress) => running?,
                () = interruption()? => bail!("interrupted: run it again to go on, or `make demo-down KUBECONFIG=...`"),
            }
        }
        (None, None) => {
            let request = Request { name: CLUSTER.to_owned(), shape: Shape::Nodes(NODES) };
            let cluster = Cluster::up(&request, &progress, interruption()?).await?;
            let client = cluster.client().await?;
            tokio::select! {
                running = demo.install(&client, Source::Nodes(&cluster), &progress) => running?,
                () = interruption()? => bail!("interrupted; the cluster is up: run it again to go on, or `make demo-down`"),
            }
        }
    };
    progress.clear();
    say(table(&running))?;
    say("Try next:")?;
    // What root has started, root looks after.
    let sudo = if std::env::var_os("SUDO_USER").is_some() { "sudo " } else { "" };
    for (command, what) in next_commands(place.kubeconfig.is_some()) {
        let sudo = if command.starts_with("target") { sudo } else { "" };
        say(format_args!("  {:<65} {what}", format!("{sudo}{command}")))?;
    }
    Ok(())
}

async fn down(place: Where) -> Result<()> {
    let progress = Progress::shown();
    let done = match &place.kubeconfig {
        Some(kubeconfig) => {
            let client = wheelhouse_local::cluster::client(kubeconfig).await?;
            Demo::read(&place.tree)?.uninstall(&client, &progress).await
        }
        None => match Cluster::down(CLUSTER, &progress).await {
            Err(Error::UnknownCluster { .. }) => return say("there is no demo to take down"),
            done => done,
        },
    };
    progress.clear();
    done.context("the demo could not be taken down")
}

fn table(running: &[Running]) -> String {
    let head = ["NAMESPACE", "POD", "READY", "NODE", "IMAGE"];
    let row = |pod: &'_ Running| -> [String; 5] {
        let ready = if pod.ready { "yes" } else { "no" };
        [&pod.namespace, &pod.pod, ready, &pod.node, &pod.image].map(str::to_owned)
    };
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(running.iter().map(row)).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:<width$}", width = width(column).unwrap_or_default()));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn next_commands(elsewhere: bool) -> Vec<(&'static str, &'static str)> {
    if elsewhere {
        return vec![
            ("kubectl get pods -A -o wide", "what runs where"),
            ("make demo-down KUBECONFIG=...", "undo it all"),
        ];
    }
    vec![
        ("target/release/wheelhouse local status", "how the cluster is"),
        ("target/release/wheelhouse local kubectl get pods -A -o wide", "what runs where"),
        ("target/release/wheelhouse local node cut node-3", "pull a node's plug"),
        ("make demo-down", "undo it all"),
    ]
}
