//! The control plane: its certificates, and the command line of each of its programs.
//!
//! The same for a cluster with nodes, where it runs in a network namespace of
//! its own, and for the bare etcd and API server of a test on loopback.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    address_plan::{AddressPlan, Range},
    binaries::Binaries,
    certificates::{Authority, Pair, Subject, ensure_service_account_key},
    error::Result,
    folders,
    kubeconfig::{self, Entry},
};

/// Where the programs of a control plane listen, and what they are told of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The API server, for everybody.
    pub api: SocketAddrV4,
    /// etcd, for the API server.
    pub etcd: SocketAddrV4,
    /// etcd, for other members; there are none, but it insists.
    pub etcd_peer: SocketAddrV4,
    /// The controller manager's health and metrics.
    pub controller_manager: SocketAddrV4,
    /// The scheduler's health and metrics.
    pub scheduler: SocketAddrV4,
}

impl Ports {
    /// The usual ones, for a control plane that has a network namespace to itself.
    pub fn usual(plan: &AddressPlan) -> Self {
        let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Self {
            api: SocketAddrV4::new(plan.control_plane(), 6443),
            etcd: local(2379),
            etcd_peer: local(2380),
            controller_manager: local(10257),
            scheduler: local(10259),
        }
    }

    /// Ports on loopback that were free a moment ago; `api` asks for a certain one.
    pub fn free(api: Option<u16>) -> std::io::Result<Self> {
        // All are held until all are found, so that no two are the same.
        let listen = |port| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let held = [listen(api.unwrap_or(0))?, listen(0)?, listen(0)?, listen(0)?, listen(0)?];
        let mut ports = Vec::with_capacity(held.len());
        for listener in &held {
            ports.push(SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port()));
        }
        let mut ports = ports.into_iter();
        let mut next = || ports.next().ok_or(std::io::ErrorKind::AddrNotAvailable);
        Ok(Self {
            api: next()?,
            etcd: next()?,
            etcd_peer: next()?,
            controller_manager: next()?,
            scheduler: next()?,
        })
    }

    /// All of them, each with whose it is.
    pub fn each(&self) -> [(&'static str, SocketAddrV4); 5] {
        [
            ("kube-apiserver", self.api),
            ("etcd", self.etcd),
            ("etcd", self.etcd_peer),
            ("kube-controller-manager", self.controller_manager),
            ("kube-scheduler", self.scheduler),
        ]
    }
}

/// A control plane's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The cluster's name.
    pub cluster: String,
    /// Its folder: certificates, kubeconfigs and etcd's data are in here.
    pub folder: PathBuf,
    /// Where everything listens.
    pub ports: Ports,
    /// Addresses of Services.
    pub services: Range,
    /// Addresses of pods; none where there are no nodes.
    pub pods: Option<Range>,
    /// The audit log, where somebody reads it.
    pub audit_log: Option<PathBuf>,
}

/// What the programs of a control plane identify themselves with.
pub struct Credentials {
    /// Signs every certificate of the cluster.
    pub authority: Authority,
    etcd_authority: Authority,
    etcd: Pair,
    etcd_client: Pair,
    api: Pair,
    kubelet_client: Pair,
    front_proxy_authority: Authority,
    front_proxy: Pair,
    service_accounts: PathBuf,
}

/// What every component is started with.
pub(crate) struct Kit<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) credentials: &'a Credentials,
    pub(crate) binaries: &'a Binaries,
}

impl Settings {
    /// The folder of the certificates.
    fn certificates(&self) -> PathBuf {
        self.folder.join("certificates")
    }

    /// The kubeconfig of the cluster's administrator.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Makes all certificates and the kubeconfigs that are not there yet.
    pub fn ensure_credentials(&self) -> Result<Credentials> {
        let folder = self.certificates();
        let authority = Authority::ensure(&folder, "cluster-authority")?;
        let front_proxy_authority = Authority::ensure(&folder, "front-proxy-authority")?;
        // Its own: whoever Kubernetes signs a certificate for has no business in etcd.
        let etcd_authority = Authority::ensure(&folder, "etcd-authority")?;
        let api = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
            .into_iter()
            .fold(Subject::user("kube-apiserver"), Subject::called)
            .called("kubernetes.default.svc.cluster.local")
            .at(*self.ports.api.ip())
            .at(Ipv4Addr::LOCALHOST)
            .at(self.services.address(1));
        let credentials = Credentials {
            etcd: etcd_authority.ensure_leaf("etcd", &Subject::user("etcd").at(*self.ports.etcd.ip()))?,
            etcd_client: etcd_authority.ensure_leaf("etcd-client", &Subject::user("kube-apiserver"))?,
            api: authority.ensure_leaf("kube-apiserver", &api)?,
            kubelet_client: authority.ensure_leaf("kubelet-client", &Subject::user(KUBELET_CLIENT))?,
            front_proxy: front_proxy_authority
                .ensure_leaf("front-proxy", &Subject::user("front-proxy-client"))?,
            service_accounts: ensure_service_account_key(&folder)?,
            etcd_authority,
            front_proxy_authority,
            authority,
        };
        self.ensure_kubeconfig(
            &credentials,
            "admin",
            &Subject::user("kubernetes-admin").in_group("system:masters"),
        )?;
        for program in ["kube-controller-manager", "kube-scheduler"] {
            self.ensure_kubeconfig(&credentials, program, &Subject::user(&format!("system:{program}")))?;
        }
        Ok(credentials)
    }

    /// The kubeconfig of a client of this cluster, with a certificate of its own; made if it is not there yet.
    pub fn ensure_kubeconfig(
        &self,
        credentials: &Credentials,
        file: &str,
        subject: &Subject,
    ) -> Result<PathBuf> {
        let path = self.kubeconfig_of(file);
        if !path.exists() {
            let pair = credentials.authority.ensure_leaf(&format!("client-{file}"), subject)?;
            let entry =
                Entry::from_files(&self.cluster, self.ports.api, credentials.authority.certificate(), &pair)?;
            folders::write_file(&path, kubeconfig::standalone(&entry), 0o600)?;
        }
        Ok(path)
    }

    fn kubeconfig_of(&self, file: &str) -> PathBuf {
        if file == "admin" { self.admin_kubeconfig() } else { self.folder.join(format!("{file}.kubeconfig")) }
    }

    /// etcd's command line.
    pub fn etcd(&self, credentials: &Credentials) -> Vec<String> {
        let client = format!("https://{}", self.ports.etcd);
        let peer = format!("https://{}", self.ports.etcd_peer);
        Flags::default()
            .path("data-dir", &self.folder.join("etcd"))
            .flag("name", "etcd")
            .flag("listen-client-urls", &client)
            .flag("advertise-client-urls", &client)
            .flag("listen-peer-urls", &peer)
            .flag("initial-advertise-peer-urls", &peer)
            .flag("initial-cluster", &format!("etcd={peer}"))
            .pair(("cert-file", "key-file"), &credentials.etcd)
            .path("trusted-ca-file", credentials.etcd_authority.certificate())
            .flag("client-cert-auth", "true")
            .pair(("peer-cert-file", "peer-key-file"), &credentials.etcd)
            .path("peer-trusted-ca-file", credentials.etcd_authority.certificate())
            .flag("peer-client-cert-auth", "true")
            // A cluster on one machine does not outlive a power cut anyway, and a
            // slow disk would make every test slow.
            .flag("unsafe-no-fsync", "true")
            .flag("logger", "zap")
            .flag("log-level", "warn")
            .0
    }

    /// The API server's command line.
    pub fn api_server(&self, credentials: &Credentials) -> Result<Vec<String>> {
        let api = self.ports.api;
        let flags = Flags::default()
            .flag("etcd-servers", &format!("https://{}", self.ports.etcd))
            .path("etcd-cafile", credentials.etcd_authority.certificate())
            .pair(("etcd-certfile", "etcd-keyfile"), &credentials.etcd_client)
            .flag("bind-address", &api.ip().to_string())
            .flag("advertise-address", &api.ip().to_string())
            .flag("secure-port", &api.port().to_string())
            // The address of the Service `kubernetes` cannot be one of loopback.
            .flag("endpoint-reconciler-type", if api.ip().is_loopback() { "none" } else { "lease" })
            .pair(("tls-cert-file", "tls-private-key-file"), &credentials.api)
            .path("client-ca-file", credentials.authority.certificate())
            .flag("authorization-mode", "Node,RBAC")
            .flag("enable-admission-plugins", "NodeRestriction")
            .flag("allow-privileged", "true")
            .flag("service-cluster-ip-range", &self.services.to_string())
            .flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
            .path("service-account-key-file", &credentials.service_accounts.with_extension("pub"))
            .path("service-account-signing-key-file", &credentials.service_accounts)
            .pair(("kubelet-client-certificate", "kubelet-client-key"), &credentials.kubelet_client)
            .path("kubelet-certificate-authority", credentials.authority.certificate())
            .flag("kubelet-preferred-address-types", "InternalIP")
            .path("requestheader-client-ca-file", credentials.front_proxy_authority.certificate())
            .flag("requestheader-allowed-names", "front-proxy-client")
            .flag("requestheader-username-headers", "X-Remote-User")
            .flag("requestheader-group-headers", "X-Remote-Group")
            .flag("requestheader-extra-headers-prefix", "X-Remote-Extra-")
            .pair(("proxy-client-cert-file", "proxy-client-key-file"), &credentials.front_proxy);
        let Some(log) = &self.audit_log else { return Ok(flags.0) };
        let policy = self.folder.join("audit-policy.yaml");
        folders::write_file(&policy, AUDIT_POLICY, 0o644)?;
        Ok(flags.path("audit-policy-file", &policy).path("audit-log-path", log).0)
    }

    /// The controller manager's command line.
    pub fn controller_manager(&self, credentials: &Credentials) -> Vec<String> {
        let authority = credentials.authority.certificate();
        let flags = self
            .client("kube-controller-manager", self.ports.controller_manager)
            .flag("use-service-account-credentials", "true")
            .path("service-account-private-key-file", &credentials.service_accounts)
            .path("root-ca-file", authority)
            .path("cluster-signing-cert-file", authority)
            .path("cluster-signing-key-file", &authority.with_extension("key"))
            // It would make a folder for the whole host, which nobody takes away.
            .path("flex-volume-plugin-dir", &self.folder.join("volume-plugins"));
        match &self.pods {
            Some(pods) => flags.flag("cluster-cidr", &pods.to_string()).0,
            None => flags.0,
        }
    }

    /// The scheduler's command line.
    pub fn scheduler(&self) -> Vec<String> {
        self.client("kube-scheduler", self.ports.scheduler).0
    }

    /// What the two clients of the control plane have in common.
    fn client(&self, program: &str, listen: SocketAddrV4) -> Flags {
        let kubeconfig = self.kubeconfig_of(program);
        Flags::default()
            .path("kubeconfig", &kubeconfig)
            .path("authentication-kubeconfig", &kubeconfig)
            .path("authorization-kubeconfig", &kubeconfig)
            .flag("leader-elect", "false")
            .flag("bind-address", &listen.ip().to_string())
            .flag("secure-port", &listen.port().to_string())
    }
}

/// Who the API server is to a kubelet.
pub(crate) const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// Every request, once, when it is answered.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// A command line in the making.
#[derive(Default)]
struct Flags(Vec<String>);

impl Flags {
    fn flag(mut self, name: &str, value: &str) -> Self {
        self.0.push(format!("--{name}={value}"));
        self
    }

    fn path(self, name: &str, value: &Path) -> Self {
        self.flag(name, &value.to_string_lossy())
    }

    fn pair(self, (certificate, key): (&str, &str), pair: &Pair) -> Self {
        self.path(certificate, &pair.certificate).path(key, &pair.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_from_each_other() {
        let ports = Ports::free(None).unwrap();
        let mut numbers: Vec<_> = ports.each().iter().map(|(_, address)| address.port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(5, numbers.len());
    }

    #[test]
    fn a_taken_port_is_an_error_and_not_another_port() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(std::io::ErrorKind::AddrInUse, Ports::free(Some(port)).unwrap_err().kind());
    }
}
