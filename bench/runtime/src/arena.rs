//! The API server that all contestants are measured on, and who acts there.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use tokio::time::Instant;
use wheelhouse_local::progress::Progress;
use wheelhouse_testing::{ControlPlane, Identity, Mark, Namespace, Requests, rule};

use crate::{
    contestants::Contestant,
    options::Options,
    run::Run,
    widget::{self, Payload},
    world::World,
};

/// A contestant that has written nothing for so long is done.
const QUIET: Duration = Duration::from_secs(2);

/// A real API server with everything in it that contestants need.
pub(crate) struct Arena<'a> {
    /// How the run was asked for.
    pub(crate) options: &'a Options,
    /// What the person who waits sees.
    pub(crate) progress: &'a Progress,
    control_plane: ControlPlane,
    client: Client,
    namespace: Namespace,
}

/// A contestant with an identity of its own, by which its requests are told from those of others.
pub(crate) struct Player {
    /// The contestant.
    pub(crate) contestant: Contestant,
    identity: Identity,
    kubeconfig: PathBuf,
}

impl Player {
    /// What it is called in the results.
    pub(crate) fn name(&self) -> &'static str {
        self.contestant.entry.name
    }

    /// Whom the API server knows it as.
    pub(crate) fn user(&self) -> String {
        self.identity.user()
    }
}

impl<'a> Arena<'a> {
    /// Starts the API server and installs the Widgets' definition.
    pub(crate) async fn open(options: &'a Options, progress: &'a Progress) -> Result<Self> {
        let stage = progress.stage("starting etcd and the API server");
        let control_plane = ControlPlane::start().await?;
        let client = control_plane.client()?;
        widget::install(&client).await?;
        let namespace = control_plane.namespace("bench").await?;
        stage.done();
        Ok(Self { options, progress, control_plane, client, namespace })
    }

    /// Gives each contestant an identity that may do what its operator needs, everywhere.
    pub(crate) async fn admit(&self, contestants: Vec<Contestant>) -> Result<Vec<Player>> {
        let mut players = Vec::new();
        for contestant in contestants {
            let rules = vec![
                rule(&["*"], widget::GROUP, &["widgets", "widgets/status", "widgets/finalizers"]),
                rule(&["*"], "", &["configmaps", "events"]),
                rule(&["*"], "events.k8s.io", &["events"]),
            ];
            let identity = self.namespace.with_cluster_rules(rules).await?;
            let kubeconfig = identity.kubeconfig()?;
            players.push(Player { contestant, identity, kubeconfig });
        }
        Ok(players)
    }

    /// The version that the API server says it is.
    pub(crate) async fn kubernetes_version(&self) -> Result<String> {
        let version = self.client.apiserver_version().await.context("cannot ask the API server's version")?;
        Ok(version.git_version)
    }

    /// A new world; whatever was there before is deleted.
    pub(crate) async fn world(&self, size: usize, payload: Payload) -> Result<World> {
        let patience = self.options.patience;
        World::make(&self.client, self.namespace.name(), size, payload, patience, self.progress).await
    }

    /// Starts a contestant's program on a world.
    pub(crate) fn start(&self, player: &Player, world: &World) -> Result<Run> {
        let (workers, logs) = (self.options.workers, self.control_plane.folder());
        Run::start(&player.contestant, &player.kubeconfig, workers, world.size(), logs)
    }

    /// Starts a contestant's program on a world that has not converged, and waits until it has.
    pub(crate) async fn converge(&self, player: &Player, world: &mut World) -> Result<Run> {
        let mut run = self.start(player, world)?;
        let what = format!("{}: converging {} Widgets", player.name(), world.size());
        let converged = world.converged(self.progress, what);
        run.while_running("converge", self.options.patience, converged).await?;
        Ok(run)
    }

    /// This moment in the sequence of requests.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        Ok(self.control_plane.mark().await?)
    }

    /// What everybody asked since a moment.
    pub(crate) async fn requests_since(&self, mark: &Mark) -> Result<Requests> {
        Ok(self.control_plane.requests_since(mark).await?)
    }

    /// What a contestant has written since a moment, once it writes no more.
    pub(crate) async fn writes_until_quiet(&self, player: &Player, mark: &Mark) -> Result<Requests> {
        let deadline = Instant::now() + self.options.patience;
        let mut before = None;
        loop {
            let writes = counted_writes(&player.identity.requests_since(mark).await?);
            if before == Some(writes.len()) {
                return Ok(writes);
            }
            if Instant::now() > deadline {
                bail!("{} does not stop writing; so far:\n{writes}", player.name());
            }
            before = Some(writes.len());
            tokio::time::sleep(QUIET).await;
        }
    }
}

/// The writes that count: those to Widgets, their status and ConfigMaps. Events and leases do not.
fn counted_writes(requests: &Requests) -> Requests {
    const COUNTED: [&str; 3] = ["widgets", "widgets/status", "configmaps"];
    requests.writes().filter(|request| COUNTED.contains(&request.resource.as_str()))
}
