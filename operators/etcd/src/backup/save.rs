//! Takes a backup: etcd's data to a draft, the draft to its place, and what is there back again.
//!
//! The draft is whole before anything is stored. While etcd sends, it holds on to old data, so it is not made to
//! wait for a slow place.

use std::{fs, path::Path, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use kube::{
    Api, Client as Kubernetes, Config,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{fs::File, io::AsyncWriteExt as _, sync::watch};
use wheelhouse::jiff::Timestamp;

use super::{
    Error, Mounts, Outcome, Result,
    fetch::{stored, verify},
    note::{Note, State},
    progress::Telling,
    store::{Store, cannot_write},
};
use crate::{
    api::backup::{Content, EtcdBackup, Place, Progress, Stage},
    etcd::{
        Client, Dial, Id, StatusResponse, Stream, Tcp,
        tls::{Credentials, Secured},
    },
    tls::Side,
};

/// How long etcd may take to answer, or to send the next piece.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// What and for whom
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The URLs of the members of etcd
    #[arg(long, env = "ENDPOINTS", value_delimiter = ',', required = true)]
    endpoints: Vec<String>,
    /// The UID of the EtcdBackup
    #[arg(long, env = "BACKUP_UID")]
    backup_uid: String,
    /// The UID of this pod
    #[arg(long, env = "POD_UID")]
    pod_uid: String,
    /// The time for which it is taken
    #[arg(long, env = "SCHEDULED")]
    scheduled: Timestamp,
    /// The EtcdBackup in whose status is told how far it is
    #[arg(long, env = "BACKUP")]
    backup: Option<String>,
    /// Its namespace
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// The name of this pod
    #[arg(long, env = "POD_NAME", default_value = "")]
    pod_name: String,
}

/// What is backed up.
#[derive(Clone)]
pub struct Source {
    /// How members are reached.
    pub dialer: Arc<dyn Dial>,
    /// Where: host and port.
    pub addresses: Vec<String>,
}

impl Source {
    /// From URLs, and the folder with the files by which etcd knows its clients, for those that are `https`.
    ///
    /// # Errors
    /// When they cannot be dialled.
    pub fn of(endpoints: &[String], client_tls: &Path) -> std::result::Result<Self, Error> {
        let parts = |url: &String| match url.trim_end_matches('/').split_once("://") {
            Some((scheme @ ("http" | "https"), address)) => Ok((scheme == "https", address.to_owned())),
            _ => Err(Error::refused(format!(
                "{url} is no URL of etcd's that can be dialled: http://HOST:PORT or https://HOST:PORT"
            ))),
        };
        let parts = endpoints.iter().map(parts).collect::<Result<Vec<_>>>()?;
        let (are_secure, addresses): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let dialer: Arc<dyn Dial> = match (are_secure.contains(&true), are_secure.contains(&false)) {
            (false, _) => Arc::new(Tcp),
            (true, false) => Arc::new(AsClient::from_folder(client_tls)?),
            (true, true) => {
                return Err(Error::refused("either all URLs of etcd are https, or none"));
            }
        };
        Ok(Self { dialer, addresses })
    }
}

/// Over TLS, as a client of etcd; whoever is dialled has to be who the URL says.
struct AsClient {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
}

impl AsClient {
    fn from_folder(folder: &Path) -> Result<Self> {
        let files = Side::Client.files();
        let read = |file: &str| {
            let path = folder.join(file);
            fs::read(&path).map_err(|error| {
                let advice = "clientTLSSecret has to name a Secret that has it";
                Error::failed(format!("cannot read {}: {error}: {advice}", path.display()))
            })
        };
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
            authorities: read(&files.authorities)?,
        })
    }
}

impl Dial for AsClient {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let credentials = Credentials::new(&self.certificate, &self.key, &self.authorities, host);
        let find = move || credentials.clone().map(Some);
        Secured { inner: Arc::new(Tcp), credentials: Box::new(find) }.dial(address)
    }

    fn is_secure(&self) -> bool {
        true
    }
}

/// Who takes a backup, and for whom.
#[derive(Clone, Debug)]
pub struct Saving {
    /// The UID of the EtcdBackup.
    pub backup: String,
    /// The UID of the pod.
    pub pod: String,
    /// The time for which it is taken.
    pub scheduled: Timestamp,
}

pub(super) async fn run(place: &Place, mounts: &Mounts, arguments: Arguments) -> Result<Outcome> {
    let source = Source::of(&arguments.endpoints, Path::new(super::pods::CLIENT_TLS))?;
    let saving = Saving {
        backup: arguments.backup_uid.clone(),
        pod: arguments.pod_uid.clone(),
        scheduled: arguments.scheduled,
    };
    let backups = backups(&arguments.namespace);
    check_wanted(backups.as_ref(), &arguments).await?;
    let progress = Progress { pod: arguments.pod_name.clone(), stage: Stage::Starting, bytes: 0, total: 0 };
    let (telling, heard) = watch::channel(progress);
    let telling = Telling::to(telling);
    let work = save_telling(place, mounts, &source, &saving, &telling);
    tokio::select! {
        outcome = work => outcome,
        never = pass_on(backups, &arguments, heard) => match never {},
    }
}

/// Where the EtcdBackup is, if this is a pod.
fn backups(namespace: &str) -> Option<Api<EtcdBackup>> {
    let client = Kubernetes::try_from(Config::incluster().ok()?).ok()?;
    Some(Api::namespaced(client, namespace))
}

/// Whoever made this pod may have acted on old news. If nobody can be asked, the backup is taken.
async fn check_wanted(backups: Option<&Api<EtcdBackup>>, arguments: &Arguments) -> Result<()> {
    let (Some(backups), Some(name)) = (backups, &arguments.backup) else { return Ok(()) };
    match backups.get(name).await {
        Ok(backup) => {
            let scheduled = backup.status.and_then(|status| status.last_scheduled);
            let is_wanted = backup.metadata.uid.as_ref() == Some(&arguments.backup_uid)
                && scheduled == Some(arguments.scheduled);
            match is_wanted {
                true => Ok(()),
                false => Err(Error::failed("this backup was given up: nothing is written")),
            }
        }
        Err(error) => {
            tracing::warn!("cannot see whether this backup is still wanted: {error}");
            Ok(())
        }
    }
}

/// Passes on to the EtcdBackup how far it is. If that fails, the backup does not.
async fn pass_on(
    backups: Option<Api<EtcdBackup>>,
    arguments: &Arguments,
    mut heard: watch::Receiver<Progress>,
) -> std::convert::Infallible {
    if let (Some(backups), Some(name)) = (backups, &arguments.backup) {
        while heard.changed().await.is_ok() {
            let progress = heard.borrow_and_update().clone();
            let patch = Patch::Merge(json!({"status": {"progress": progress}}));
            if let Err(error) = backups.patch_status(name, &PatchParams::default(), &patch).await {
                tracing::warn!("cannot tell how far it is: {error}");
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }
    std::future::pending().await
}

/// Takes a backup, unless it is there already.
///
/// # Errors
/// When it is not there afterwards, or is somebody else's.
pub async fn save(place: &Place, mounts: &Mounts, source: &Source, saving: &Saving) -> Result<Outcome> {
    save_telling(place, mounts, source, saving, &Telling::default()).await
}

async fn save_telling(
    place: &Place,
    mounts: &Mounts,
    source: &Source,
    saving: &Saving,
    telling: &Telling,
) -> Result<Outcome> {
    let store = Store::open(place, mounts)?;
    let found = store.note().await?;
    if let Some(there) = already_there(&store, place, mounts, saving, found.as_ref(), telling).await? {
        return Ok(there);
    }
    let draft = store.draft(mounts, &saving.pod);
    let claim = Note {
        backup: saving.backup.clone(),
        state: State::Writing,
        scheduled: saving.scheduled,
        pod: saving.pod.clone(),
        upload: store.begin(&draft).await?,
        at: None,
        content: None,
    };
    let upload = claim.upload.as_deref();
    if let Err(error) = write_note_after(found.as_ref(), &store, &claim).await {
        // If that is not possible either, this says why nothing was written.
        let _ = store.leave(&draft, upload).await;
        return Err(error);
    }
    let content = receive(source, &draft, telling).await?;
    let sent = store.send(&draft, upload, telling).await?;
    check_note(Some(&claim), &store).await?;
    store.finish(&draft, upload, sent).await?;
    let whole = Note {
        state: State::Whole,
        upload: None,
        at: Some(Timestamp::now()),
        content: Some(content),
        ..claim.clone()
    };
    let outcome = stored(&store, place, Some(&whole), mounts, telling).await?;
    write_note_after(Some(&claim), &store, &whole).await?;
    Ok(outcome)
}

/// Writes a note over the one that was seen, and over no other.
async fn write_note_after(seen: Option<&Note>, store: &Store, note: &Note) -> Result<()> {
    check_note(seen, store).await?;
    store.write_note(note).await
}

/// A pod that was given up may run on, on a node that nobody reaches: the later one counts.
async fn check_note(seen: Option<&Note>, store: &Store) -> Result<()> {
    match store.note().await?.as_ref() == seen {
        true => Ok(()),
        false => Err(Error::failed("another pod has taken over")),
    }
}

/// What is at the place already: a backup that a pod before this one has finished, or what it has left.
async fn already_there(
    store: &Store,
    place: &Place,
    mounts: &Mounts,
    saving: &Saving,
    note: Option<&Note>,
    telling: &Telling,
) -> Result<Option<Outcome>> {
    let advice = "it is left alone: choose another path";
    let Some(note) = note else {
        return match store.size().await? {
            None => store.take_back(None).await.map(|()| None),
            Some(_) => Err(Error::refused(format!(
                "{} is there, and no EtcdBackup wrote it: {advice}",
                place.path()
            ))),
        };
    };
    if note.backup != saving.backup {
        return Err(Error::refused(format!("{} is of another EtcdBackup: {advice}", place.path())));
    }
    if note.state == State::Whole {
        match stored(store, place, Some(note), mounts, telling).await {
            // Something happened to it since: it is taken anew.
            Err(Error::Refused(why)) => tracing::warn!("the backup that is there is not good: {why}"),
            outcome => return outcome.map(Some),
        }
    }
    store.take_back(note.upload.as_deref()).await?;
    Ok(None)
}

/// Has a member send its data, and verifies that it is whole and not older than this call.
async fn receive(source: &Source, draft: &std::path::Path, telling: &Telling) -> Result<Content> {
    let (client, status, revision) = member(source).await?;
    let header = status.header.clone().unwrap_or_default();
    tracing::info!("member {} of cluster {} sends its data", Id(header.member_id), Id(header.cluster_id));
    let broke_off = |error| Error::failed(format!("etcd does not send its data: {error}"));
    let cannot = cannot_write(draft);
    let mut snapshot = client.snapshot().await.map_err(broke_off)?;
    // Who has taken over has taken it away, and it does not come back.
    let mut file = File::options().write(true).open(draft).await.map_err(&cannot)?;
    let mut done = 0;
    while let Some(piece) = snapshot.next().await.map_err(broke_off)? {
        file.write_all(&piece.blob).await.map_err(&cannot)?;
        done += piece.blob.len() as u64;
        telling.tell(Stage::Receiving, done, done + piece.remaining_bytes);
    }
    file.flush().await.map_err(&cannot)?;
    file.sync_all().await.map_err(cannot)?;
    telling.tell(Stage::Verifying, 0, done);
    // What etcd breaks off is not told from its end: the checksum tells.
    let content = verify(draft, None)
        .await
        .map_err(|error| Error::failed(format!("etcd sent no whole snapshot: {error}")))?;
    if content.revision < revision {
        return Err(Error::failed(format!(
            "the member sent revision {}, and {revision} was there before: it is behind the others",
            content.revision
        )));
    }
    let etcd_version = status.version.parse().ok().or(content.etcd_version);
    Ok(Content { etcd_version, cluster_id: Some(Id(header.cluster_id)), ..content })
}

/// A member that has all that was acknowledged before this call, and what revision that is; rather one that
/// does not lead, so that the leader has less to do.
async fn member(source: &Source) -> Result<(Client, StatusResponse, i64)> {
    let asking = source.addresses.iter().map(|address| async move {
        let client = Client::connect(source.dialer.clone(), address, PATIENCE).await?;
        let status = client.status().await?;
        Ok::<_, crate::etcd::Error>((client, status))
    });
    let (mut answering, mut complaints) = (Vec::new(), Vec::new());
    for (address, answer) in source.addresses.iter().zip(join_all(asking).await) {
        match answer {
            Ok((_, status)) if status.is_learner => {
                complaints.push(format!("{address}: it is still learning"))
            }
            Ok((_, status)) if !status.errors.iter().all(|error| error.contains("NOSPACE")) => {
                complaints.push(format!("{address}: {}", status.errors.join(", ")));
            }
            Ok(answer) => answering.push((address, answer)),
            Err(error) => complaints.push(format!("{address}: {error}")),
        }
    }
    let leads = |status: &StatusResponse| {
        status.header.as_ref().is_some_and(|header| header.member_id == status.leader)
    };
    answering.sort_by_key(|(_, (_, status))| leads(status));
    for (address, (client, status)) in answering {
        // What a quorum confirms through a member, the member has.
        match client.get("\0").await {
            Ok(answer) => {
                let revision = answer.header.map(|header| header.revision).unwrap_or_default();
                return Ok((client, status, revision));
            }
            Err(error) => complaints.push(format!("{address}: {error}")),
        }
    }
    Err(Error::failed(format!("no member of etcd can be backed up: {}", complaints.join("; "))))
}
