//! TLS of a cluster: which sides speak it, with which certificates, and what etcd has to be told. Pure.
//!
//! Facts about etcd that this rests on, read in the sources of 3.5.35, 3.6.16 and 3.7.3:
//! - Certificates and keys are read again for every handshake: who replaces the files is done.
//! - Whom to trust is read when etcd starts, and never again.
//! - Members look up in the DNS whether the names of another's certificate are those of its address. The names of pods
//!   come and go, so they are told not to. The flag for that got its name in 3.6.

pub(crate) mod pod;
pub mod secrets;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use wheelhouse::{
    Known,
    certificates::{AuthoritySeen, Files, LeafSeen},
    plan::Leaf,
};

use crate::{
    api::{AutomaticTls, EtcdCluster},
    children::client_service_name,
    version::Version,
};

/// A new value of this annotation means: another authority.
pub const ROTATE: &str = "etcd.database.coreos.com/rotate-authority";

/// Whether a side speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// It does not.
    Http,
    /// It does.
    Https,
}

impl Scheme {
    fn of(secret: Option<&String>) -> Self {
        if secret.is_some() { Self::Https } else { Self::Http }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Side {
    /// Members, to each other.
    Peer,
    /// Members, to clients.
    Server,
    /// The operator and the supervisors, to members; and whoever people let have it.
    Client,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Peer, Self::Server, Self::Client];

    /// The name of a volume in a pod, and the end of the name of a Secret.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer-tls",
            Self::Server => "server-tls",
            Self::Client => "client-tls",
        }
    }

    /// What the files in its Secret are called; as in the original.
    pub fn files(self) -> Files {
        let stem = match self {
            Self::Peer => "peer",
            Self::Server => "server",
            Self::Client => "etcd-client",
        };
        Files::new(&format!("{stem}.crt"), &format!("{stem}.key"), &format!("{stem}-ca.crt"))
    }

    /// Where its Secret is in a pod; as in the original.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Peer => "/etc/etcdtls/member/peer-tls",
            Self::Server => "/etc/etcdtls/member/server-tls",
            Self::Client => "/etc/etcdtls/operator/etcd-tls",
        }
    }
}

/// With which Secrets the sides of a cluster speak TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// By side; those that are missing speak plain HTTP.
    pub secrets: BTreeMap<Side, String>,
    /// How certificates are made, if the operator makes them.
    pub automatic: Option<AutomaticTls>,
}

impl Wanted {
    /// What a cluster wants.
    pub fn by(cluster: &EtcdCluster) -> Self {
        let Some(tls) = &cluster.spec.tls else { return Self::default() };
        let name = cluster.name_any();
        if let Some(automatic) = &tls.automatic {
            let secrets = Side::ALL.into_iter().map(|side| (side, format!("{name}-{}", side.name())));
            return Self { secrets: secrets.collect(), automatic: Some(automatic.clone()) };
        }
        let theirs = tls.from_secrets.clone().unwrap_or_default();
        let member = theirs.member.unwrap_or_default();
        let sides = [
            (Side::Peer, member.peer_secret),
            (Side::Server, member.server_secret),
            (Side::Client, theirs.operator_secret),
        ];
        let secrets = sides.into_iter().filter_map(|(side, secret)| Some((side, secret?)));
        Self { secrets: secrets.collect(), automatic: None }
    }

    /// Whether nobody speaks TLS.
    pub fn is_plain(&self) -> bool {
        self.secrets.is_empty()
    }

    /// How members speak with each other.
    pub fn peers(&self) -> Scheme {
        Scheme::of(self.secrets.get(&Side::Peer))
    }

    /// How clients speak with members.
    pub fn clients(&self) -> Scheme {
        Scheme::of(self.secrets.get(&Side::Server))
    }
}

/// The Secret with the authority of a cluster. Only the operator reads it.
pub fn authority_name(cluster: &str) -> String {
    format!("{cluster}-authority")
}

/// The name that every member's certificate for clients has: whom one asks for at whatever address.
pub fn server_name(cluster: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc", client_service_name(cluster))
}

/// The name in the certificates of the members among themselves. Who has another one is no member.
pub(crate) fn peer_common_name(cluster: &str) -> String {
    format!("{cluster}-peer")
}

/// The certificate of a side, as the cluster's own authority signs it.
pub fn leaf(cluster: &EtcdCluster, side: Side, secret: &str) -> Leaf {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let client = client_service_name(&name);
    let members = format!("*.{name}.{namespace}.svc");
    let here = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let (common_name, names) = match side {
        Side::Peer => (peer_common_name(&name), [members].into_iter().chain(here).collect()),
        Side::Server => {
            let service = [server_name(&name, &namespace), format!("{client}.{namespace}"), client.clone()];
            (format!("{name}-server"), [members].into_iter().chain(service).chain(here).collect())
        }
        Side::Client => (client, Vec::new()),
    };
    Leaf { secret: secret.to_owned(), common_name, names, files: side.files() }
}

/// What is seen of a cluster's certificates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsSeen {
    /// Its own authority; absent where it has none.
    pub authority: Known<AuthoritySeen>,
    /// The Secrets, by side.
    pub secrets: BTreeMap<Side, Known<LeafSeen>>,
}

/// Files by what they hold, in short; as supervisors report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests(pub BTreeMap<String, String>);

impl fmt::Display for Digests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(file, digest)| format!("{file}={digest}")).collect();
        formatter.write_str(&all.join(" "))
    }
}

impl FromStr for Digests {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        Ok(Self(pairs.map(|(file, digest)| (file.to_owned(), digest.to_owned())).collect()))
    }
}

/// What etcd is told about TLS, by side and whether the operator makes its certificates. Those are in a folder for each
/// side. Whom to trust is in copies in another folder: files that nobody replaces, so that what is known of them is
/// what etcd has read.
pub fn flags(
    sides: &BTreeMap<Side, bool>,
    cluster: &str,
    version: Option<Version>,
    (folder, copies): (&dyn Fn(Side) -> PathBuf, &Path),
) -> Vec<String> {
    let mut flags = Vec::new();
    let path = |side: Side, file: String| folder(side).join(file).display().to_string();
    let copy = |file: String| copies.join(file).display().to_string();
    if sides.contains_key(&Side::Server) {
        let files = Side::Server.files();
        flags.extend([
            ("cert-file", path(Side::Server, files.certificate)),
            ("key-file", path(Side::Server, files.key)),
            ("trusted-ca-file", copy(files.authorities)),
            ("client-cert-auth", "true".to_owned()),
        ]);
    }
    if let Some(is_automatic) = sides.get(&Side::Peer) {
        let files = Side::Peer.files();
        let is_old = version.is_some_and(|version| version < Version::new(3, 6, 0));
        let skip = match is_old {
            true => "experimental-peer-skip-client-san-verification",
            false => "peer-skip-client-san-verification",
        };
        flags.extend([
            ("peer-cert-file", path(Side::Peer, files.certificate)),
            ("peer-key-file", path(Side::Peer, files.key)),
            ("peer-trusted-ca-file", copy(files.authorities)),
            ("peer-client-cert-auth", "true".to_owned()),
            (skip, "true".to_owned()),
        ]);
        // The authority signs for clients, too, who are no members.
        if *is_automatic {
            flags.push(("peer-cert-allowed-cn", peer_common_name(cluster)));
        }
    }
    flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(tls: Value) -> EtcdCluster {
        let mut cluster =
            EtcdCluster::new("db", serde_json::from_value(json!({"size": 3, "TLS": tls})).unwrap());
        cluster.metadata.namespace = Some("n".to_owned());
        cluster
    }

    #[rstest]
    #[case::not_at_all(Value::Null, Scheme::Http, Scheme::Http)]
    #[case::automatic(json!({"automatic": {}}), Scheme::Https, Scheme::Https)]
    #[case::of_the_original(
        json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
        Scheme::Https,
        Scheme::Https
    )]
    #[case::members_only(json!({"static": {"member": {"peerSecret": "p"}}}), Scheme::Https, Scheme::Http)]
    #[case::clients_only(
        json!({"static": {"member": {"serverSecret": "s"}, "operatorSecret": "o"}}),
        Scheme::Http,
        Scheme::Https
    )]
    #[case::nobody(json!({"static": {}}), Scheme::Http, Scheme::Http)]
    fn who_has_no_secret_speaks_plain_http(
        #[case] tls: Value,
        #[case] peers: Scheme,
        #[case] clients: Scheme,
    ) {
        let wanted = Wanted::by(&cluster(tls));
        assert_eq!((wanted.peers(), wanted.clients()), (peers, clients));
    }

    #[rstest]
    #[case("3.5.35", "--experimental-peer-skip-client-san-verification=true")]
    #[case("3.6.16", "--peer-skip-client-san-verification=true")]
    #[case("3.7.3", "--peer-skip-client-san-verification=true")]
    fn each_version_is_told_in_its_own_words(#[case] version: &str, #[case] flag: &str) {
        let sides = [(Side::Peer, true)].into();
        let folders = (&|side: Side| side.folder().into(), Path::new("/tmp/trusted"));
        let flags = flags(&sides, "db", version.parse().ok(), (folders.0, folders.1));
        assert!(flags.contains(&flag.to_owned()), "{flags:?}");
        assert!(flags.contains(&"--peer-cert-allowed-cn=db-peer".to_owned()), "no client is a member");
        assert!(!flags.iter().any(|flag| flag.starts_with("--cert-file")), "clients speak plain HTTP");
    }

    #[test]
    fn certificates_have_the_names_by_which_members_are_reached() {
        let cluster = cluster(json!({"automatic": {}}));
        let names = |side| leaf(&cluster, side, "s").names;
        assert_eq!(names(Side::Peer), ["*.db.n.svc", "localhost", "127.0.0.1", "::1"]);
        assert_eq!(
            names(Side::Server),
            ["*.db.n.svc", "db-client.n.svc", "db-client.n", "db-client", "localhost", "127.0.0.1", "::1"]
        );
        assert_eq!(names(Side::Client), [""; 0]);
    }

    #[test]
    fn what_supervisors_report_can_be_read_back() {
        let pairs = [("peer-ca.crt", "0a"), ("peer.crt", "1b")];
        let digests = Digests(pairs.map(|(file, digest)| (file.to_owned(), digest.to_owned())).into());
        assert_eq!(digests.to_string(), "peer-ca.crt=0a peer.crt=1b");
        assert_eq!(digests.to_string().parse(), Ok(digests));
        assert_eq!("".parse(), Ok(Digests::default()));
    }
}
