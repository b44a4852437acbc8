//! The certificates in the pod: what etcd is started with, what the record is told of them, and how the
//! supervisor itself speaks with etcd.
//!
//! Whom to trust etcd reads once, when it starts. It gets a copy, so that what the record says of it is what etcd
//! has read, whatever kubelet does to the folder meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use wheelhouse::certificates::digest;

use crate::{
    children,
    etcd::{
        Dial, Tcp,
        tls::{Credentials, Secured},
    },
    tls::{self, Digests, Scheme, Side, pod},
    version::Version,
};

/// Where the copies are.
const COPIES: &str = "/tmp/trusted";

/// The sides that speak TLS, and where their files are.
pub(super) struct Certificates {
    cluster: String,
    server_name: String,
    /// The name by which other members know this one.
    peer_name: String,
    version: Option<Version>,
    /// Whether the operator makes them.
    sides: BTreeMap<Side, bool>,
    folder: Box<dyn Fn(Side) -> PathBuf + Send + Sync>,
    copies: PathBuf,
    loaded: Mutex<Digests>,
}

impl Certificates {
    /// As the pod's variables say.
    pub(super) fn from_environment(cluster: &str, namespace: &str, member: &str) -> Self {
        let made = |side| std::env::var(pod::variable(side)).ok();
        let sides = Side::ALL.into_iter().filter_map(|side| Some((side, made(side)? == pod::AUTOMATIC)));
        Self {
            cluster: cluster.to_owned(),
            server_name: tls::server_name(cluster, namespace),
            peer_name: children::host(cluster, namespace, member),
            version: std::env::var("VERSION").ok().and_then(|version| version.parse().ok()),
            sides: sides.collect(),
            folder: Box::new(|side| side.folder().into()),
            copies: COPIES.into(),
            loaded: Mutex::default(),
        }
    }

    fn scheme(&self, side: Side) -> Scheme {
        if self.sides.contains_key(&side) { Scheme::Https } else { Scheme::Http }
    }

    /// How members speak with each other.
    pub(super) fn peers(&self) -> Scheme {
        self.scheme(Side::Peer)
    }

    /// How clients speak with members.
    pub(super) fn clients(&self) -> Scheme {
        self.scheme(Side::Server)
    }

    /// Copies whom to trust; what etcd is told about TLS.
    ///
    /// # Errors
    /// When something is not there, in words.
    pub(super) fn load(&self) -> Result<Vec<String>, String> {
        let mut loaded = Digests::default();
        for side in [Side::Peer, Side::Server].into_iter().filter(|side| self.sides.contains_key(side)) {
            let file = side.files().authorities;
            let content = read(&current(&(self.folder)(side)), &file)?;
            let cannot =
                |error: std::io::Error| format!("cannot write to {}: {error}", self.copies.display());
            fs::create_dir_all(&self.copies).map_err(cannot)?;
            fs::write(self.copies.join(&file), &content).map_err(cannot)?;
            loaded.0.insert(file, digest(&content));
        }
        *self.loaded.lock() = loaded;
        Ok(tls::flags(&self.sides, &self.cluster, self.version, (&self.folder, &self.copies)))
    }

    /// Whether all that etcd will read is there.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        for side in self.sides.keys() {
            let (files, folder) = (side.files(), current(&(self.folder)(*side)));
            for file in [files.certificate, files.key, files.authorities] {
                read(&folder, &file)?;
            }
        }
        Ok(())
    }

    /// etcd does not run any more.
    pub(super) fn forget(&self) {
        *self.loaded.lock() = Digests::default();
    }

    /// What the record is told: what etcd trusts, and what is in the pod. Nothing without TLS.
    pub(super) fn report(&self) -> Option<(String, String)> {
        if self.sides.is_empty() {
            return None;
        }
        let mut mounted = Digests::default();
        for side in self.sides.keys() {
            let (files, folder) = (side.files(), current(&(self.folder)(*side)));
            for file in [files.certificate, files.authorities] {
                if let Ok(content) = fs::read(folder.join(&file)) {
                    mounted.0.insert(file, digest(&content));
                }
            }
        }
        Some((self.loaded.lock().to_string(), mounted.to_string()))
    }

    /// How etcd in this pod is asked.
    pub(super) fn dialer(self: &Arc<Self>) -> Arc<dyn Dial> {
        let own = self.clone();
        let credentials = Box::new(move || own.credentials(Side::Client, &own.server_name));
        Arc::new(Secured { inner: Arc::new(Tcp), credentials })
    }

    /// How etcd in this pod is asked what it tells other members.
    pub(super) fn peer_dialer(self: &Arc<Self>) -> Arc<dyn Dial> {
        let own = self.clone();
        let credentials = move || {
            let credentials = own.credentials(Side::Peer, &own.peer_name)?;
            Ok(credentials.map(Credentials::over_http1))
        };
        Arc::new(Secured { inner: Arc::new(Tcp), credentials: Box::new(credentials) })
    }

    fn credentials(&self, side: Side, server_name: &str) -> Result<Option<Credentials>, String> {
        if !self.sides.contains_key(&side) {
            return Ok(None);
        }
        let (files, folder) = (side.files(), current(&(self.folder)(side)));
        let [certificate, key, authorities] = [files.certificate, files.key, files.authorities];
        Credentials::new(
            &read(&folder, &certificate)?,
            &read(&folder, &key)?,
            &read(&folder, &authorities)?,
            server_name,
        )
        .map(Some)
    }
}

/// The folder behind the link that kubelet replaces, so that what is read belongs together.
fn current(folder: &Path) -> PathBuf {
    fs::canonicalize(folder.join("..data")).unwrap_or_else(|_| folder.to_owned())
}

fn read(folder: &Path, file: &str) -> Result<Vec<u8>, String> {
    fs::read(folder.join(file)).map_err(|error| format!("cannot read {}/{file}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubelet has put there, as it does: behind a link that it replaces.
    fn mount(root: &Path, side: Side, version: &str) {
        let (folder, files) = (root.join(side.name()), side.files());
        let real = folder.join(version);
        fs::create_dir_all(&real).unwrap();
        for file in [files.certificate, files.key, files.authorities] {
            fs::write(real.join(&file), format!("{file} {version}")).unwrap();
        }
        let _ = fs::remove_file(folder.join("..data"));
        std::os::unix::fs::symlink(version, folder.join("..data")).unwrap();
    }

    fn certificates(root: &Path, sides: &[Side]) -> Certificates {
        let place = root.to_owned();
        Certificates {
            cluster: "db".to_owned(),
            server_name: "db-client.n.svc".to_owned(),
            peer_name: "db-0.db.n.svc".to_owned(),
            version: Some(Version::new(3, 6, 16)),
            sides: sides.iter().map(|side| (*side, true)).collect(),
            folder: Box::new(move |side| place.join(side.name())),
            copies: root.join("copies"),
            loaded: Mutex::default(),
        }
    }

    #[test]
    fn what_is_reported_to_be_trusted_is_what_etcd_was_given_whatever_comes_later() {
        let root = tempfile::tempdir().unwrap();
        mount(root.path(), Side::Peer, "1");
        let certificates = certificates(root.path(), &[Side::Peer]);
        let told =
            |version: &str| format!("peer-ca.crt={}", digest(format!("peer-ca.crt {version}").as_bytes()));
        assert_eq!(certificates.report().unwrap().0, "", "nothing before it starts");
        let flags = certificates.load().unwrap();
        let copy = root.path().join("copies/peer-ca.crt");
        assert!(flags.contains(&format!("--peer-trusted-ca-file={}", copy.display())), "{flags:?}");
        mount(root.path(), Side::Peer, "2");
        let (trusts, mounted) = certificates.report().unwrap();
        assert_eq!(trusts, told("1"));
        assert!(mounted.starts_with(&told("2")) && mounted.contains(" peer.crt="), "{mounted}");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "peer-ca.crt 1", "as etcd has read it");
        certificates.load().unwrap();
        assert_eq!(certificates.report().unwrap().0, told("2"));
        certificates.forget();
        assert_eq!(certificates.report().unwrap().0, "");
    }

    #[test]
    fn nobody_begins_without_certificates() {
        let root = tempfile::tempdir().unwrap();
        let certificates = certificates(root.path(), &[Side::Peer, Side::Client]);
        mount(root.path(), Side::Peer, "1");
        let missing = certificates.check().unwrap_err();
        assert!(missing.contains("client-tls/etcd-client.crt"), "{missing}");
        mount(root.path(), Side::Client, "1");
        assert_eq!(certificates.check(), Ok(()));
        assert_eq!((certificates.peers(), certificates.clients()), (Scheme::Https, Scheme::Http));
    }

    #[test]
    fn who_speaks_plain_http_is_told_nothing_and_reports_nothing() {
        let root = tempfile::tempdir().unwrap();
        let certificates = certificates(root.path(), &[]);
        assert_eq!((certificates.load(), certificates.report()), (Ok(Vec::new()), None));
        assert!(!Arc::new(certificates).dialer().is_secure());
    }
}
