//! Bringing a cluster up: every step looks before it acts.

use std::{
    future::Future,
    net::TcpListener,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node as NodeObject, ServiceAccount};
use kube::{Api, Client, api::ListParams};

use super::{Cluster, Kind, Phase, Record, Request, Shape, local_client, lock, record, status::is_ready};
use crate::{
    addons,
    address_plan::{AddressPlan, MAX_NODES},
    binaries::Binaries,
    cgroups::Trees,
    control_plane::{Kit, Ports},
    error::{Error, Result},
    folders::{self, Lock},
    kubeconfig::{Entry, UserKubeconfig},
    machine::{Machine, log_path},
    network,
    node::{self, Node},
    preflight, processes,
    progress::Progress,
    volumes,
};

/// A program that cannot work with what it finds ends within this time.
const SETTLING: Duration = Duration::from_secs(3);

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
                match cluster.tear_down().await {
                    Ok(()) => Err(error),
                    Err(second) => Err(Error::Refused(format!(
                        "{error}; clearing away did not work either: {second}; run `wheelhouse local down {}`",
                        cluster.name()
                    ))),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The one that is asked for, whether it is there already or not; and whether it is new.
    async fn open_or_create(request: &Request, progress: &Progress) -> Result<(Self, bool)> {
        let folder = folders::state().join(&request.name);
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
                let earlier = Self::without_record(&request.name);
                earlier.check_folder_is_free()?;
                if earlier.is_anything_left() {
                    progress.line(format!("clearing away what is left of an earlier {}", request.name));
                    earlier.tear_down().await?;
                }
            }
        }
        let record = match request.shape {
            Shape::ControlPlaneOnly { port } => {
                Record::new(&request.name, Kind::ControlPlaneOnly { ports: free_ports(port)? })
                    .written(&folder)?
            }
            Shape::Nodes(count) => {
                // One after the other, until the record says whose a slot is.
                let _allotting = Lock::on_host("slots", |_| {}).await?;
                Record::new(&request.name, Kind::Nodes { slot: allot().await?, count }).written(&folder)?
            }
        };
        Ok((Self { folder, record }, true))
    }

    async fn bring_up(&self, trees: Option<&Trees>, binaries: &Binaries, progress: &Progress) -> Result<()> {
        let begun = Instant::now();
        let settings = self.settings();
        let credentials = settings.ensure_credentials()?;
        let kit = Kit { settings: &settings, credentials: &credentials, binaries };
        let control_plane = self.control_plane(trees);
        match (&self.record.kind, trees) {
            (Kind::Nodes { slot, .. }, Some(trees)) => {
                let nodes = self.nodes_with(trees);
                self.bring_up_machines(slot, &control_plane, &nodes, progress).await?;
                let starting = progress.stage("starting the control plane and containerd");
                tokio::try_join!(
                    start_control_plane(&control_plane, &kit),
                    try_join_all(nodes.iter().map(|node| node.ensure_containerd(slot))),
                )?;
                starting.done();
                self.bring_up_nodes(slot, &control_plane, &nodes, &kit, progress).await?;
            }
            _ => {
                self.check_ports(&settings.ports, &control_plane)?;
                let starting = progress.stage("starting the control plane");
                start_control_plane(&control_plane, &kit).await?;
                starting.done();
            }
        }
        wait_for_default_service_account(&self.client().await?, &control_plane).await?;
        // What Kubernetes says of a node may be older than the program that just failed to start.
        tokio::time::sleep(SETTLING.saturating_sub(begun.elapsed())).await;
        if let Some(missing) = self.missing().first() {
            let log_end = processes::log_end(&log_path(&self.folder, missing));
            return Err(Error::Component {
                component: missing.clone(),
                problem: "ended".to_owned(),
                log_end,
            });
        }
        UserKubeconfig::locate().add(&Entry::from_kubeconfig(&settings.admin_kubeconfig())?).await
    }

    async fn bring_up_machines(
        &self,
        plan: &AddressPlan,
        control_plane: &Machine,
        nodes: &[Node],
        progress: &Progress,
    ) -> Result<()> {
        let stage = progress.stage("setting up machines and their network");
        let owner = self.unique_name();
        if !control_plane.is_complete() {
            // All plugs were in the control plane's machine.
            try_join_all(nodes.iter().map(|node| node.machine.end())).await?;
            network::disconnect_host(plan, &owner).await?;
            if network::owner_of_link(plan).is_some() {
                return Err(Error::Refused(format!(
                    "the addresses of cluster `{name}` were given to another cluster while it was dead: run `wheelhouse local down {name}` and `up` again to get others",
                    name = self.name()
                )));
            }
        }
        if control_plane.ensure().await? {
            network::connect_control_plane(plan, control_plane).await?;
            network::connect_host(plan, &owner, control_plane).await?;
            control_plane.complete().await?;
        } else if network::owner_of_link(plan).is_none() {
            network::connect_host(plan, &owner, control_plane).await?;
        }
        for node in nodes {
            if node.machine.ensure().await? {
                network::connect_node(plan, control_plane, &node.machine, node.number).await?;
                volumes::mount_again(&node.machine).await?;
                node.machine.complete().await?;
            }
        }
        stage.done();
        Ok(())
    }

    async fn bring_up_nodes(
        &self,
        plan: &AddressPlan,
        control_plane: &Machine,
        nodes: &[Node],
        kit: &Kit<'_>,
        progress: &Progress,
    ) -> Result<()> {
        let stage = progress.stage("starting DNS, storage and nodes");
        let client = self.client().await?;
        for manifest in addons::manifests(plan, &self.folder, nodes.len())? {
            manifest.apply(&client).await?;
        }
        for node in nodes {
            node.ensure_kubelet(plan, kit).await?;
        }
        addons::ensure_daemons(control_plane, plan, kit).await?;
        node::ensure_kube_proxy(control_plane, &node::name(1), plan, kit).await?;
        stage.done();

        let stage = progress.stage("waiting for nodes and DNS");
        let api: Api<NodeObject> = Api::all(client);
        for node in nodes {
            let name = node::name(node.number);
            if !network::is_connected(control_plane, node.number).await? {
                progress.line(format!(
                    "{name} is cut off: `wheelhouse local node heal {name}` connects it again"
                ));
                continue;
            }
            let ready = async || api.get_status(&name).await.is_ok_and(|node| is_ready(&node));
            node.machine.wait_for("kubelet", Duration::from_secs(90), ready).await?;
        }
        let dns = async || answers_ready(plan).await;
        control_plane.wait_for("coredns", Duration::from_secs(60), dns).await?;
        stage.done();
        Ok(())
    }

    /// A port that was allotted earlier may be somebody else's by now.
    fn check_ports(&self, ports: &Ports, control_plane: &Machine) -> Result<()> {
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
}

/// What must be there before anything of the cluster is.
async fn prepare(request: &Request, progress: &Progress) -> Result<(Option<Trees>, Binaries, Lock)> {
    let trees = match request.shape {
        Shape::ControlPlaneOnly { .. } => {
            preflight::control_plane_only()?;
            None
        }
        Shape::Nodes(count) if (1..=MAX_NODES).contains(&count) => {
            record::check_folder(&folders::state().join(&request.name))?;
            // What is there has its room already, and must be healed on a full disk too.
            let existing = Cluster::open(&request.name).map(|cluster| cluster.shape());
            let new_nodes = match existing {
                Ok(Shape::Nodes(existing)) => Some(count.saturating_sub(existing)).filter(|new| *new > 0),
                _ => Some(count),
            };
            Some(preflight::nodes(new_nodes)?)
        }
        Shape::Nodes(count) => {
            return Err(Error::Refused(format!("a cluster has 1 to {MAX_NODES} nodes, not {count}")));
        }
    };
    UserKubeconfig::locate().check()?;
    let lock = lock(&request.name, progress).await?;
    Ok((trees, Binaries::ensure(progress).await?, lock))
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
    AddressPlan::allot(&taken, &network::ranges_in_use().await?).ok_or_else(|| {
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

async fn start_control_plane(machine: &Machine, kit: &Kit<'_>) -> Result<()> {
    let Kit { settings, credentials, binaries } = kit;
    let start = async |component: &str, args: Vec<String>| {
        machine.ensure_daemon(component, &binaries.program(component), &args).await
    };
    start("etcd", settings.etcd(credentials)).await?;
    start("kube-apiserver", settings.api_server(credentials)?).await?;
    let client = local_client(&settings.admin_kubeconfig()).await?;
    machine.wait_for("kube-apiserver", Duration::from_secs(90), async || is_api_ready(&client).await).await?;
    start("kube-controller-manager", settings.controller_manager(credentials)).await?;
    start("kube-scheduler", settings.scheduler()).await
}

async fn is_api_ready(client: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else { return false };
    matches!(
        tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await,
        Ok(Ok(text)) if text == "ok"
    )
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
