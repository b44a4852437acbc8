//! `wheelhouse chaos`: trouble for a local cluster.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use wheelhouse_local::{
    Cluster, Progress,
    chaos::{self, Plan, Whom},
};

use crate::{local::interruption, say};

/// What is hit, for how long, and from which seed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # see what would be done
  wheelhouse chaos --selector operator.prgcont.cz/gordon=gordoncluster --for 600 --seed 7 --plan

  # do it: the same again from the same seed
  wheelhouse chaos --selector operator.prgcont.cz/gordon=gordoncluster --for 600 --seed 7

  # the operator, too
  wheelhouse chaos --selector operator.prgcont.cz/gordon=gordoncluster --for 600 \\
      --operator app.kubernetes.io/name=gordon-operator")]
pub(crate) struct Chaos {
    /// The labels of the pods that are hit
    #[arg(long, value_name = "LABELS")]
    selector: String,
    /// Their namespace; all of them by default
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The labels of the operator's pods, to stop it now and then
    #[arg(long, value_name = "LABELS")]
    operator: Option<String>,
    /// For how many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// What happens follows from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Say what would be done, and do nothing
    #[arg(long)]
    plan: bool,
    /// The cluster; by default the only one there is, or the one that kubectl's context selects
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
}

/// Runs it.
pub(crate) async fn run(settings: Chaos) -> Result<()> {
    let cluster = match &settings.cluster {
        Some(name) => Cluster::open(name)?,
        None => Cluster::implied()?,
    };
    let whom = Whom {
        namespace: settings.namespace,
        selector: settings.selector,
        operator_selector: settings.operator,
    };
    let targets = whom.targets(&cluster).await?;
    if targets.pods == 0 {
        bail!("no pod that runs has the labels {}: nothing is done", whom.selector);
    }
    let plan = Plan::new(settings.seed, Duration::from_secs(settings.seconds), &targets);
    if settings.plan {
        return say(plan);
    }
    let interrupted = interruption()?;
    let progress = Progress::shown();
    let outcome = chaos::run(&cluster, &plan, &whom, &progress, interrupted).await;
    progress.clear();
    let outcome = outcome?;
    let ended =
        if outcome.interrupted { "ended early, and everything is healed" } else { "everything is healed" };
    say(format_args!(
        "{} strikes, {} found nothing to hit (seed {}): {ended}",
        outcome.hit, outcome.missed, settings.seed
    ))
}
