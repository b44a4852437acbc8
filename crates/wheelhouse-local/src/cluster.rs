//! A cluster on this machine: brought up, looked at, taken down.
//!
//! Invariants:
//! - The record of a cluster is written before anything of it exists, and
//!   removed after everything is gone. What it names is enough to find the rest:
//!   processes by their mark, links and control groups by their names.
//! - Every step of `up` looks before it acts, so `up` again is right at any time:
//!   it starts what does not run and leaves alone what does.
//! - An `up` that did not finish leaves a record that says so; the next `up`
//!   clears it away first.

mod record;
mod status;

use std::{
    future::Future,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client, api::ListParams};
use sha2::{Digest as _, Sha256};

pub use self::{
    record::{Kind, Phase, Record},
    status::{Health, Status},
};
use crate::{
    addons,
    address_plan::{AddressPlan, MAX_NODES, Range},
    binaries::{Binaries, hex},
    cgroups::Trees,
    control_plane::{Credentials, Ports, Settings},
    error::{Error, Result},
    folders::{self, Lock},
    kubeconfig::{self, Entry, UserKubeconfig},
    machine::{Machine, log_path},
    network,
    node::{self, Node},
    preflight, processes,
    progress::Progress,
};

const CONTROL_PLANE: &str = "control-plane";
const CONTROL_PLANE_COMPONENTS: [&str; 4] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const ADDON_COMPONENTS: [&str; 3] = ["kube-proxy", "coredns", "provisioner"];
const NODE_COMPONENTS: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];

/// What `up` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The cluster's name.
    pub name: String,
    /// What it consists of.
    pub shape: Shape,
}

/// What a cluster consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// etcd, API server, controller manager and scheduler, on loopback; needs no root.
    ControlPlaneOnly {
        /// The API server's port; a free one by default.
        port: Option<u16>,
    },
    /// A control plane and so many nodes.
    Nodes(u8),
}

/// A cluster that has been brought up at some time.
#[derive(Debug, Clone)]
pub struct Cluster {
    folder: PathBuf,
    record: Record,
}

impl Cluster {
    /// Brings a cluster up, or completes one that is there. When `interrupt` comes first, or
    /// anything fails, what this call made is cleared away again.
    pub async fn up(
        request: &Request,
        progress: &Progress,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Self> {
        let mut interrupt = std::pin::pin!(interrupt);
        record::check_name(&request.name)?;
        record::check_folder(&folders::state().join(&request.name))?;
        let prepared = prepare(request, progress);
        let (trees, binaries, _lock) = tokio::select! {
            prepared = prepared => prepared?,
            () = &mut interrupt => return Err(Error::Refused("interrupted before anything was started".to_owned())),
        };
        let (cluster, is_new) = Self::open_or_create(request, progress).await?;
        let outcome = tokio::select! {
            outcome = cluster.bring_up(trees.as_ref(), &binaries, progress) => outcome,
            () = &mut interrupt => Err(Error::Refused(if is_new {
                "interrupted; nothing was left behind".to_owned()
            } else {
                format!("interrupted; cluster `{}` is as far as it came: `up` completes it", cluster.name())
            })),
        };
        match outcome {
            Ok(()) => Ok(Self { record: cluster.record.finished(&cluster.folder)?, ..cluster }),
            Err(error) if is_new => {
                progress.line("that did not work: clearing away what was started");
                cluster.tear_down().await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The cluster of this name.
    pub fn open(name: &str) -> Result<Self> {
        record::check_name(name)?;
        let folder = folders::state().join(name);
        match Record::read(&folder)? {
            Some(record) => Ok(Self { folder, record }),
            None => Err(Error::UnknownCluster { name: name.to_owned(), known: Self::names()? }),
        }
    }

    /// The names of all clusters.
    pub fn names() -> Result<Vec<String>> {
        let folder = folders::state();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::file("list", &folder)(error)),
        };
        let mut names: Vec<_> = entries
            .flatten()
            .filter(|entry| record::path(&entry.path()).exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The cluster that a command means when it names none: the only one, or the one whose context is selected.
    pub fn implied() -> Result<Self> {
        let names = Self::names()?;
        let selected = UserKubeconfig::locate().current_context();
        let meant = match names.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|name| Some(kubeconfig::context(name)) == selected),
        };
        match meant {
            Some(name) => Self::open(name),
            None if names.is_empty() => {
                Err(Error::Refused("there is no cluster: `wheelhouse local up` makes one".to_owned()))
            }
            None => Err(Error::Refused(format!(
                "there are several clusters: say which with `--cluster` ({})",
                names.join(", ")
            ))),
        }
    }

    /// Takes a cluster down: no process, link, control group or file of it remains.
    pub async fn down(name: &str, progress: &Progress) -> Result<()> {
        record::check_name(name)?;
        let _lock = lock(name, progress).await?;
        let cluster = match Self::open(name) {
            // A record that cannot be read must not keep anybody from clearing the rest away.
            Err(Error::Malformed { .. }) => Self::leftover(name),
            Err(Error::UnknownCluster { .. }) if Self::leftover(name).has_leftovers() => Self::leftover(name),
            opened => opened?,
        };
        let stage = progress.stage(format!("taking down cluster {name}"));
        cluster.tear_down().await?;
        stage.done();
        Ok(())
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// What it consists of, as `up` is asked for it.
    pub fn shape(&self) -> Shape {
        match &self.record.kind {
            Kind::Nodes { count, .. } => Shape::Nodes(*count),
            Kind::ControlPlaneOnly { .. } => Shape::ControlPlaneOnly { port: None },
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.settings().admin_kubeconfig()
    }

    /// A client that acts as the administrator.
    pub async fn client(&self) -> Result<Client> {
        local_client(&self.kubeconfig()).await
    }

    /// Loads the images of an archive into every node; their names.
    pub async fn load(&self, archive: &Path) -> Result<Vec<String>> {
        let nodes = self.nodes()?;
        if nodes.is_empty() {
            return Err(Error::Refused(format!(
                "cluster `{}` has no nodes to load images into",
                self.name()
            )));
        }
        let loaded = try_join_all(nodes.iter().map(|node| node.load(archive))).await?;
        Ok(loaded.into_iter().next().unwrap_or_default())
    }

    /// Cuts a node off from everything else, or heals it.
    pub async fn set_connected(&self, node: &str, connected: bool) -> Result<()> {
        let nodes = self.nodes()?;
        let known = || nodes.iter().map(|each| node::name(each.number)).collect();
        let found =
            nodes.iter().find(|each| node::name(each.number) == node).ok_or_else(|| Error::UnknownPart {
                cluster: self.name().to_owned(),
                kind: "node",
                name: node.to_owned(),
                known: known(),
            })?;
        network::set_connected(&self.control_plane(Some(&Trees::detect()?)), found.number, connected).await
    }

    /// The log of a component, as in `kube-apiserver` or `node-1/kubelet`.
    pub fn log(&self, component: &str) -> Result<PathBuf> {
        let known = self.components();
        let full = known
            .iter()
            .find(|each| *each == component)
            .or_else(|| {
                known.iter().find(|each| {
                    each.strip_prefix(CONTROL_PLANE).and_then(|rest| rest.strip_prefix('/'))
                        == Some(component)
                })
            })
            .or_else(|| {
                known.iter().find(|each| each.split_once('/').is_some_and(|(_, name)| name == component))
            });
        match full {
            Some(full) => Ok(log_path(&self.folder, full)),
            None => Err(Error::UnknownPart {
                cluster: self.name().to_owned(),
                kind: "component",
                name: component.to_owned(),
                known,
            }),
        }
    }

    /// Every component that should be running, as in `node-1/kubelet`.
    pub fn components(&self) -> Vec<String> {
        let mut components: Vec<_> =
            CONTROL_PLANE_COMPONENTS.iter().map(|component| format!("{CONTROL_PLANE}/{component}")).collect();
        if let Kind::Nodes { count, .. } = self.record.kind {
            components
                .extend(ADDON_COMPONENTS.iter().map(|component| format!("{CONTROL_PLANE}/{component}")));
            for number in 1..=count {
                components.extend(
                    NODE_COMPONENTS.iter().map(|component| format!("{}/{component}", node::name(number))),
                );
            }
        }
        components
    }

    /// The one that is asked for, whether it is there already or not; and which of these it was.
    async fn open_or_create(request: &Request, progress: &Progress) -> Result<(Self, bool)> {
        let folder = folders::state().join(&request.name);
        // Slots are allotted one after the other.
        let _allotting = Lock::on_host("slots", |_| {}).await?;
        match Record::read(&folder)? {
            Some(record) if record.phase == Phase::Ready => {
                let record = record.grown_to(request.shape)?.written(&folder)?;
                return Ok((Self { folder, record }, false));
            }
            Some(record) => {
                progress.line(format!("clearing away what an unfinished `up` of {} left", request.name));
                Self { folder: folder.clone(), record }.tear_down().await?;
            }
            None => {
                let leftover = Self::leftover(&request.name);
                if leftover.has_leftovers() {
                    progress.line(format!("clearing away what is left of an earlier {}", request.name));
                    leftover.tear_down().await?;
                }
            }
        }
        let kind = match request.shape {
            Shape::Nodes(count) => Kind::Nodes { slot: allot().await?, count },
            Shape::ControlPlaneOnly { port } => Kind::ControlPlaneOnly { ports: free_ports(port)? },
        };
        let record = Record::new(&request.name, kind).written(&folder)?;
        Ok((Self { folder, record }, true))
    }

    /// A cluster whose record is gone or unreadable, for clearing away what else there is.
    fn leftover(name: &str) -> Self {
        let folder = folders::state().join(name);
        // The slot is unknown. Its link goes with the last process of the control plane.
        let ports = Ports::usual(&AddressPlan::default());
        Self { folder, record: Record::new(name, Kind::ControlPlaneOnly { ports }) }
    }

    fn has_leftovers(&self) -> bool {
        self.folder.exists()
            || !processes::of_cluster(&self.folder).is_empty()
            || Trees::detect().is_ok_and(|trees| trees.exists(&self.group()))
    }

    async fn bring_up(&self, trees: Option<&Trees>, binaries: &Binaries, progress: &Progress) -> Result<()> {
        self.check_ports()?;
        let settings = self.settings();
        let credentials = settings.ensure_credentials()?;
        let control_plane = self.control_plane(trees);
        match (&self.record.kind, trees) {
            (Kind::Nodes { slot, .. }, Some(trees)) => {
                self.bring_up_machines(slot, &control_plane, trees, progress).await?;
                let nodes = self.nodes_with(trees);
                let starting = progress.stage("starting the control plane and containerd");
                tokio::try_join!(
                    start_control_plane(&control_plane, &settings, &credentials, binaries),
                    try_join_all(nodes.iter().map(|node| node.ensure_containerd(slot))),
                )?;
                starting.done();
                self.bring_up_nodes(
                    slot,
                    &control_plane,
                    &nodes,
                    &settings,
                    &credentials,
                    binaries,
                    progress,
                )
                .await?;
            }
            _ => {
                let starting = progress.stage("starting the control plane");
                start_control_plane(&control_plane, &settings, &credentials, binaries).await?;
                starting.done();
            }
        }
        wait_for_default_service_account(&self.client().await?, &control_plane).await?;
        UserKubeconfig::locate().add(&Entry::from_kubeconfig(&settings.admin_kubeconfig())?).await
    }

    async fn bring_up_machines(
        &self,
        plan: &AddressPlan,
        control_plane: &Machine,
        trees: &Trees,
        progress: &Progress,
    ) -> Result<()> {
        let stage = progress.stage("setting up machines and their network");
        let nodes = self.nodes_with(trees);
        if control_plane.init().is_none() {
            // All plugs were in the control plane's machine.
            network::disconnect_host(plan).await?;
            try_join_all(nodes.iter().map(|node| node.machine.end())).await?;
        }
        if control_plane.ensure().await? {
            network::connect_control_plane(plan, control_plane).await?;
        }
        for node in &nodes {
            if node.machine.ensure().await? {
                network::connect_node(plan, control_plane, &node.machine, node.number).await?;
            }
        }
        stage.done();
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a cluster, each of them needed by every node"
    )]
    async fn bring_up_nodes(
        &self,
        plan: &AddressPlan,
        control_plane: &Machine,
        nodes: &[Node],
        settings: &Settings,
        credentials: &Credentials,
        binaries: &Binaries,
        progress: &Progress,
    ) -> Result<()> {
        let stage = progress.stage("starting DNS, storage and nodes");
        let client = self.client().await?;
        for manifest in addons::manifests(plan, &self.folder, nodes.len())? {
            manifest.apply(&client).await?;
        }
        for node in nodes {
            node.ensure_kubelet(plan, settings, credentials, binaries)?;
        }
        addons::ensure_daemons(control_plane, plan, settings, credentials, binaries)?;
        node::ensure_kube_proxy(control_plane, &node::name(1), plan, settings, credentials, binaries)?;
        stage.done();

        let stage = progress.stage(format!("waiting for {} and DNS", count_of(nodes.len(), "node")));
        let api: Api<NodeObject> = Api::all(client);
        for node in nodes {
            let name = node::name(node.number);
            node.machine
                .wait_for("kubelet", Duration::from_secs(90), async || is_ready(&api, &name).await)
                .await?;
        }
        let dns = async || answers_ready(plan).await;
        control_plane.wait_for("coredns", Duration::from_secs(60), dns).await?;
        stage.done();
        Ok(())
    }

    /// A port that was allotted earlier may be somebody else's by now.
    fn check_ports(&self) -> Result<()> {
        let Kind::ControlPlaneOnly { ports } = &self.record.kind else { return Ok(()) };
        let control_plane = self.control_plane(None);
        for (component, address) in ports.each() {
            if !control_plane.is_running(component) && TcpListener::bind(address).is_err() {
                return Err(Error::Refused(format!(
                    "port {} of {component} is taken by another program: end that, or run `wheelhouse local down {name}` and `up` again to get other ports",
                    address.port(),
                    name = self.name(),
                )));
            }
        }
        Ok(())
    }

    async fn tear_down(&self) -> Result<()> {
        UserKubeconfig::locate().remove(&kubeconfig::context(self.name())).await?;
        processes::end(&self.folder, Duration::ZERO, |_| true).await?;
        if let Kind::Nodes { slot, .. } = &self.record.kind {
            network::disconnect_host(slot).await?;
        }
        let trees = Trees::detect()?;
        if trees.exists(&self.group()) {
            trees.remove(&self.group()).await?;
        }
        folders::remove_folder(&self.folder)?;
        // The folder of all clusters goes with the last one.
        let _ = std::fs::remove_dir(folders::state());
        Ok(())
    }

    fn group(&self) -> String {
        format!("wheelhouse-{}", unique_name(&self.folder))
    }

    fn control_plane(&self, trees: Option<&Trees>) -> Machine {
        match (&self.record.kind, trees) {
            (Kind::Nodes { .. }, Some(trees)) => {
                Machine::isolated(&self.folder, CONTROL_PLANE, trees, &self.group())
            }
            _ => Machine::on_host(&self.folder, CONTROL_PLANE),
        }
    }

    fn nodes(&self) -> Result<Vec<Node>> {
        Ok(self.nodes_with(&Trees::detect()?))
    }

    fn nodes_with(&self, trees: &Trees) -> Vec<Node> {
        let Kind::Nodes { count, .. } = self.record.kind else { return Vec::new() };
        let machine = |number| Machine::isolated(&self.folder, &node::name(number), trees, &self.group());
        (1..=count).map(|number| Node { number, machine: machine(number) }).collect()
    }

    fn settings(&self) -> Settings {
        let (ports, services, pods) = match &self.record.kind {
            Kind::Nodes { slot, .. } => (Ports::usual(slot), slot.services(), Some(slot.pods())),
            // Nothing routes these: there are no nodes.
            Kind::ControlPlaneOnly { ports } => (ports.clone(), AddressPlan::default().services(), None),
        };
        Settings {
            cluster: self.name().to_owned(),
            folder: self.folder.clone(),
            ports,
            services,
            pods,
            audit_log: None,
        }
    }
}

/// What the cluster in a folder is called among all of the host: one of the same name in another
/// state folder is another cluster.
fn unique_name(folder: &Path) -> String {
    let digest = hex(&Sha256::digest(folder.as_os_str().as_encoded_bytes()));
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}-{}", digest.get(..6).unwrap_or_default())
}

/// What must be there before anything of the cluster is.
async fn prepare(request: &Request, progress: &Progress) -> Result<(Option<Trees>, Binaries, Lock)> {
    let trees = match request.shape {
        Shape::ControlPlaneOnly { .. } => {
            preflight::control_plane_only()?;
            None
        }
        Shape::Nodes(count) if (1..=MAX_NODES).contains(&count) => Some(preflight::nodes(count)?),
        Shape::Nodes(count) => {
            return Err(Error::Refused(format!("a cluster has 1 to {MAX_NODES} nodes, not {count}")));
        }
    };
    UserKubeconfig::locate().check()?;
    let lock = lock(&request.name, progress).await?;
    Ok((trees, Binaries::ensure(progress).await?, lock))
}

async fn lock(name: &str, progress: &Progress) -> Result<Lock> {
    Lock::on_host(&unique_name(&folders::state().join(name)), |holder| {
        progress.line(format!("process {holder} is working on cluster {name}; waiting for it"));
    })
    .await
}

async fn allot() -> Result<AddressPlan> {
    let mut taken = Vec::new();
    for name in Cluster::names()? {
        if let Ok(Some(Record { kind: Kind::Nodes { slot, .. }, .. })) =
            Record::read(&folders::state().join(name))
        {
            taken.push(slot);
        }
    }
    let in_use: Vec<Range> = network::ranges_in_use().await?;
    AddressPlan::allot(&taken, &in_use).ok_or_else(|| {
        Error::Refused(
            "all address ranges in 198.18.0.0/15 are in use: take a cluster down (`wheelhouse local status` lists them)"
                .to_owned(),
        )
    })
}

fn free_ports(api: Option<u16>) -> Result<Ports> {
    Ports::free(api).map_err(|error| match api {
        Some(port) => Error::Refused(format!(
            "port {port} cannot be used for the API server ({error}): choose another, or none to get a free one"
        )),
        None => Error::Refused(format!("no free ports on 127.0.0.1: {error}")),
    })
}

/// A client of the cluster that a kubeconfig selects.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(client_config(kubeconfig).await?).map_err(Error::api("make a client of the cluster"))
}

/// A client of a cluster on this host, which no proxy can reach.
async fn local_client(kubeconfig: &Path) -> Result<Client> {
    let mut config = client_config(kubeconfig).await?;
    config.proxy_url = None;
    Client::try_from(config).map_err(Error::api("make a client of the cluster"))
}

async fn client_config(kubeconfig: &Path) -> Result<kube::Config> {
    let malformed = |error: kube::config::KubeconfigError| Error::Malformed {
        path: kubeconfig.to_owned(),
        expected: "a kubeconfig",
        problem: error.to_string(),
    };
    let config = kube::config::Kubeconfig::read_from(kubeconfig).map_err(malformed)?;
    kube::Config::from_custom_kubeconfig(config, &Default::default()).await.map_err(malformed)
}

async fn start_control_plane(
    machine: &Machine,
    settings: &Settings,
    credentials: &Credentials,
    binaries: &Binaries,
) -> Result<()> {
    let start = |component: &str, args: Vec<String>| {
        machine.ensure_daemon(component, &binaries.program(component), &args)
    };
    start("etcd", settings.etcd(credentials))?;
    start("kube-apiserver", settings.api_server(credentials)?)?;
    let client = local_client(&settings.admin_kubeconfig()).await?;
    machine.wait_for("kube-apiserver", Duration::from_secs(90), async || is_api_ready(&client).await).await?;
    start("kube-controller-manager", settings.controller_manager(credentials))?;
    start("kube-scheduler", settings.scheduler())
}

async fn is_api_ready(client: &Client) -> bool {
    let Ok(request) = http_get("/readyz") else { return false };
    matches!(
        tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await,
        Ok(Ok(text)) if text == "ok"
    )
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>, http::Error> {
    http::Request::get(path).body(Vec::new())
}

async fn is_ready(nodes: &Api<NodeObject>, name: &str) -> bool {
    let Ok(node) = nodes.get_status(name).await else { return false };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether CoreDNS has read what it answers from.
async fn answers_ready(plan: &AddressPlan) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect((plan.control_plane(), addons::READY_PORT)).await?;
        stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    matches!(tokio::time::timeout(Duration::from_secs(2), ask).await, Ok(Ok(answer)) if answer.contains(" 200 "))
}

/// Without it the first pod that somebody makes would be refused.
async fn wait_for_default_service_account(client: &Client, control_plane: &Machine) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let there = async || {
        let listed = accounts.list_metadata(&ListParams::default().limit(10)).await;
        listed.is_ok_and(|listed| {
            listed.items.iter().any(|each| each.metadata.name.as_deref() == Some("default"))
        })
    };
    control_plane.wait_for("kube-controller-manager", Duration::from_secs(60), there).await
}

fn count_of(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
