//! [`Manager`]: holds it all together: one client, one cache, the election, the
//! controllers, and what people and Kubernetes look at.

mod access;
mod crds;
mod explaining;
mod http;
mod leader;
mod logs;
mod manifests;
mod settings;
#[cfg(feature = "opentelemetry")]
mod traces;

use std::{collections::HashSet, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use clap::FromArgMatches as _;
use futures::future::join_all;
use k8s_openapi::{
    api::rbac::v1::PolicyRule,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Client, Config};
use tokio::{signal::unix, sync::watch};
use tokio_util::sync::CancellationToken;

use access::Access;
pub use crds::with_version;
use leader::{Candidate, ElectionSettings};
pub use logs::{Logs, start_logs};
use manifests::Installation;
use settings::{CommandLine, ManifestSettings, Verb};
pub use settings::{LogFormat, RunSettings};

use crate::{
    cache::{Cache, Namespaces},
    client::{Fence, connect},
    controller::{AnyController, Controller, Declared, Surroundings, Work},
    decisions::DecisionLog,
    error::{Category, Error, Result},
    metrics::Metrics,
    operator::Operator,
    rbac::{self, Agent},
    webhooks::{Scope, Serving, Webhooks},
};

/// How long running steps may take to finish when the process is to end.
const GRACE: Duration = Duration::from_secs(20);

/// An operator's process.
pub struct Manager {
    name: String,
    version: String,
    controllers: Vec<Box<dyn AnyController>>,
    crds: Vec<CustomResourceDefinition>,
    images: Vec<(&'static str, String)>,
    agents: Vec<Agent>,
    webhooks: Webhooks,
    metrics: Metrics,
    is_for_its_own_namespace: bool,
}

impl Manager {
    /// A process by this name. It is also the name of the Lease, of the
    /// ServiceAccount, and the first part of the field managers' names.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: "0.0.0".to_owned(),
            controllers: Vec::new(),
            crds: Vec::new(),
            images: Vec::new(),
            agents: Vec::new(),
            webhooks: Webhooks::new(),
            metrics: Metrics::default(),
            is_for_its_own_namespace: false,
        }
    }

    /// The operator's version, which its CRDs and manifests carry.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn controller<O: Operator>(mut self, controller: Controller<O>) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Adds a kind of the operator's own. What `kubectl explain` says of it is the sentence above its spec, unless its type
    /// has one (`doc`).
    #[must_use]
    pub fn crd(mut self, crd: CustomResourceDefinition) -> Self {
        self.crds.push(crds::described(crds::without_unknown_formats(crd)));
        self
    }

    /// An image that the operator runs: the Deployment names it in this variable,
    /// where whoever mirrors images finds and changes it.
    #[must_use]
    pub fn image(mut self, variable: &'static str, image: impl Into<String>) -> Self {
        self.images.push((variable, image.into()));
        self
    }

    /// Somebody else of this operator's who talks to the API server, under rules of
    /// its own: see [`Agent`].
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// What CEL cannot say: see [`Webhooks`].
    #[must_use]
    pub fn webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = webhooks;
        self
    }

    /// Looks at the namespace that it runs in (`MY_POD_NAMESPACE`) and at no other, unless it is told
    /// which, or to look at all of them with `--cluster-wide`.
    #[must_use]
    pub fn looks_at_its_own_namespace(mut self) -> Self {
        self.is_for_its_own_namespace = true;
        self
    }

    /// What `/metrics` shows; an operator may add its own.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The program: reads the command line and does what it says.
    pub fn main(self) -> ExitCode {
        let command = settings::command(&self.name, &self.version, self.is_for_its_own_namespace);
        let arguments = settings::with_verb(std::env::args_os());
        let outcome = match CommandLine::from_arg_matches(&command.get_matches_from(arguments)) {
            Ok(line) => self.carry_out(line.verb),
            Err(error) => error.exit(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn carry_out(self, verb: Verb) -> Result<()> {
        let installation = self.installation();
        match verb {
            Verb::Crds => print!("{}", installation.crds()?),
            Verb::Rbac(place) => print!("{}", installation.rbac(&place)?),
            Verb::Manifests(settings) => print!("{}", installation.all(&settings)?),
            Verb::Run(settings) => {
                let _logs = start_logs(&self.name, &settings)?;
                with_cluster(async |config| self.run(config, settings, stop_on_signal()?).await)?;
            }
            Verb::Plan(settings) => {
                let text = with_cluster(async |config| self.plan_file(config, &settings).await)?;
                print!("{text}");
            }
            Verb::Record(settings) => {
                let text = with_cluster(async |config| self.record(config, &settings).await)?;
                explaining::write(settings.output.as_deref(), &text)?;
            }
            Verb::Replay(settings) => print!("{}", self.replay_file(&settings.file)?),
            Verb::Decisions(settings) => {
                let text = with_cluster(async |config| self.show_decisions(config, &settings).await)?;
                print!("{text}");
            }
        }
        Ok(())
    }

    /// Fields are owned, and metrics counted, under a controller's name.
    fn check_names(&self) -> Result<()> {
        let mut names = HashSet::new();
        match self
            .controllers
            .iter()
            .map(|controller| controller.name())
            .find(|name| !names.insert(name.clone()))
        {
            None => Ok(()),
            Some(name) => Err(Error::new(
                Category::Bug,
                format!("two controllers are called {name}: give one of them another name with .named()"),
            )),
        }
    }

    fn installation(&self) -> Installation<'_> {
        Installation {
            name: &self.name,
            version: &self.version,
            crds: self.stamped_crds(),
            images: &self.images,
            rules: self.rules(),
            agents: &self.agents,
            webhooks: &self.webhooks,
            is_for_its_own_namespace: self.is_for_its_own_namespace,
        }
    }

    /// The operator's own kinds, as they are registered.
    pub fn crds(&self) -> Vec<CustomResourceDefinition> {
        self.stamped_crds()
    }

    fn stamped_crds(&self) -> Vec<CustomResourceDefinition> {
        self.crds.iter().map(|crd| crds::stamped(crd.clone(), &self.name, &self.version)).collect()
    }

    /// All that installs the operator, as its verb `manifests` prints it where it is told nothing more.
    ///
    /// # Errors
    /// When something of it cannot be written, which is a bug.
    pub fn manifests(&self) -> Result<String> {
        self.installation().all(&ManifestSettings::default())
    }

    /// Everything that the controllers do, for RBAC.
    pub fn declared(&self) -> Vec<Declared> {
        let registered = self.controllers.iter().flat_map(|controller| controller.declared().iter().cloned());
        let mut declared: Vec<_> = registered.collect();
        declared.push(rbac::events());
        declared
    }

    /// The RBAC rules that allow exactly that.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let bindings = self.agents.iter().map(|agent| rbac::binding(&agent.name));
        rbac::rules(&self.declared()).into_iter().chain(bindings).collect()
    }

    /// The RBAC rules for the Lease, and for the webhooks' certificates, in the
    /// operator's namespace.
    pub fn lease_rules(&self) -> Vec<PolicyRule> {
        self.installation().own_rules()
    }

    /// The RBAC rules for the webhooks, in the whole cluster.
    pub fn webhook_rules(&self) -> Vec<PolicyRule> {
        rbac::webhooks(&self.name, &self.webhooks)
    }

    /// Runs until stopped, and then finishes the steps that run.
    ///
    /// # Errors
    /// When it cannot even start.
    pub async fn run(self, config: Config, settings: RunSettings, stop: CancellationToken) -> Result<()> {
        self.start(config, settings, stop).await?.finished().await
    }

    /// Starts, and returns as soon as it runs.
    ///
    /// # Errors
    /// When it cannot even start.
    pub async fn start(
        mut self,
        config: Config,
        settings: RunSettings,
        stop: CancellationToken,
    ) -> Result<Started> {
        let fence = if settings.no_leader_election { Fence::open() } else { Fence::closed() };
        let reading = self.connect(&config, &Fence::open())?;
        tracing::info!(operator = self.name, version = self.version, "starting");
        if settings.install_crds {
            crds::install(&reading, &self.stamped_crds(), &self.name).await?;
        }
        let finished = CancellationToken::new();
        // Before anything is watched: without conversion nothing can be listed.
        if let Some(serving) = self.serving_webhooks(&reading, &config, &settings) {
            serving.start(finished.clone()).await?;
        }
        let namespaces = self.namespaces(&config, &settings);
        let cache = Arc::new(Cache::new(reading.clone(), Namespaces::only(&namespaces)));
        let identity = format!("{}_{:08x}", host_name(), rand::random::<u32>());
        for controller in &mut self.controllers {
            if let Some(workers) = settings.workers {
                controller.set_workers(workers.get());
            }
            tracing::info!(
                controller = controller.name(),
                workers = controller.workers(),
                "starting the controller"
            );
        }
        let kinds = self.controllers.iter().map(|controller| (controller.name(), controller.kind()));
        let kinds = Arc::new(kinds.collect());
        let surroundings = Surroundings {
            reading: reading.clone(),
            acting: self.connect(&config, &fence)?,
            held: self.connect(&config, &Fence::closed())?,
            cache: cache.clone(),
            metrics: self.metrics.clone(),
            manager: self.name.clone(),
            instance: identity.clone(),
            probes: Arc::default(),
            decisions: Arc::new(DecisionLog::new(settings.decision_memory << 20)),
            number: 0,
        };
        let controllers = self.start_controllers(&surroundings)?;
        let shown = http::Shown {
            cache: cache.clone(),
            metrics: self.metrics.clone(),
            controllers: controllers.clone(),
            kinds,
            decisions: surroundings.decisions.clone(),
            access: Arc::new(Access::new(reading.clone(), config.auth_info.token_file.clone())),
        };
        let address = http::serve(settings.listen, shown, finished.clone()).await?;
        let watched = cache.clone();
        let work = Working { cache, controllers, stop: stop.clone() };
        let working = if settings.no_leader_election {
            tokio::spawn(work.work())
        } else {
            let namespace = settings.lease_namespace.unwrap_or(config.default_namespace);
            let election = ElectionSettings::new(namespace, &self.name, identity);
            let (candidate, is_leading) = Candidate::new(election, reading, fence, self.metrics.clone());
            tokio::spawn(work.work_while_leading(candidate, is_leading))
        };
        Ok(Started { address, working, finished, cache: watched })
    }
}

impl Manager {
    fn connect(&self, config: &Config, fence: &Fence) -> Result<Client> {
        connect(config.clone(), fence, &self.metrics).map_err(|error| {
            Error::new(Category::Unavailable, format!("cannot set up the connection: {error}"))
        })
    }

    /// Where it looks; nowhere in particular means everywhere.
    fn namespaces(&self, config: &Config, settings: &RunSettings) -> Vec<String> {
        self.namespaces_of(config, &settings.namespaces, settings.cluster_wide)
    }

    /// The same where it is told so.
    fn namespaces_of(&self, config: &Config, told: &[String], cluster_wide: bool) -> Vec<String> {
        if cluster_wide || !told.is_empty() || !self.is_for_its_own_namespace {
            return told.to_owned();
        }
        vec![std::env::var(manifests::OWN_NAMESPACE).unwrap_or_else(|_| config.default_namespace.clone())]
    }

    fn serving_webhooks(&self, client: &Client, config: &Config, settings: &RunSettings) -> Option<Serving> {
        (!self.webhooks.is_empty()).then(|| Serving {
            client: client.clone(),
            scope: Scope { operator: self.name.clone(), namespaces: self.namespaces(config, settings) },
            webhooks: self.webhooks.clone(),
            listen: settings.webhook_listen,
            address: settings.webhook_address(&self.name, &config.default_namespace),
            api_server: config.cluster_url.clone(),
            namespace: settings.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
            validity: settings.certificate_validity,
        })
    }

    fn start_controllers(&mut self, surroundings: &Surroundings) -> Result<Vec<Arc<dyn Work>>> {
        self.check_names()?;
        let numbered = (0..).zip(self.controllers.drain(..));
        let started = numbered
            .map(|(number, controller)| controller.start(Surroundings { number, ..surroundings.clone() }));
        Ok(started.collect())
    }
}

/// A manager that runs.
pub struct Started {
    address: SocketAddr,
    working: tokio::task::JoinHandle<()>,
    finished: CancellationToken,
    cache: Arc<Cache>,
}

impl Started {
    /// Where `/healthz`, `/readyz` and `/metrics` are answered.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resolves when it was stopped and everything has ended.
    ///
    /// # Errors
    /// When the manager itself panicked, which is a bug.
    pub async fn finished(self) -> Result<()> {
        let worked = self.working.await;
        self.cache.stop_all();
        self.finished.cancel();
        tracing::info!("stopped");
        worked.map_err(|error| Error::new(Category::Panic, format!("the manager broke off: {error}")))
    }
}

/// The controllers, and when they are to work.
struct Working {
    cache: Arc<Cache>,
    controllers: Vec<Arc<dyn Work>>,
    stop: CancellationToken,
}

impl Working {
    async fn work(self) {
        // An operator may have nothing but webhooks.
        if self.controllers.is_empty() {
            return self.stop.cancelled().await;
        }
        if self.stop.run_until_cancelled(self.cache.synced()).await.is_some() {
            self.work_until(self.stop.clone()).await;
        }
    }

    /// Waits warm: everything is watched, and what has to be looked at is queued.
    async fn work_while_leading(self, candidate: Candidate, mut is_leading: watch::Receiver<bool>) {
        // Whoever cannot look must not keep others from leading.
        if self.stop.run_until_cancelled(self.cache.synced()).await.is_none() {
            return;
        }
        let hand_over = CancellationToken::new();
        let running_for_leader = tokio::spawn(candidate.run(hand_over.clone()));
        while !self.stop.is_cancelled() {
            if self.stop.run_until_cancelled(is_leading.wait_for(|leading| *leading)).await.is_none() {
                break;
            }
            let deposed = async {
                // Fails only if the candidate is gone, and then nobody leads either.
                let _ = is_leading.wait_for(|leading| !*leading).await;
            };
            tokio::select! {
                () = self.work_until(self.stop.clone()) => {}
                // What runs is broken off: it could not send anything anyway.
                () = deposed => {}
            }
        }
        hand_over.cancel();
        let _ = running_for_leader.await;
    }

    async fn work_until(&self, stop: CancellationToken) {
        let all = join_all(self.controllers.iter().map(|controller| controller.clone().work(stop.clone())));
        let too_long = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            _ = all => {}
            () = too_long => tracing::warn!("some reconciles did not end within {GRACE:?}: they are broken off"),
        }
    }
}

/// Runs this with the cluster of the kubeconfig, or the one that it is in.
fn with_cluster<T>(run: impl AsyncFnOnce(Config) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Error::new(Category::Unavailable, format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(async {
        let config = Config::infer().await.map_err(|error| {
            Error::new(Category::Unavailable, format!("no Kubernetes to talk to: {error}: set KUBECONFIG"))
        })?;
        run(config).await
    });
    // A reconcile that hangs does not keep the process.
    runtime.shutdown_background();
    outcome
}

fn stop_on_signal() -> Result<CancellationToken> {
    let cannot = |error| Error::new(Category::Unavailable, format!("cannot listen for signals: {error}"));
    let mut terminate = unix::signal(unix::SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = unix::signal(unix::SignalKind::interrupt()).map_err(cannot)?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: running steps are finished first");
        stopped.cancel();
    });
    Ok(stop)
}

fn host_name() -> String {
    let name = std::env::var("HOSTNAME").ok().or_else(|| nix::unistd::gethostname().ok()?.into_string().ok());
    name.unwrap_or_else(|| "unknown".to_owned())
}
