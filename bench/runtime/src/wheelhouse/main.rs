//! The contestant on this SDK: keeps one ConfigMap for every Widget.
//!
//! With `--declared-fields` the cache holds only what a decision needs: digests
//! of the Widgets' specs and the metadata of the ConfigMaps; what has to be
//! written is read when it is written.

mod declared;
mod tally;
mod whole;
mod widget;

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
};
use tally::Tally;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use wheelhouse::{Controller, Manager, manager::RunSettings};

/// What every contestant is called with, and a flag of our own.
#[derive(Parser)]
struct Options {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    workers: NonZeroUsize,
    /// How many distinct resources are there
    #[arg(long)]
    expect: usize,
    #[arg(long)]
    declared_fields: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig).context("cannot read the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    let tally = Arc::new(Tally::new(options.expect));
    let manager = Manager::new("bench");
    let metrics = manager.metrics().clone();
    tally.count_with(metrics);
    let manager = if options.declared_fields {
        let operator = declared::Widgets { tally: tally.clone() };
        manager.controller(Controller::new(operator).named("widgets").owns::<PartialObjectMeta<ConfigMap>>())
    } else {
        let operator = whole::Widgets { tally: tally.clone() };
        manager.controller(Controller::new(operator).named("widgets").owns::<ConfigMap>())
    };
    let settings = RunSettings {
        no_leader_election: true,
        workers: Some(options.workers),
        listen: ([127, 0, 0, 1], 0).into(),
        ..RunSettings::default()
    };
    let stop = CancellationToken::new();
    let running = manager.start(config, settings, stop.clone()).await?;
    signal(SignalKind::terminate())?.recv().await;
    stop.cancel();
    running.finished().await?;
    tally.tell("stats");
    Ok(())
}
