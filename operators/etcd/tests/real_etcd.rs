//! TLS with a real etcd, on loopback: with the flags and the client that the operator uses, and with certificates
//! of the library.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use etcd_operator::{
    api::EtcdCluster,
    etcd::{
        Client, Confirmed, Dial, Error, Tcp,
        tls::{Credentials, Secured},
    },
    tls::{Side, flags, leaf, server_name},
};
use serde_json::json;
use wheelhouse::{
    certificates::{Authorities, Pair, Validity},
    jiff::Timestamp,
};
use wheelhouse_local::{binaries::Binaries, progress::Progress};
use wheelhouse_testing::{eventually, free_address, spawn_tethered};

const PATIENCE: Duration = Duration::from_secs(5);

fn cluster() -> EtcdCluster {
    let spec = json!({"size": 2, "TLS": {"automatic": {}}});
    let mut cluster = EtcdCluster::new("db", serde_json::from_value(spec).unwrap());
    cluster.metadata.namespace = Some("n".to_owned());
    cluster
}

fn authorities() -> Authorities {
    Authorities::new("db-authority", Validity::default(), Timestamp::now()).unwrap()
}

fn signed(authorities: &Authorities, side: Side) -> Pair {
    let mut wish = leaf(&cluster(), side, "secret");
    if side == Side::Peer {
        // Here members are not reached by name.
        wish.names.push(free_address().ip().to_string());
    }
    authorities.sign(&wish.common_name, &wish.names, Validity::default(), Timestamp::now()).unwrap()
}

fn dialer(pair: &Pair, bundle: &str) -> Arc<dyn Dial> {
    let (certificate, key, bundle) = (pair.certificate.as_bytes(), pair.key.as_bytes(), bundle.as_bytes());
    let credentials = Credentials::new(certificate, key, bundle, &server_name("db", "n")).unwrap();
    Arc::new(Secured { inner: Arc::new(Tcp), credentials: Box::new(move || Ok(Some(credentials.clone()))) })
}

async fn get(address: &str, dialer: Arc<dyn Dial>) -> Result<(), Error> {
    Client::connect(dialer, address, PATIENCE).await?.get("key").await.map(drop)
}

/// A member, with its files. It ends with the test.
struct Member {
    name: &'static str,
    folder: PathBuf,
    client: String,
    peer: String,
    process: Option<Child>,
}

impl Member {
    fn new(root: &Path, name: &'static str) -> Self {
        let folder = root.join(name);
        for side in Side::ALL {
            fs::create_dir_all(folder.join(format!("{side:?}"))).unwrap();
        }
        fs::create_dir_all(folder.join("trusted")).unwrap();
        let (client, peer) = (free_address().to_string(), free_address().to_string());
        Self { name, folder, client, peer, process: None }
    }

    fn put(&self, side: Side, pair: &Pair) {
        let (files, folder) = (side.files(), self.folder.join(format!("{side:?}")));
        fs::write(folder.join(files.certificate), &pair.certificate).unwrap();
        fs::write(folder.join(files.key), &pair.key).unwrap();
    }

    fn trust(&self, bundle: &str) {
        for side in [Side::Peer, Side::Server] {
            fs::write(self.folder.join("trusted").join(side.files().authorities), bundle).unwrap();
        }
    }

    async fn start(&mut self, all: &str) {
        let binaries = Binaries::for_tests(&Progress::silent()).await.unwrap();
        let folder = |side: Side| self.folder.join(format!("{side:?}"));
        let sides = [(Side::Peer, true), (Side::Server, true)].into();
        let mut arguments = flags(&sides, "db", None, (&folder, &self.folder.join("trusted")));
        let (client, peer) = (format!("https://{}", self.client), format!("https://{}", self.peer));
        arguments.extend([
            format!("--name={}", self.name),
            format!("--data-dir={}", self.folder.join("data").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={all}"),
        ]);
        let log = fs::File::create(self.folder.join("log")).unwrap();
        let started = spawn_tethered(&binaries.program("etcd"), |command| {
            command.args(&arguments).stdout(Stdio::null()).stderr(log);
        });
        self.process = Some(started.unwrap());
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Two members of one cluster that answer.
async fn cluster_of_two(root: &Path, authorities: &Authorities) -> ([Member; 2], String) {
    let mut members = [Member::new(root, "one"), Member::new(root, "two")];
    let all = members.iter().map(|member| format!("{}=https://{}", member.name, member.peer));
    let all = all.collect::<Vec<_>>().join(",");
    for member in &mut members {
        member.put(Side::Peer, &signed(authorities, Side::Peer));
        member.put(Side::Server, &signed(authorities, Side::Server));
        member.trust(&authorities.bundle());
        member.start(&all).await;
    }
    let right = dialer(&signed(authorities, Side::Client), &authorities.bundle());
    // A quorum of two is both: they talk to each other.
    eventually("both answer", async || get(&members[0].client, right.clone()).await.is_ok()).await;
    eventually("both answer", async || get(&members[1].client, right.clone()).await.is_ok()).await;
    (members, all)
}

#[tokio::test]
async fn members_serve_who_shows_the_right_certificate_and_nobody_else() {
    let (root, ours, theirs) = (tempfile::tempdir().unwrap(), authorities(), authorities());
    let (members, _) = cluster_of_two(root.path(), &ours).await;
    let address = &members[0].client;
    let right = dialer(&signed(&ours, Side::Client), &ours.bundle());
    let client = Client::connect(right, address, PATIENCE).await.unwrap();
    client.put("key", "value").await.unwrap();
    assert_eq!(client.get("key").await.unwrap().kvs[0].value, b"value");
    assert_eq!(client.members(Confirmed::ByTheList).await.unwrap().1.len(), 2);

    let stranger = dialer(&signed(&theirs, Side::Client), &ours.bundle());
    let said = get(address, stranger).await.unwrap_err().to_string();
    assert!(members[0].log().contains("certificate signed by unknown authority"), "{said}");

    let of_a_stranger = dialer(&signed(&ours, Side::Client), &theirs.bundle());
    let said = get(address, of_a_stranger).await.unwrap_err().to_string();
    assert!(said.contains("invalid peer certificate"), "{said}");

    // Not for this cluster, though of the right authority.
    let elsewhere = signed(&ours, Side::Client);
    let credentials = Credentials::new(
        elsewhere.certificate.as_bytes(),
        elsewhere.key.as_bytes(),
        ours.bundle().as_bytes(),
        &server_name("other", "n"),
    );
    let credentials = credentials.unwrap();
    let find = move || Ok(Some(credentials.clone()));
    let said = get(address, Arc::new(Secured { inner: Arc::new(Tcp), credentials: Box::new(find) }));
    let said = said.await.unwrap_err().to_string();
    assert!(said.contains("not valid for name"), "{said}");

    assert!(get(address, Arc::new(Tcp)).await.is_err(), "nobody is served in plain words");
}

#[tokio::test]
async fn a_client_is_no_member() {
    let (root, ours) = (tempfile::tempdir().unwrap(), authorities());
    let (members, _) = cluster_of_two(root.path(), &ours).await;
    let member = &members[0];
    let find = |side| {
        let pair = signed(&ours, side);
        let credentials = Credentials::new(
            pair.certificate.as_bytes(),
            pair.key.as_bytes(),
            ours.bundle().as_bytes(),
            "localhost",
        );
        let credentials = credentials.unwrap();
        Arc::new(Secured {
            inner: Arc::new(Tcp),
            credentials: Box::new(move || Ok(Some(credentials.clone()))),
        })
    };
    let refusals = || member.log().matches("client certificate authentication failed").count();
    get(&member.peer, find(Side::Peer)).await.unwrap_err();
    assert_eq!(refusals(), 0, "it is let in, though there is nothing for it");
    get(&member.peer, find(Side::Client)).await.unwrap_err();
    eventually("it is turned away", async || refusals() > 0).await;
}

/// What the rotation of an authority rests on.
#[tokio::test]
async fn certificates_are_read_for_every_handshake_and_whom_to_trust_only_at_the_start() {
    let (root, old) = (tempfile::tempdir().unwrap(), authorities());
    let (mut members, all) = cluster_of_two(root.path(), &old).await;
    let address = members[0].client.clone();
    let mut both = old.clone();
    both.announce(Validity::default(), Timestamp::now()).unwrap();
    let bundle = both.bundle();
    let mut new = both.clone();
    new.hand_over();
    let with_old = dialer(&signed(&old, Side::Client), &bundle);
    let with_new = dialer(&signed(&new, Side::Client), &bundle);

    for member in &members {
        member.trust(&bundle);
    }
    get(&address, with_old.clone()).await.unwrap();
    assert!(get(&address, with_new.clone()).await.is_err(), "the new one is not trusted yet");
    for member in &mut members {
        member.stop();
        member.start(&all).await;
        let address = member.client.clone();
        eventually("it is back", async || get(&address, with_old.clone()).await.is_ok()).await;
    }
    get(&address, with_new.clone()).await.unwrap();

    for member in &members {
        member.put(Side::Server, &signed(&new, Side::Server));
        member.put(Side::Peer, &signed(&new, Side::Peer));
    }
    let only_new = {
        let mut only = new.clone();
        only.forget_former();
        only.bundle()
    };
    let trusts_only_the_new = dialer(&signed(&old, Side::Client), &only_new);
    get(&address, trusts_only_the_new).await.unwrap();
    let trusts_only_the_old = dialer(&signed(&old, Side::Client), &old.bundle());
    assert!(
        get(&address, trusts_only_the_old).await.is_err(),
        "the new certificate is shown without a restart"
    );

    for member in &mut members {
        member.trust(&only_new);
        member.stop();
        member.start(&all).await;
        let address = member.client.clone();
        eventually("it is back", async || get(&address, with_new.clone()).await.is_ok()).await;
    }
    assert!(get(&address, with_old).await.is_err(), "the old one is forgotten");
}
