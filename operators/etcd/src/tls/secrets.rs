//! Observe: the Secrets of a cluster's certificates. What is kept of them is digests; but for the operator's own
//! credentials, which are kept apart, for whoever dials.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{ResourceExt as _, core::PartialObjectMeta};
use parking_lot::Mutex;
use wheelhouse::{
    Key, Known, Probe, Result, World,
    certificates::{AuthoritySeen, Files, LeafSeen},
    world::Live,
};

use super::{Scheme, Side, TlsSeen, Wanted, authority_name, server_name};
use crate::{
    EtcdClusters,
    api::EtcdCluster,
    etcd::{
        Dial,
        tls::{Credentials, Secured},
    },
};

/// How often Secrets that somebody else looks after are read. They have no label to be watched by, and to watch
/// all Secrets that there are takes memory for each of them.
const THEIRS_ARE_READ_EVERY: Duration = Duration::from_secs(10);
/// What was read of a version of a Secret is true for ever.
const READ_ONCE: Duration = Duration::from_secs(24 * 3600);

/// With what the operator shows itself to the members of each cluster. A cluster that is not here speaks plain
/// HTTP; one that does not is here as soon as it was looked at.
#[derive(Debug, Default)]
pub struct Keyring(Mutex<HashMap<Key, std::result::Result<Credentials, String>>>);

impl Keyring {
    /// How members of that cluster are dialled.
    pub(crate) fn dialer(self: &Arc<Self>, cluster: Key, inner: Arc<dyn Dial>) -> Arc<dyn Dial> {
        let keyring = self.clone();
        let find = move || keyring.0.lock().get(&cluster).cloned().transpose();
        Arc::new(Secured { inner, credentials: Box::new(find) })
    }

    fn forget(&self, cluster: &Key) {
        self.0.lock().remove(cluster);
    }

    fn expect(&self, cluster: Key, secret: &str) {
        let not_yet = || Err(format!("the Secret {secret} was not read yet"));
        self.0.lock().entry(cluster).or_insert_with(not_yet);
    }

    fn keep(&self, cluster: Key, credentials: std::result::Result<Credentials, String>) {
        let mut all = self.0.lock();
        // Those that served go on serving when somebody breaks the Secret.
        match (&credentials, all.get(&cluster)) {
            (Err(_), Some(Ok(_))) => {}
            _ => drop(all.insert(cluster, credentials)),
        }
    }
}

/// What is seen of a cluster's certificates; nothing, if it has none.
pub(crate) async fn see(
    operator: &EtcdClusters,
    cluster: &EtcdCluster,
    world: &World<'_>,
) -> Result<Option<TlsSeen>> {
    let (wanted, key) = (Wanted::by(cluster), world.resource().key());
    if wanted.clients() == Scheme::Http {
        // One of that name, which is gone, may have spoken TLS.
        operator.keyring.forget(&key);
    }
    if wanted.is_plain() {
        return Ok(None);
    }
    let is_ours = wanted.automatic.is_some();
    let mut seen = TlsSeen { authority: Known::Absent, secrets: Default::default() };
    if is_ours {
        let name = authority_name(&cluster.name_any());
        seen.authority = match version(world, &name).await? {
            Some(version) => world.probe(ReadAuthority { secrets: secrets(world), name, version }),
            None => Known::Absent,
        };
    }
    for (side, name) in wanted.secrets {
        let version = if is_ours { version(world, &name).await? } else { None };
        let keyring = (side == Side::Client).then(|| {
            operator.keyring.expect(key.clone(), &name);
            let server = server_name(&cluster.name_any(), key.namespace().unwrap_or_default());
            (operator.keyring.clone(), key.clone(), server)
        });
        let known = match is_ours && version.is_none() {
            true => Known::Absent,
            false => world.probe(ReadCertificate {
                secrets: secrets(world),
                namespace: key.namespace().unwrap_or_default().to_owned(),
                name,
                files: side.files(),
                version,
                keyring,
            }),
        };
        seen.secrets.insert(side, known);
    }
    Ok(Some(seen))
}

fn secrets(world: &World<'_>) -> Live<Secret> {
    world.live(world.resource().namespace.as_deref())
}

/// Which version of a Secret of the operator's own there is.
async fn version(world: &World<'_>, name: &str) -> Result<Option<String>> {
    let known = world.get::<PartialObjectMeta<Secret>>(name).await?;
    Ok(known.map(|known| {
        let version = known.resource_version().unwrap_or_default();
        format!("{} {version}", known.uid().unwrap_or_default())
    }))
}

struct ReadAuthority {
    secrets: Live<Secret>,
    name: String,
    version: String,
}

impl Probe for ReadAuthority {
    type Answer = AuthoritySeen;

    fn target(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    fn fresh_for(&self) -> Duration {
        READ_ONCE
    }

    async fn ask(&self) -> std::result::Result<Option<AuthoritySeen>, String> {
        let secret = self.secrets.get(&self.name).await.map_err(|error| error.to_string())?;
        Ok(secret.as_ref().map(AuthoritySeen::of))
    }
}

struct ReadCertificate {
    secrets: Live<Secret>,
    namespace: String,
    name: String,
    files: Files,
    /// Which version is meant; none where nobody tells when it changes.
    version: Option<String>,
    /// Where the operator's own are kept, for which cluster, and whom they ask for.
    keyring: Option<(Arc<Keyring>, Key, String)>,
}

impl Probe for ReadCertificate {
    type Answer = LeafSeen;

    fn target(&self) -> String {
        let version = self.version.as_deref().unwrap_or_default();
        let cluster = self.keyring.as_ref().map(|(_, cluster, _)| cluster.to_string()).unwrap_or_default();
        format!("{}/{} {} {version} {cluster}", self.namespace, self.name, self.files.certificate)
    }

    fn fresh_for(&self) -> Duration {
        if self.version.is_some() { READ_ONCE } else { THEIRS_ARE_READ_EVERY }
    }

    async fn ask(&self) -> std::result::Result<Option<LeafSeen>, String> {
        let read = self.secrets.get(&self.name).await.map_err(|error| error.to_string())?;
        let Some(secret) = read else { return Ok(None) };
        let seen = LeafSeen::of(&secret, &self.files);
        if let Some((keyring, cluster, server)) = &self.keyring {
            let credentials = match &seen.problem {
                None => credentials(&secret, &self.files, server),
                Some(problem) => Err(problem.clone()),
            };
            let told = credentials.map_err(|why| format!("the Secret {}: {why}", self.name));
            keyring.keep(cluster.clone(), told);
        }
        Ok(Some(seen))
    }
}

fn credentials(secret: &Secret, files: &Files, server: &str) -> std::result::Result<Credentials, String> {
    let file = |name: &String| {
        let data = secret.data.as_ref().and_then(|data| data.get(name));
        data.map(|ByteString(content)| content.as_slice()).unwrap_or_default()
    };
    Credentials::new(file(&files.certificate), file(&files.key), file(&files.authorities), server)
}
