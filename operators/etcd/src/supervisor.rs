//! The supervisor: the program of every etcd pod. It starts etcd by what is in the folder and by the
//! record's word, starts it again when it ended, and says in the record what it found.
//!
//! Invariants:
//! - That a member began is written into its record before etcd starts from an empty folder.
//! - A pod is ready only after the record says which member of which cluster it is.
//! - What the record says that etcd trusts is what etcd has read.
//! - A member with its data needs nobody: it starts, and is ready, while the API server is away.

mod certificates;
mod defragmenting;
pub mod folder;
mod log;
mod process;
mod restoring;
mod serving;
pub mod word;

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::signal::unix::SignalKind;
use wheelhouse::{Key, agent::Followed};

use self::{
    certificates::Certificates,
    folder::{Folder, Identity, Mark, Volume},
    process::{Ended, Etcd},
    restoring::For,
    serving::Health,
    word::{Beginning, ClusterSeen, Word, word},
};
use crate::{
    api::{Data, EtcdCluster, EtcdMember, Intent, SEED},
    children,
    etcd::{self, Id},
    incarnation::{self, Source},
    layout,
    tls::Scheme,
    version::{READS_OLD_ENTRIES, Version},
};

/// How often a member that waits looks at what it waits for, beside hearing of changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often etcd is asked who it is, until it has said so.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How long etcd itself may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1500);
/// etcd that ran for so long is started at once when it ends.
const RAN_WELL: Duration = Duration::from_secs(20);
/// The longest pause before etcd is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a log is looked at in which nothing was found.
const LOOK_AT_LOG_EVERY: Duration = Duration::from_secs(60);
/// Data that could not be read so many times in a row is corrupt.
const TRIES: u32 = 3;

/// What runs in the pods of an EtcdCluster; people have no need to call it
#[derive(Parser)]
#[command(name = "supervisor", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Copy this program to a place where the other container finds it
    Install {
        /// Where to
        path: PathBuf,
    },
    /// Run etcd, as its record says
    Run {
        /// Flags for etcd that people set
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
}

/// Runs what `arguments` say.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = Arguments::parse_from(arguments);
    tracing_subscriber::fmt().with_target(false).with_writer(std::io::stderr).init();
    let outcome = match arguments.verb {
        Verb::Install { path } => install(&path),
        Verb::Run { flags } => match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(async { Supervisor::from_environment(flags)?.run().await }),
            Err(error) => Err(error.to_string()),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            // So that it can be read in the pod's status.
            let _ = fs::write("/dev/termination-log", why);
            ExitCode::FAILURE
        }
    }
}

fn install(path: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("which program is this? {error}"))?;
    let cannot =
        |error: std::io::Error| format!("cannot copy {} to {}: {error}", program.display(), path.display());
    fs::copy(&program, path).map_err(cannot)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(cannot)
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set: this runs in pods of an EtcdCluster only"))
}

/// Who this member is.
#[derive(Clone, Debug)]
struct Names {
    cluster: String,
    cluster_uid: String,
    namespace: String,
    member: String,
    pod_uid: String,
    /// The version of etcd here, if the pod says so.
    version: Option<Version>,
}

struct Supervisor {
    names: Names,
    /// What people set. It comes before what is the supervisor's, of which it can replace nothing.
    flags: Vec<String>,
    volume: Volume,
    client: Client,
    record: Followed<EtcdMember>,
    health: Arc<Health>,
    certificates: Arc<Certificates>,
}

/// What became of telling the record something.
enum Told {
    /// It says so now.
    Yes,
    /// Somebody changed it meanwhile, or it is not there.
    LookAgain,
}

impl Supervisor {
    fn from_environment(flags: Vec<String>) -> Result<Self, String> {
        let names = Names {
            cluster: variable("CLUSTER")?,
            cluster_uid: variable("CLUSTER_UID")?,
            namespace: variable("POD_NAMESPACE")?,
            member: variable("POD_NAME")?,
            pod_uid: variable("POD_UID")?,
            version: std::env::var(layout::VERSION_VARIABLE).ok().and_then(|version| version.parse().ok()),
        };
        let config = Config::incluster().map_err(|error| format!("where is the API server? {error}"))?;
        let client =
            Client::try_from(config).map_err(|error| format!("cannot set up the connection: {error}"))?;
        let record = Followed::new(client.clone(), Key::namespaced(&names.namespace, &names.member));
        let certificates =
            Arc::new(Certificates::from_environment(&names.cluster, &names.namespace, &names.member));
        let volume = Volume::at(layout::VOLUME);
        Ok(Self { names, flags, volume, client, record, health: Arc::default(), certificates })
    }

    async fn run(mut self) -> Result<(), String> {
        let mut told_to_end = tokio::signal::unix::signal(SignalKind::terminate())
            .map_err(|error| format!("cannot hear signals: {error}"))?;
        tokio::spawn(serving::serve(self.health.clone(), self.certificates.clone()));
        let mut failures = Failures::default();
        loop {
            let arguments = async {
                let mut arguments = self.may_start(&failures).await?;
                arguments.extend(self.load_certificates().await);
                Ok::<_, String>(arguments)
            };
            let arguments = tokio::select! {
                arguments = arguments => arguments?,
                _ = told_to_end.recv() => return Ok(()),
            };
            let mut etcd = Etcd::start("etcd", &arguments)
                .map_err(|error| format!("cannot start etcd, which the image must have: {error}"))?;
            let started = Instant::now();
            let ended = tokio::select! {
                ended = etcd.ended() => Some(ended),
                _ = told_to_end.recv() => None,
                never = self.keep_record() => match never {},
            };
            self.health.forget();
            self.certificates.forget();
            let Some(ended) = ended else {
                etcd.end().await;
                return Ok(());
            };
            failures.add(&ended, started.elapsed());
            tracing::warn!(how = ended.how, "etcd ended");
            tokio::select! {
                () = tokio::time::sleep(failures.pause()) => {}
                _ = told_to_end.recv() => return Ok(()),
            }
        }
    }

    /// What etcd is told about TLS, once its certificates are there.
    async fn load_certificates(&self) -> Vec<String> {
        loop {
            match self.certificates.load() {
                Ok(arguments) => return arguments,
                Err(why) => tracing::warn!("not starting etcd: {why}"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What is known of certificates belongs to everything that the record is told.
    fn with_certificates(&self, mut status: Value) -> Value {
        if let (Some(fields), Some((trusts, mounted))) = (status.as_object_mut(), self.certificates.report())
        {
            fields.insert("trusts".to_owned(), trusts.into());
            fields.insert("mounted".to_owned(), mounted.into());
        }
        status
    }

    /// Waits until etcd may be started; with which arguments.
    async fn may_start(&mut self, failures: &Failures) -> Result<Vec<String>, String> {
        let mut last_words = String::new();
        loop {
            let folder = self
                .volume
                .look(&self.names.cluster_uid, &self.names.member)
                .map_err(|error| format!("cannot read {}: {error}", layout::VOLUME))?;
            let record = self.record.get();
            let may_be_seed = |record: &&Arc<EtcdMember>| {
                let began = record.status.as_ref().is_some_and(|status| status.began);
                record.spec.intent == Intent::Waiting && !began
            };
            let cluster = match (&folder, record.as_ref().filter(may_be_seed)) {
                (Folder::Empty, Some(_)) => self.cluster().await,
                _ => None,
            };
            let word = match failures.verdict() {
                Some(why) => Word::Refuse(Data::Corrupt, why),
                None => word(&folder, record.as_deref(), cluster.as_ref()),
            };
            let mut old_entries = None;
            let (data, why) = match word {
                Word::GoOn => match self.refusal(&folder).await {
                    None => return Ok(self.arguments("existing", None)),
                    Some(why) => {
                        old_entries = Some(true);
                        (Data::Present, why)
                    }
                },
                Word::Begin(beginning) => match self.begin(record.as_deref(), &beginning).await {
                    Ok(Some(arguments)) => return Ok(arguments),
                    Ok(None) => continue,
                    Err(why) => (Data::Empty, why),
                },
                Word::Prepare(source) => match self.prepare(record.as_deref(), &source).await {
                    Ok(()) => (Data::Prepared, "what this member begins with lies ready".to_owned()),
                    Err(why) => (Data::Empty, why),
                },
                Word::Wait(why) => (Data::Empty, why),
                Word::Refuse(data, why) => (data, why),
            };
            if why != last_words {
                tracing::info!("not starting etcd: {why}");
                last_words.clone_from(&why);
            }
            if let Some(record) = &record {
                let mut status = json!({"data": data, "message": why, "pod": self.names.pod_uid});
                if let (Some(old_entries), Some(fields)) = (old_entries, status.as_object_mut()) {
                    fields.insert("oldEntries".to_owned(), old_entries.into());
                }
                self.tell(record, self.with_certificates(status), false).await;
            }
            self.record.changed_within(LOOK_EVERY).await;
        }
    }

    /// Why etcd of this version is not started with the data of this member, although it is whole: it would end on what
    /// it finds in the log, again and again. Whoever sent it here looked before, but a log gets longer.
    async fn refusal(&self, folder: &Folder) -> Option<String> {
        let Folder::Ours(mark) = folder else { return None };
        let reads_all = |version: &Version| version.minor <= READS_OLD_ENTRIES;
        let version = self.names.version.filter(|version| !reads_all(version))?;
        // It read it before.
        if mark.version.is_some_and(|served| !reads_all(&served)) {
            return None;
        }
        self.has_old_entries().await.filter(|has_some| *has_some).map(|_| {
            format!("its log has entries of before 3.6, which {version} cannot read: it goes on with the version of before")
        })
    }

    /// Writes that this member begins, and then lets it: with which arguments. Nothing if
    /// somebody changed the record meanwhile.
    async fn begin(
        &mut self,
        record: Option<&EtcdMember>,
        beginning: &Beginning,
    ) -> Result<Option<Vec<String>>, String> {
        let Some(record) = record else { return Ok(None) };
        // Nobody begins who cannot: that is found out before it is written down.
        process::check_program("etcd").await?;
        self.certificates.check()?;
        if let Beginning::Anew(source) = beginning {
            self.prepare(Some(record), source).await?;
        }
        let status =
            json!({"began": true, "data": Data::Empty, "message": "beginning", "pod": self.names.pod_uid});
        if let Told::LookAgain = self.tell(record, status, true).await {
            self.record.changed_within(LOOK_EVERY).await;
            return Ok(None);
        }
        let cannot = |error: std::io::Error| format!("cannot write to {}: {error}", layout::VOLUME);
        self.volume.clear().map_err(cannot)?;
        self.volume.write_mark(&self.mark(None)).map_err(cannot)?;
        if let Beginning::Anew(_) = beginning {
            self.volume.take_prepared().map_err(cannot)?;
        }
        tracing::info!("this member begins: {beginning:?}");
        Ok(Some(match beginning {
            Beginning::NewCluster => self.arguments("new", None),
            Beginning::Anew(_) => self.arguments("existing", None),
            Beginning::Join(others) => self.arguments("existing", Some(others)),
        }))
    }

    /// Makes ready what this member begins with; says so in the record while it does.
    async fn prepare(&self, record: Option<&EtcdMember>, source: &Source) -> Result<(), String> {
        let Some(record) = record else { return Err("the record of this member cannot be read".to_owned()) };
        if !matches!(self.volume.is_prepared(), Ok(true)) {
            let words = format!("making {source} ready");
            tracing::info!("{words}");
            let status = json!({"data": Data::Empty, "message": words, "pod": self.names.pod_uid});
            self.tell(record, status, false).await;
        }
        let Names { cluster, cluster_uid, namespace, member, .. } = &self.names;
        let whom = For {
            volume: &self.volume,
            cluster_uid,
            member,
            peer_url: children::peer_url(self.certificates.peers(), cluster, namespace, member),
            incarnation: record.spec.incarnation,
        };
        let outcome = restoring::prepare(&whom, source).await;
        if outcome.is_err() {
            // There may be much to copy: not again at once.
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
        outcome
    }

    fn mark(&self, identity: Option<Identity>) -> Mark {
        let Names { cluster_uid, member, .. } = self.names.clone();
        Mark { cluster_uid, member, identity, version: None }
    }

    /// Where there is a log, etcd looks at none of `initial`. Should it vanish before etcd looks, a
    /// member that is to exist already and knows nobody but itself does not start.
    fn arguments(&self, initial_state: &str, initial_cluster: Option<&str>) -> Vec<String> {
        let Names { cluster, namespace, member, cluster_uid, .. } = &self.names;
        let peer_url = children::peer_url(self.certificates.peers(), cluster, namespace, member);
        let itself = format!("{member}={peer_url}");
        let everywhere = |scheme: Scheme, port: u16| format!("{scheme}://0.0.0.0:{port}");
        let clients = self.certificates.clients();
        let flags = [
            ("name", member.clone()),
            ("data-dir", self.volume.data().display().to_string()),
            ("listen-client-urls", everywhere(clients, layout::CLIENT_PORT)),
            ("advertise-client-urls", children::client_url(clients, cluster, namespace, member)),
            ("listen-peer-urls", everywhere(self.certificates.peers(), layout::PEER_PORT)),
            ("listen-metrics-urls", everywhere(Scheme::Http, layout::METRICS_PORT)),
            ("initial-advertise-peer-urls", peer_url),
            ("initial-cluster-token", cluster_uid.clone()),
            ("initial-cluster-state", initial_state.to_owned()),
            ("initial-cluster", initial_cluster.unwrap_or(&itself).to_owned()),
        ];
        let ours = flags.into_iter().map(|(flag, value)| format!("--{flag}={value}"));
        self.flags.iter().cloned().chain(ours).collect()
    }

    /// Whether the cluster has begun, and with whom it is to; none while that cannot be read.
    async fn cluster(&self) -> Option<ClusterSeen> {
        let clusters: Api<EtcdCluster> = Api::namespaced(self.client.clone(), &self.names.namespace);
        match clusters.get(&self.names.cluster).await {
            // Another cluster of that name is none of ours.
            Ok(cluster) if cluster.metadata.uid.as_ref() == Some(&self.names.cluster_uid) => {
                let incarnation = incarnation::of(&cluster)
                    .inspect_err(|error| tracing::warn!("of the EtcdCluster {error}"))
                    .ok()?
                    .number;
                let seed = cluster.annotations().get(SEED).cloned();
                let status = cluster.status.filter(|status| status.incarnation == incarnation);
                let has_id = status.is_some_and(|status| status.cluster_id.is_some());
                Some(ClusterSeen { incarnation, seed, has_id })
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!("cannot read the EtcdCluster: {error}");
                None
            }
        }
    }

    /// While etcd runs: finds out who it is, and keeps the record saying so.
    async fn keep_record(&mut self) -> std::convert::Infallible {
        let (identity, version) = loop {
            match self.ask().await {
                Some(answer) => break answer,
                None => tokio::time::sleep(ASK_EVERY).await,
            }
        };
        // It was written down before: nobody has to be told again.
        let mark = self.volume.mark().ok().flatten();
        if mark.as_ref().is_some_and(|mark| mark.identity == Some(identity)) {
            self.health.may_serve();
        }
        let mark_of_now = Mark { version, ..self.mark(Some(identity)) };
        let mut is_marked = mark.as_ref() == Some(&mark_of_now);
        let mut log =
            version.filter(|version| version.minor == READS_OLD_ENTRIES).map(|_| LookAtLog::default());
        let mut status = json!({
            "began": true,
            "data": Data::Present,
            "memberID": identity.member,
            "clusterID": identity.cluster,
            "message": "",
            "pod": self.names.pod_uid,
            // Not what another version said before.
            "oldEntries": null,
        });
        loop {
            if let (Some(old_entries), Some(fields)) =
                (self.look_at_log(log.as_mut()).await, status.as_object_mut())
            {
                fields.insert("oldEntries".to_owned(), old_entries.into());
            }
            if let Some(record) = self.record.get()
                && let Told::Yes = self.tell(&record, self.with_certificates(status.clone()), false).await
                && !is_marked
            {
                match self.volume.write_mark(&mark_of_now) {
                    Ok(()) => {
                        is_marked = true;
                        self.health.may_serve();
                    }
                    Err(error) => tracing::warn!("cannot write to {}: {error}", layout::VOLUME),
                }
            }
            self.defragment_if_asked().await;
            self.record.changed_within(LOOK_EVERY * 5).await;
        }
    }

    /// Does it once for each time that it was asked for, and says what came of it.
    async fn defragment_if_asked(&self) {
        let Some(record) = self.record.get() else { return };
        let Some(wish) = defragmenting::asked(&record) else { return };
        tracing::info!("the data of etcd is written anew");
        let result = defragmenting::defragment(wish, &self.health, self.certificates.dialer()).await;
        // Until that is written it would be done again.
        while let Some(record) = self.record.get() {
            match self.tell(&record, json!({"defragmented": result}), false).await {
                Told::Yes => return,
                Told::LookAgain => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Whether the log has entries that no newer version can read, if it is time to look.
    async fn look_at_log(&self, look: Option<&mut LookAtLog>) -> Option<bool> {
        let look = look.filter(|look| look.is_due())?;
        let old_entries = self.has_old_entries().await?;
        look.last = Some((Instant::now(), old_entries));
        Some(old_entries)
    }

    /// Whether the log has such entries, if it can be read.
    async fn has_old_entries(&self) -> Option<bool> {
        let data = self.volume.data();
        let looked = tokio::task::spawn_blocking(move || log::has_old_entries(&log::files(&data)?)).await;
        let looked = looked.map_err(std::io::Error::other).flatten();
        looked.inspect_err(|error| tracing::warn!("cannot read the log: {error}")).ok()
    }

    async fn ask(&self) -> Option<(Identity, Option<Version>)> {
        let address = format!("127.0.0.1:{}", layout::CLIENT_PORT);
        let client =
            etcd::Client::connect(self.certificates.dialer(), &address, ANSWERS_WITHIN).await.ok()?;
        let status = client.status().await.ok()?;
        let header = status.header?;
        let identity = Identity { cluster: Id(header.cluster_id), member: Id(header.member_id) };
        Some((identity, status.version.parse().ok()))
    }

    /// Writes into the status of the record, unless it says so already; under its version, where it
    /// matters that nobody wrote meanwhile.
    async fn tell(&self, record: &EtcdMember, status: Value, under_version: bool) -> Told {
        let known = serde_json::to_value(&record.status).unwrap_or_default();
        let says = |field: &str, value: &Value| match known.get(field) {
            Some(said) => said == value,
            None => value.is_null() || *value == json!(""),
        };
        let says_all =
            status.as_object().is_some_and(|all| all.iter().all(|(field, value)| says(field, value)));
        if says_all && !under_version {
            return Told::Yes;
        }
        let mut metadata = json!({"uid": record.metadata.uid});
        if let Some(fields) = metadata.as_object_mut().filter(|_| under_version) {
            fields.insert("resourceVersion".to_owned(), json!(record.metadata.resource_version));
        }
        let records: Api<EtcdMember> = Api::namespaced(self.client.clone(), &self.names.namespace);
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        match records.patch_status(&self.names.member, &PatchParams::default(), &patch).await {
            Ok(_) => Told::Yes,
            Err(error) => {
                tracing::warn!("cannot write to the record: {error}");
                Told::LookAgain
            }
        }
    }
}

/// When the log was looked at, and whether it had entries that no newer version can read.
#[derive(Default)]
struct LookAtLog {
    last: Option<(Instant, bool)>,
}

impl LookAtLog {
    /// A log without such entries may get some while another member runs an older version; but it may be long, too.
    fn is_due(&self) -> bool {
        self.last.is_none_or(|(looked, has_some)| has_some || looked.elapsed() >= LOOK_AT_LOG_EVERY)
    }
}

/// How etcd ended lately.
#[derive(Default)]
struct Failures {
    in_a_row: u32,
    corrupt_in_a_row: u32,
    last_corruption: String,
}

impl Failures {
    fn add(&mut self, ended: &Ended, after: Duration) {
        self.in_a_row = if after >= RAN_WELL { 0 } else { self.in_a_row + 1 };
        match ended.corruption() {
            Some(words) => {
                self.corrupt_in_a_row += 1;
                words.clone_into(&mut self.last_corruption);
            }
            None => self.corrupt_in_a_row = 0,
        }
    }

    /// The first time at once: whoever was killed has nothing to wait for.
    fn pause(&self) -> Duration {
        match self.in_a_row {
            0 | 1 => Duration::ZERO,
            more => LONGEST_PAUSE.min(Duration::from_millis(100) * 2u32.saturating_pow(more - 2)),
        }
    }

    fn verdict(&self) -> Option<String> {
        (self.corrupt_in_a_row >= TRIES)
            .then(|| format!("etcd cannot read its data: {}", self.last_corruption))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(line: &str) -> Ended {
        Ended { how: "exit status: 1".to_owned(), last_lines: vec![line.to_owned()] }
    }

    #[test]
    fn etcd_is_started_again_at_once_and_then_ever_more_slowly() {
        let mut failures = Failures::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            failures.add(&ended("killed"), Duration::from_secs(1));
            pauses.push(failures.pause().as_millis());
        }
        assert_eq!(pauses[..4], [0, 100, 200, 400]);
        assert_eq!(pauses[11], 10_000);
        failures.add(&ended("killed"), RAN_WELL);
        assert_eq!(failures.pause(), Duration::ZERO);
    }

    #[test]
    fn data_is_given_up_only_when_it_could_not_be_read_again_and_again() {
        let mut failures = Failures::default();
        failures.add(&ended("wal: crc mismatch"), Duration::ZERO);
        failures.add(&ended("wal: crc mismatch"), Duration::ZERO);
        failures.add(&ended("no space left on device"), Duration::ZERO);
        failures.add(&ended("wal: crc mismatch"), Duration::ZERO);
        assert_eq!(failures.verdict(), None);
        failures.add(&ended("wal: crc mismatch"), Duration::ZERO);
        failures.add(&ended("wal: crc mismatch"), Duration::ZERO);
        assert!(failures.verdict().unwrap().contains("crc mismatch"));
    }
}
