//! A node: containerd, kubelet and kube-proxy in a machine of their own.
//!
//! The configuration files are pure functions of the node's place in the
//! cluster; everything else here starts programs and waits for them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    address_plan::AddressPlan,
    archive::ArchivedImages,
    certificates::Subject,
    command::Call,
    control_plane::Kit,
    error::{Error, Result},
    folders,
    machine::Machine,
    machine_image,
};

/// Where every machine's containerd answers; each machine has its own /run.
const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// A registry on this host, at the host's address in the cluster's network, is asked without TLS.
const REGISTRY_PORT: u16 = 5000;

/// A node of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The first is 1.
    pub(crate) number: u8,
    /// What it runs in.
    pub(crate) machine: Machine,
}

/// The name of a node; the first is 1.
pub(crate) fn name(number: u8) -> String {
    format!("node-{number}")
}

impl Node {
    fn file(&self, name: &str) -> PathBuf {
        self.machine.folder().join(name)
    }

    /// Starts containerd and loads the image that everything else needs.
    pub(crate) async fn ensure_containerd(&self, plan: &AddressPlan) -> Result<()> {
        let config = self.file("containerd.toml");
        let cni = self.file("cni").join("10-wheelhouse.conflist");
        folders::write_file(
            &config,
            containerd_config(&self.machine.folder(), Snapshotter::fitting(&self.file("."))),
            0o644,
        )?;
        folders::write_file(&cni, pretty(&cni_config(plan, self.number, &self.file("cni-state"))), 0o644)?;
        let registry = format!("{}:{REGISTRY_PORT}", plan.host());
        let hosts = self.file("registries").join(&registry).join("hosts.toml");
        folders::write_file(&hosts, registry_config(&registry), 0o644)?;
        let args = ["--config".to_owned(), config.to_string_lossy().into_owned()];
        self.machine.ensure_daemon("containerd", Path::new("containerd"), &args).await?;
        self.machine
            .wait_for("containerd", Duration::from_secs(30), async || {
                self.ctr(&["version"]).run().await.is_ok()
            })
            .await?;

        let image = self.file("machine-image.tar");
        machine_image::ensure(&image)?;
        self.load(&image, &ArchivedImages::Docker(vec![machine_image::NAME.to_owned()])).await
    }

    /// Starts kubelet and kube-proxy.
    pub(crate) async fn ensure_kubelet(&self, plan: &AddressPlan, kit: &Kit<'_>) -> Result<()> {
        let Kit { settings, credentials, binaries } = kit;
        let name = name(self.number);
        let address = plan.node(self.number);
        let serving =
            Subject::user(&format!("system:node:{name}")).in_group("system:nodes").at(address).called(&name);
        let serving = credentials.authority.ensure_leaf(&format!("kubelet-{name}"), &serving)?;
        let client = Subject::user(&format!("system:node:{name}")).in_group("system:nodes");
        let kubeconfig = settings.ensure_kubeconfig(credentials, &format!("kubelet-{name}"), &client)?;

        let resolv_conf = self.file("resolv.conf");
        folders::write_file(&resolv_conf, format!("nameserver {}\n", plan.dns_service()), 0o644)?;
        let mut config = kubelet_config(plan, &self.machine.folder(), self.machine.group());
        if let Some(config) = config.as_object_mut() {
            config.insert("tlsCertFile".to_owned(), json!(serving.certificate));
            config.insert("tlsPrivateKeyFile".to_owned(), json!(serving.key));
            config.insert(
                "authentication".to_owned(),
                json!({"anonymous": {"enabled": false}, "webhook": {"enabled": true},
                       "x509": {"clientCAFile": credentials.authority.certificate()}}),
            );
        }
        let config_file = self.file("kubelet.json");
        folders::write_file(&config_file, pretty(&config), 0o644)?;
        let args = [
            format!("--config={}", config_file.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root-dir={}", self.file("kubelet").display()),
            format!("--node-ip={address}"),
            format!("--hostname-override={name}"),
        ];
        self.machine.ensure_daemon("kubelet", &binaries.program("kubelet"), &args).await?;
        ensure_kube_proxy(&self.machine, &name, plan, kit).await
    }

    /// Loads the images of an archive; `images` says what is in it.
    pub(crate) async fn load(&self, archive: &Path, images: &ArchivedImages) -> Result<()> {
        // containerd keeps an image without `docker save`'s list of names only if it is told which.
        let bases: Vec<Option<&str>> = match images {
            ArchivedImages::Docker(_) => vec![None],
            ArchivedImages::Oci(names) => {
                names.iter().map(|name| name.rsplit_once(':').map(|(base, _)| base)).collect()
            }
        };
        for base in bases {
            let file = std::fs::File::open(archive).map_err(Error::file("open the image", archive))?;
            let named: Vec<_> = base.iter().flat_map(|base| ["--base-name", *base]).collect();
            // By standard input, because a machine does not see the host's /run and /var/log.
            self.ctr(&["images", "import"]).args(named).arg("-").input_file(file).output().await?;
        }
        let known = self.ctr(&["images", "list", "--quiet"]).output().await?;
        match images.names().iter().find(|name| !known.lines().any(|line| is_same_image(line, name))) {
            None => Ok(()),
            Some(lost) => Err(Error::Malformed {
                path: archive.to_owned(),
                expected: "an archive that containerd can load",
                problem: format!("{lost} was not among the images of {} afterwards", name(self.number)),
            }),
        }
    }

    fn ctr(&self, args: &[&str]) -> Call {
        let doing = format!("talk to the containerd of {}", name(self.number));
        self.machine.call(doing, "ctr").args(["--address", CONTAINERD, "--namespace", "k8s.io"]).args(args)
    }
}

/// Docker leaves its own registry out of names, and containerd puts it in.
fn is_same_image(known: &str, name: &str) -> bool {
    known == name
        || ["docker.io/", "docker.io/library/"].iter().any(|prefix| known.strip_prefix(prefix) == Some(name))
}

/// Starts kube-proxy in a machine; on the control plane's it takes the part of a node, so that
/// the API server reaches Services too.
pub(crate) async fn ensure_kube_proxy(
    machine: &Machine,
    as_node: &str,
    plan: &AddressPlan,
    kit: &Kit<'_>,
) -> Result<()> {
    let Kit { settings, credentials, binaries } = kit;
    let kubeconfig =
        settings.ensure_kubeconfig(credentials, "kube-proxy", &Subject::user("system:kube-proxy"))?;
    let config = machine.folder().join("kube-proxy.json");
    folders::write_file(&config, pretty(&kube_proxy_config(plan, as_node, &kubeconfig)), 0o644)?;
    let args = [format!("--config={}", config.display())];
    machine.ensure_daemon("kube-proxy", &binaries.program("kube-proxy"), &args).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Snapshotter {
    Overlay,
    Native,
}

impl Snapshotter {
    /// Overlays cannot be stacked on one another; then images are copied.
    fn fitting(folder: &Path) -> Self {
        match nix::sys::statfs::statfs(folder) {
            Ok(stat) if stat.filesystem_type() == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC => Self::Native,
            _ => Self::Overlay,
        }
    }
}

/// AppArmor profiles are used where the kernel has them and the loader is there.
fn has_apparmor() -> bool {
    std::fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|enabled| enabled.starts_with('Y'))
        && ["/sbin/apparmor_parser", "/usr/sbin/apparmor_parser"].iter().any(|path| Path::new(path).exists())
}

fn containerd_config(folder: &Path, snapshotter: Snapshotter) -> String {
    let snapshotter = match snapshotter {
        Snapshotter::Overlay => "overlayfs",
        Snapshotter::Native => "native",
    };
    format!(
        r#"version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{CONTAINERD}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
disable_apparmor = {no_apparmor}
restrict_oom_score_adj = true
enable_unprivileged_ports = true
enable_unprivileged_icmp = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{folder}/registries"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        folder = folder.display(),
        image = machine_image::NAME,
        no_apparmor = !has_apparmor(),
    )
}

fn registry_config(registry: &str) -> String {
    format!(
        "server = \"http://{registry}\"\n\n[host.\"http://{registry}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
    )
}

/// Every pod gets a link of its own to its node and is routed, never bridged: what kube-proxy
/// translated on the way there is then translated back on the way home, whatever the kernel's settings.
fn cni_config(plan: &AddressPlan, number: u8, state: &Path) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "wheelhouse",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": state,
                    "ranges": [[{"subnet": plan.pods_of(number).to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet_config(plan: &AddressPlan, folder: &Path, group: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{group}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "clusterDNS": [plan.dns_service()],
        "clusterDomain": "cluster.local",
        "resolvConf": folder.join("resolv.conf"),
        "volumePluginDir": folder.join("volume-plugins"),
        // No image can be fetched again here, so none is ever thrown away; and a
        // disk that others fill must not empty our nodes.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "200Mi", "imagefs.available": "200Mi"},
        "authorization": {"mode": "Webhook"},
    })
}

fn kube_proxy_config(plan: &AddressPlan, node: &str, kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "hostnameOverride": node,
        "mode": "iptables",
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": plan.pods().to_string(),
        // These can be set for the whole host only, which is not ours.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    })
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> AddressPlan {
        AddressPlan::of_slot(0).unwrap()
    }

    #[test]
    fn containerd_is_configured_for_this_node_only() {
        let config = containerd_config(Path::new("/state/demo/node-2"), Snapshotter::Overlay);
        let config = config.replace("disable_apparmor = false", "disable_apparmor = true");
        insta::assert_snapshot!(config);
    }

    #[test]
    fn kubelet_and_its_companions_are_configured_for_this_node_only() {
        let folder = Path::new("/state/demo/node-2");
        insta::assert_snapshot!(
            [
                pretty(&kubelet_config(&plan(), folder, "wheelhouse-demo/node-2")),
                pretty(&kube_proxy_config(&plan(), "node-2", Path::new("/state/demo/kube-proxy.kubeconfig"))),
                pretty(&cni_config(&plan(), 2, &folder.join("cni-state"))),
            ]
            .join("\n")
        );
    }
}
