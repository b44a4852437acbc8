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

mod down;
mod record;
mod status;
mod up;

use std::path::{Path, PathBuf};

use futures::future::try_join_all;
use kube::Client;
use sha2::{Digest as _, Sha256};

pub use self::{
    record::{Kind, Phase, Record},
    status::{Health, NodeStatus, Status},
};
use crate::{
    address_plan::AddressPlan,
    archive::ArchivedImages,
    binaries::hex,
    cgroups::Trees,
    control_plane::{Ports, Settings},
    error::{Error, Result},
    folders::{self, Lock},
    kubeconfig::{self, UserKubeconfig},
    machine::{Machine, log_path},
    network,
    node::{self, Node},
    progress::Progress,
    volumes,
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
        let images = ArchivedImages::read(archive)?;
        try_join_all(nodes.iter().map(|node| node.load(archive, &images))).await?;
        Ok(images.names().to_vec())
    }

    /// The names of its nodes.
    pub fn node_names(&self) -> Vec<String> {
        match self.record.kind {
            Kind::Nodes { count, .. } => (1..=count).map(node::name).collect(),
            Kind::ControlPlaneOnly { .. } => Vec::new(),
        }
    }

    fn node(&self, name: &str) -> Result<Node> {
        let found = self.nodes()?.into_iter().find(|each| node::name(each.number) == name);
        found.ok_or_else(|| Error::UnknownPart {
            cluster: self.name().to_owned(),
            kind: "node",
            name: name.to_owned(),
            known: self.node_names(),
        })
    }

    /// Cuts a node off from everything else, or heals it.
    pub async fn set_connected(&self, node: &str, connected: bool) -> Result<()> {
        let number = self.node(node)?.number;
        network::set_connected(&self.control_plane(Some(&Trees::detect()?)), number, connected).await
    }

    /// Keeps everything on a node from the API server, and from nothing else; or heals it.
    pub async fn set_api_server_reachable(&self, node: &str, reachable: bool) -> Result<()> {
        let api_server = self.settings().ports.api;
        network::set_reachable(&self.node(node)?.machine, api_server, reachable).await
    }

    /// Takes all the room of a volume on a node, or gives it back; whether that changed anything.
    pub(crate) async fn set_room(&self, node: &str, volume: &Path, room: bool) -> Result<bool> {
        let machine = self.node(node)?.machine;
        match room {
            true => volumes::empty(&machine, volume).await.map(|()| true),
            false => volumes::fill(&machine, volume).await,
        }
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

    /// What it is called among all of the host: one of the same name in another state folder is
    /// another cluster.
    fn unique_name(&self) -> String {
        unique_name(&self.folder)
    }

    fn group(&self) -> String {
        format!("wheelhouse-{}", self.unique_name())
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

fn unique_name(folder: &Path) -> String {
    let digest = hex(&Sha256::digest(folder.as_os_str().as_encoded_bytes()));
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("{name}-{}", digest.get(..6).unwrap_or_default())
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

/// One command at a time works on a cluster.
async fn lock(name: &str, progress: &Progress) -> Result<Lock> {
    Lock::on_host(&unique_name(&folders::state().join(name)), |holder| {
        progress.line(format!("process {holder} is working on cluster {name}; waiting for it"));
    })
    .await
}
