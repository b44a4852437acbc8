//! The agent: runs beside nginx in every pod, under an identity of its own, and keeps
//! what nginx serves as it is wanted.
//!
//! Invariants:
//! - nginx has the last configuration that it accepted, whatever comes after.
//! - Changes that come together are one reload, and there is at most one a second.

mod access_log;
mod certificate;
mod nginx;
mod origins;
pub mod render;
mod report;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use kube::{Client, Config, core::Expression};
use parking_lot::RwLock;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio::{net::TcpStream, signal::unix::SignalKind};
use wheelhouse::{
    Key,
    agent::{Followed, FollowedSome},
    cache::Selection,
};

use self::{
    access_log::{AccessLog, Traffic},
    nginx::Nginx,
    origins::{Origins, Which},
    render::{Inputs, render},
    report::Report,
};
use crate::{
    api::AgentState,
    children,
    configuration::{CONFIGURATION_KEY, Configuration, Purges, Target, short_hash},
    layout::{self, RUN_FOLDER, TLS_FOLDER},
};

/// Between two reloads there is at least so much time.
const RELOAD_EVERY: Duration = Duration::from_secs(1);
/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often names are looked up, and sources tried.
const TRY_EVERY: Duration = Duration::from_secs(10);
/// How long it may take to reach a source.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// How often the access log is read.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// What runs in the pods of a CdnCluster; people have no need to call it
#[derive(Parser)]
#[command(name = "agent", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Copy this program to a place where the other containers find it
    Install {
        /// Where to
        path: PathBuf,
    },
    /// Write the first configuration, and end
    Prepare,
    /// Keep nginx's configuration as it is wanted
    Serve,
}

/// Runs what `arguments` say.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = Arguments::parse_from(arguments);
    tracing_subscriber::fmt().with_target(false).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    let outcome = match arguments.verb {
        Verb::Install { path } => install(&path),
        Verb::Prepare => runtime.block_on(async { Agent::start().await?.prepare().await }),
        Verb::Serve => runtime.block_on(async { Agent::start().await?.serve().await }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    // So that it can be read in the pod's status.
    let _ = fs::write("/dev/termination-log", why);
    ExitCode::FAILURE
}

fn install(path: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("which program is this? {error}"))?;
    let cannot =
        |error: std::io::Error| format!("cannot copy {} to {}: {error}", program.display(), path.display());
    fs::copy(&program, path).map_err(cannot)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(cannot)
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set: this runs in pods of a CdnCluster only"))
}

/// Everything that the agent follows, and what it knows.
struct Agent {
    configuration: Followed<ConfigMap>,
    purges: Followed<ConfigMap>,
    slices: FollowedSome<EndpointSlice>,
    origins: Origins,
    /// Sources that nobody could reach, by name.
    unreachable: BTreeMap<String, String>,
    nginx: Nginx,
    /// The files with the authorities of Secrets, as they were when they were good.
    authorities: BTreeMap<String, String>,
    /// The folder of the certificate that nginx accepted.
    certificate: Option<String>,
    report: Arc<RwLock<AgentState>>,
    reloads: Counter,
    purged: Gauge,
}

impl Agent {
    async fn start() -> Result<Self, String> {
        let (cluster, namespace) = (variable("CLUSTER")?, variable("POD_NAMESPACE")?);
        let config = Config::incluster().map_err(|error| format!("where is the API server? {error}"))?;
        let client =
            Client::try_from(config).map_err(|error| format!("cannot set up the connection: {error}"))?;
        let followed =
            |name: String| Followed::<ConfigMap>::new(client.clone(), Key::namespaced(&namespace, &name));
        let nginx = Nginx::here();
        let ours = Selection::labels(Expression::Exists(children::LABEL.to_owned()));
        Ok(Self {
            configuration: followed(children::configuration_name(&cluster)),
            purges: followed(children::purges_name(&cluster)),
            slices: FollowedSome::new(client.clone(), Some(&namespace), ours),
            origins: Origins::remembered_in(Path::new(RUN_FOLDER)),
            unreachable: BTreeMap::new(),
            authorities: BTreeMap::new(),
            // What nginx has, it goes on having.
            certificate: nginx.in_place().as_deref().and_then(certificate::in_use),
            nginx,
            report: Arc::new(RwLock::new(AgentState { pod: variable("POD_NAME")?, ..AgentState::default() })),
            reloads: Counter::default(),
            purged: Gauge::default(),
        })
    }

    /// What a configuration is to be made from now; nothing, as long as something is missing.
    fn inputs(&mut self) -> Result<Option<Inputs>, String> {
        let text = text_of(&self.configuration, CONFIGURATION_KEY);
        let configuration: Option<Configuration> = text.as_deref().map(read).transpose()?;
        let purges = self.purges.get().map(|list| Purges::read(&list.data.clone().unwrap_or_default()));
        let purges = purges.transpose()?;
        let (Some(configuration), Some(purges)) = (configuration, purges) else { return Ok(None) };
        let mut authorities = BTreeMap::new();
        for route in &configuration.routes {
            let Target::Origin(origin) = &route.target else { continue };
            if let Some(secret) = &origin.tls.ca_secret {
                authorities.insert(secret.clone(), self.authorities_of(secret)?);
            }
        }
        Ok(Some(Inputs {
            authorities,
            image_has_authorities: Path::new(render::AUTHORITIES).exists(),
            name: short_hash(&text.unwrap_or_default()),
            configuration,
            purges,
            pods: sources::pods(&self.slices.list()),
            addresses: self.origins.known().clone(),
            certificate: None,
            has_ipv6: Path::new("/proc/net/if_inet6").exists(),
        }))
    }

    /// The file with the authorities of a Secret, or the last that was good; or why there is none.
    ///
    /// # Errors
    /// When this pod has no such Secret: it is about to be replaced by one that does.
    fn authorities_of(&mut self, secret: &str) -> Result<Result<String, String>, String> {
        let folder = layout::authority_folder(secret);
        if !Path::new(&folder).exists() {
            return Err(format!("this pod was started without the Secret {secret}"));
        }
        match certificate::take_authorities(Path::new(&folder), Path::new(RUN_FOLDER)) {
            Ok(file) => {
                self.authorities.insert(secret.to_owned(), file.clone());
                Ok(Ok(file))
            }
            Err(why) => Ok(self.authorities.get(secret).cloned().ok_or(why)),
        }
    }

    async fn synced(&self) {
        tokio::join!(self.configuration.synced(), self.purges.synced(), self.slices.synced());
    }

    /// Resolves when something of what is followed changed.
    async fn changed(&mut self) {
        tokio::select! {
            () = self.configuration.changed() => {}
            () = self.purges.changed() => {}
            () = self.slices.changed() => {}
        }
    }

    /// Looks up where origins are: all of them, or only those of which nothing was known.
    async fn look_up_origins(&mut self, which: Which) {
        // What cannot be read says nothing about which there are.
        let Ok(Some(inputs)) = self.inputs() else { return };
        self.origins.look_up(&origins_of(&inputs.configuration), which).await;
    }

    async fn prepare(mut self) -> Result<(), String> {
        self.synced().await;
        loop {
            self.look_up_origins(Which::All).await;
            match self.inputs() {
                Ok(Some(inputs)) => return self.put(inputs).await.map(drop),
                Ok(None) => tracing::info!("waiting for the configuration"),
                Err(why) => tracing::warn!("{why}"),
            }
            self.changed().await;
        }
    }

    /// Has nginx accept a configuration: with the certificate that is there, or with the
    /// last good one, or with none. What nginx says when it serves it.
    async fn put(&mut self, mut inputs: Inputs) -> Result<String, String> {
        let newest = match inputs.configuration.tls {
            true => certificate::take(Path::new(TLS_FOLDER), Path::new(RUN_FOLDER)).map(Some),
            false => Ok(None),
        };
        let mut problem = newest.as_ref().err().cloned();
        let mut candidates = vec![newest.ok().flatten(), self.certificate.clone(), None];
        candidates.dedup();
        let mut complaints = Vec::new();
        for candidate in candidates {
            inputs.certificate.clone_from(&candidate);
            let rendered = render(&inputs)?;
            let is_in_place = self.nginx.in_place().as_ref() == Some(&rendered.text);
            let put = if is_in_place { Ok(()) } else { self.nginx.put(&rendered.text).await };
            match put {
                Ok(()) => {
                    self.accepted(candidate, problem);
                    return Ok(rendered.served);
                }
                Err(complaint) => {
                    problem.get_or_insert_with(|| format!("the certificate is of no use: {complaint}"));
                    complaints.push(complaint);
                }
            }
        }
        Err(complaints.into_iter().next().unwrap_or_default())
    }

    fn accepted(&mut self, certificate: Option<String>, problem: Option<String>) {
        self.certificate = certificate;
        self.report.write().tls = problem;
    }

    async fn serve(mut self) -> Result<(), String> {
        let traffic = Traffic::new();
        let mut registry = Registry::default();
        traffic.register(&mut registry);
        registry.register("cdn_reloads", "How often nginx took up a new configuration", self.reloads.clone());
        registry.register("cdn_purged", "The number of the last purge that holds", self.purged.clone());
        let report = Report { state: self.report.clone(), registry: Arc::new(registry) };
        let mut reporting = tokio::spawn(report::serve(report));
        let nginx = self.nginx.clone();
        tokio::spawn(async move {
            let mut log = AccessLog::here();
            loop {
                if let Err(error) = log.read(&traffic, &nginx) {
                    tracing::warn!("cannot read the access log: {error}");
                }
                tokio::time::sleep(COUNT_EVERY).await;
            }
        });
        let mut told_to_end = tokio::signal::unix::signal(SignalKind::terminate())
            .map_err(|error| format!("cannot hear signals: {error}"))?;
        self.synced().await;
        let (mut tried, mut reloaded): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            if tried.is_none_or(|tried| tried.elapsed() >= TRY_EVERY) {
                tried = Some(Instant::now());
                self.look_up_origins(Which::All).await;
                self.try_sources().await;
            }
            self.look_up_origins(Which::New).await;
            if self.follow().await {
                reloaded = Some(Instant::now());
            }
            tokio::select! {
                () = self.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                ended = &mut reporting => return Err(format!("cannot answer: {ended:?}")),
                _ = told_to_end.recv() => return self.until_nginx_ends().await,
            }
            if let Some(rest) = reloaded.and_then(|reloaded| RELOAD_EVERY.checked_sub(reloaded.elapsed())) {
                tokio::time::sleep(rest).await;
            }
        }
    }

    /// Brings nginx to what is wanted; whether it reloaded.
    async fn follow(&mut self) -> bool {
        let inputs = match self.inputs() {
            Ok(Some(inputs)) => inputs,
            // What was there once and is gone says nothing: what is served stays.
            Ok(None) => return false,
            Err(why) => {
                self.report.write().refused = Some(why);
                return false;
            }
        };
        let (name, began) = (inputs.name.clone(), inputs.purges.began.clone());
        let purged = inputs.purges.last;
        let mut problems = self.unreachable.clone();
        problems.extend(inputs.problems());
        // It may have been put in place by an agent that did not live to tell nginx: only what nginx
        // itself says counts.
        let outcome = match self.put(inputs).await {
            Ok(wanted) => match self.nginx.served().await {
                Ok(served) if served == wanted => Ok(false),
                Ok(_) => self.nginx.reload(&wanted).await.map(|()| true),
                Err(error) => Err(format!("nginx does not answer: {error}")),
            },
            Err(why) => Err(why),
        };
        let mut report = self.report.write();
        report.sources = problems;
        match outcome {
            Ok(is_new) => {
                if is_new {
                    tracing::info!("serving configuration {name}, purges up to {purged}");
                    self.reloads.inc();
                }
                report.configuration = Some(name);
                report.purges_began = began;
                report.purged = purged;
                report.refused = None;
                self.purged.set(i64::try_from(purged).unwrap_or(i64::MAX));
                if let Some(certificate) = &self.certificate {
                    certificate::forget_others(Path::new(RUN_FOLDER), certificate);
                }
                is_new
            }
            Err(why) => {
                if report.refused.as_ref() != Some(&why) {
                    tracing::warn!("the configuration {name} is not served: {why}");
                }
                report.refused = Some(why);
                false
            }
        }
    }

    /// Tries to reach every source.
    async fn try_sources(&mut self) {
        let Ok(Some(inputs)) = self.inputs() else { return };
        let mut unreachable = BTreeMap::new();
        let mut attempts = Vec::new();
        for route in &inputs.configuration.routes {
            let servers = inputs.servers_of(route);
            if servers.is_empty() {
                continue;
            }
            let trying = servers
                .into_iter()
                .map(|server| async move { reach(server).await.map_err(|why| format!("{server}: {why}")) });
            attempts.push(async move { (route.name.clone(), join_all(trying).await) });
        }
        for (name, outcomes) in join_all(attempts).await {
            let complaints: Option<Vec<_>> = outcomes.into_iter().map(Result::err).collect();
            if let Some(complaints) = complaints {
                unreachable.insert(name, format!("nobody answers: {}", complaints.join(", ")));
            }
        }
        for (name, why) in self.origins.problems() {
            for route in &inputs.configuration.routes {
                if matches!(&route.target, Target::Origin(origin) if origin.host == *name) {
                    unreachable.entry(route.name.clone()).or_insert_with(|| why.clone());
                }
            }
        }
        self.unreachable = unreachable;
    }

    /// nginx finishes what it has begun; until then somebody counts.
    async fn until_nginx_ends(self) -> Result<(), String> {
        while self.nginx.runs() {
            tokio::time::sleep(COUNT_EVERY).await;
        }
        Ok(())
    }
}

async fn reach(server: SocketAddr) -> Result<(), String> {
    match tokio::time::timeout(REACHED_WITHIN, TcpStream::connect(server)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn origins_of(configuration: &Configuration) -> BTreeSet<String> {
    let origins = configuration.routes.iter().filter_map(|route| match &route.target {
        Target::Origin(origin) => Some(origin.host.clone()),
        Target::Pods { .. } => None,
    });
    origins.collect()
}

fn text_of(followed: &Followed<ConfigMap>, key: &str) -> Option<String> {
    let object = followed.get()?;
    Some(object.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default())
}

fn read(text: &str) -> Result<Configuration, String> {
    serde_json::from_str(text).map_err(|error| format!("{CONFIGURATION_KEY} cannot be read: {error}"))
}
