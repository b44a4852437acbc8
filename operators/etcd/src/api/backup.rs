//! `EtcdBackup` and `EtcdRestore`, as the original operator's, and what is more; and [`Place`], where a
//! backup is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wheelhouse::jiff::Timestamp;

use super::EtcdClusterSpec;
use crate::{etcd::Id, version::Version};

/// What a cluster is to begin from, as a [`RestoreFrom`] in JSON. Written by whoever looks after an
/// EtcdRestore, once everything was checked.
pub const RESTORE: &str = "etcd.database.coreos.com/restore";

/// The UID of the EtcdRestore that was called off last. A request of it that was decided on before meets another version of
/// the cluster then.
pub const CALLED_OFF: &str = "etcd.database.coreos.com/called-off";

/// How many backups a status remembers.
pub const REMEMBERED: usize = 200;

/// Where backups go does not change: the history names files there.
const SAME_BUCKET: &str = "has(self.s3) == has(oldSelf.s3) && (!has(self.s3) || (self.s3.path == oldSelf.s3.path && has(self.s3.endpoint) == has(oldSelf.s3.endpoint) && (!has(self.s3.endpoint) || self.s3.endpoint == oldSelf.s3.endpoint)))";
const SAME_VOLUME: &str = "!has(self.volume) || !has(oldSelf.volume) || self.volume == oldSelf.volume";

/// What of a schedule can be told without cron.
fn as_cron_has_it() -> Value {
    json!([{
        "rule": "self.startsWith('@') || self.matches('^ *([^ ]+ +){4}[^ ]+ *$')",
        "message": "write it as cron does, with five fields: '0 3 * * *' is every night at three, UTC",
    }])
}

/// Where one backup is, or is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// In a bucket.
    S3(S3Place),
    /// On a volume.
    Volume(VolumePlace),
}

impl Place {
    /// From the two fields of which a resource has one.
    pub fn of(s3: Option<&S3Place>, volume: Option<&VolumePlace>) -> Option<Self> {
        match (s3, volume) {
            (Some(s3), None) => Some(Self::S3(s3.clone())),
            (None, Some(volume)) => Some(Self::Volume(volume.clone())),
            _ => None,
        }
    }

    /// Its path there.
    pub fn path(&self) -> &str {
        match self {
            Self::S3(s3) => &s3.path,
            Self::Volume(volume) => &volume.path,
        }
    }

    /// The same place, but for the path.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        let mut place = self.clone();
        match &mut place {
            Self::S3(s3) => path.clone_into(&mut s3.path),
            Self::Volume(volume) => path.clone_into(&mut volume.path),
        }
        place
    }
}

/// In a bucket of S3, or of whoever speaks as S3 does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Place {
    /// `BUCKET/NAME`; the name can have folders.
    #[schemars(
        length(max = 512),
        regex(pattern = "^[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/[-_.=+:A-Za-z0-9]*[-_=+:A-Za-z0-9])+$")
    )]
    pub path: String,
    /// The Secret with the credentials: in AWS's own format under `credentials` (and `config`), as the
    /// original has it, or under `accessKeyId` and `secretAccessKey`.
    #[schemars(length(min = 1, max = 253))]
    pub aws_secret: String,
    /// Where the service is, if it is not AWS: a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = "^https?://[^/@]+/?$"))]
    pub endpoint: Option<String>,
    /// The region. That of the Secret, or else `us-east-1`, if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub region: Option<String>,
    /// Whether the bucket is named in the path of a URL, and not in its host.
    #[serde(default)]
    pub force_path_style: bool,
    /// A Secret whose `ca.crt` has the authorities that the endpoint's certificate is of; those that
    /// browsers trust, if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret: Option<String>,
}

/// On a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumePlace {
    /// The PersistentVolumeClaim.
    #[schemars(length(min = 1, max = 253))]
    pub claim: String,
    /// The name on it; it can have folders.
    #[schemars(
        length(max = 512),
        regex(pattern = "^[-_.=+:A-Za-z0-9]*[-_=+:A-Za-z0-9](/[-_.=+:A-Za-z0-9]*[-_=+:A-Za-z0-9])*$")
    )]
    pub path: String,
}

/// What kind of place it is, in the words of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageType {
    /// `s3`.
    S3,
    /// `volume`.
    Volume,
}

/// Backups of an etcd cluster: one, or one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdBackup",
    plural = "etcdbackups",
    singular = "etcdbackup",
    shortname = "etcdbk",
    namespaced,
    derive = "PartialEq",
    status = "EtcdBackupStatus",
    validation = ("self.metadata.name.size() <= 50", "the name must have at most 50 characters: other names are made of it"),
    validation = ("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", "the name becomes that of pods: it must have only letters, digits and -"),
    printcolumn(name = "Succeeded", type_ = "boolean", json_path = ".status.succeeded"),
    printcolumn(name = "Doing", type_ = "string", json_path = ".status.progress.stage"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.etcdRevision"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.size"),
    printcolumn(name = "Kept", type_ = "integer", json_path = ".status.kept"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastSuccessDate"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.s3) != has(self.volume)", "message": "say where backups go: either s3 or volume"},
    {"rule": "!has(self.storageType) || (self.storageType == 'S3') == has(self.s3)", "message": "storageType S3 goes with s3, and Volume with volume"},
    {"rule": "has(self.cluster) != (has(self.etcdEndpoints) && self.etcdEndpoints.size() > 0)", "message": "say what to back up: either cluster, an EtcdCluster of this namespace, or etcdEndpoints"},
    {"rule": "!has(self.schedule) || !has(self.backupPolicy) || !has(self.backupPolicy.backupIntervalInSecond)", "message": "either schedule or backupPolicy.backupIntervalInSecond"},
    {"rule": SAME_BUCKET, "message": "there may be backups already: to have them elsewhere, make another EtcdBackup"},
    {"rule": SAME_VOLUME, "message": "there may be backups already: to have them elsewhere, make another EtcdBackup"},
    {"rule": "!has(self.retention) || !has(self.backupPolicy) || !has(self.backupPolicy.maxBackups)", "message": "either retention or backupPolicy.maxBackups"},
]))]
pub struct EtcdBackupSpec {
    /// The EtcdCluster of this namespace that is to be backed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cluster: Option<String>,
    /// Or the URLs of the members of some other etcd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253), regex(pattern = "^https?://[^/@]+/?$")))]
    pub etcd_endpoints: Vec<String>,
    /// A Secret by which etcd knows its clients, as in the original: `etcd-client.crt`, `etcd-client.key`
    /// and `etcd-client-ca.crt`.
    #[serde(rename = "clientTLSSecret", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub client_tls_secret: Option<String>,
    /// What kind of place it is. The original's; it need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_type: Option<StorageType>,
    /// Backups go into a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Place>,
    /// Backups go onto a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumePlace>,
    /// When to take one, as cron says it: minute, hour, day of the month, month, day of the week, in UTC.
    /// Once, at once, if neither this nor an interval is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-validations" = as_cron_has_it()))]
    pub schedule: Option<String>,
    /// Which backups stay; all of them, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// The interval, and more, in the words of the original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_policy: Option<BackupPolicy>,
    /// Whether no backup is to begin for now.
    #[serde(default)]
    pub paused: bool,
}

impl EtcdBackupSpec {
    /// Where backups go.
    pub fn place(&self) -> Option<Place> {
        Place::of(self.s3.as_ref(), self.volume.as_ref())
    }

    /// Whether there is to be one after the other.
    pub fn is_repeated(&self) -> bool {
        self.schedule.is_some() || self.interval_seconds().is_some()
    }

    /// The seconds between two, where an interval is given.
    pub fn interval_seconds(&self) -> Option<i64> {
        self.backup_policy.as_ref()?.backup_interval_in_second.filter(|seconds| *seconds > 0)
    }

    /// Which backups stay; none if all of them do.
    pub fn retention(&self) -> Option<Retention> {
        let from_policy = || {
            let keep = self.backup_policy.as_ref()?.max_backups.filter(|keep| *keep > 0)?;
            Some(Retention { keep_last: Some(keep), keep_for_seconds: None })
        };
        let says = |retention: &Retention| *retention != Retention::default();
        self.retention.clone().or_else(from_policy).filter(says)
    }

    /// How long one may take.
    pub fn timeout_seconds(&self) -> i64 {
        let said = self.backup_policy.as_ref().and_then(|policy| policy.timeout_in_second);
        said.filter(|seconds| *seconds > 0).unwrap_or(3600)
    }
}

/// Which backups stay. One that either rule keeps stays; and the last one always does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// So many of the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 200))]
    pub keep_last: Option<u32>,
    /// Those that are not older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 315_360_000))]
    pub keep_for_seconds: Option<i64>,
}

/// How often, how many and how long, in the words of the original.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// How long one backup may take, in seconds. An hour, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub timeout_in_second: Option<i64>,
    /// The seconds between two backups. 0: one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub backup_interval_in_second: Option<i64>,
    /// How many are kept. 0: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 200))]
    pub max_backups: Option<u32>,
}

/// Backups of a cluster, in its own spec: the operator keeps an EtcdBackup of the cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.s3) != has(self.volume)", "message": "say where backups go: either s3 or volume"},
    {"rule": SAME_BUCKET, "message": "there may be backups already: to have them elsewhere, make an EtcdBackup"},
    {"rule": SAME_VOLUME, "message": "there may be backups already: to have them elsewhere, make an EtcdBackup"},
]))]
pub struct ClusterBackup {
    /// When to take one, as cron says it, in UTC.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-validations" = as_cron_has_it()))]
    pub schedule: String,
    /// Which backups stay; all of them, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Backups go into a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Place>,
    /// Backups go onto a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumePlace>,
}

/// How backups went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(oldSelf.lastScheduled) || (has(self.lastScheduled) && timestamp(self.lastScheduled) >= timestamp(oldSelf.lastScheduled))", "message": "time does not go back"},
]))]
pub struct EtcdBackupStatus {
    /// Whether the last one that is over went well.
    #[serde(default)]
    pub succeeded: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The version of etcd in the last good backup.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etcd_version: String,
    /// The revision of the last good backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_revision: Option<i64>,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it was there and verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_success_date: Option<Timestamp>,
    /// The time for which the last one was taken, or is being taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    #[schemars(length(max = 40))]
    pub last_scheduled: Option<Timestamp>,
    /// When the next one is to be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next: Option<Timestamp>,
    /// How far the present one is. Its pod says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What is wrong with the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Trouble>,
    /// How many backups there are in the history.
    #[serde(default)]
    pub kept: u32,
    /// The backups that are there, the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Kept>,
    /// Files of backups that are to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// Files that were begun and given up. What there is of them is to go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// The generation of the resource that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What else is to be known.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A backup that is there, and was verified as it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Its path: what an EtcdRestore is told.
    pub path: String,
    /// The time for which it was taken.
    #[schemars(with = "String")]
    pub scheduled: Timestamp,
    /// When it was there and verified.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// What is in it.
    #[serde(flatten)]
    pub content: Content,
}

/// What is in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Bytes.
    pub size: u64,
    /// The SHA-256 of the whole file.
    pub sha256: String,
    /// The revision that etcd had.
    pub revision: i64,
    /// The version of etcd that made it; of one that nobody wrote a note about, what its data says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub etcd_version: Option<Version>,
    /// What etcd calls the cluster.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cluster_id: Option<Id>,
}

/// How far a backup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The pod that takes it.
    #[serde(default)]
    pub pod: String,
    /// What it is doing.
    pub stage: Stage,
    /// How many bytes of that are done.
    #[serde(default)]
    pub bytes: u64,
    /// Of how many, as far as that is known.
    #[serde(default)]
    pub total: u64,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// Its pod is to start.
    Starting,
    /// It failed, and is to be tried again.
    Waiting,
    /// etcd sends its data.
    Receiving,
    /// What it sent is verified.
    Verifying,
    /// The file goes to its place.
    Storing,
    /// It is read there once more.
    ReadingBack,
    /// Nothing.
    Done,
}

/// Why a backup is not there, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// How often it failed.
    pub attempts: u32,
    /// When it failed last.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Why.
    pub message: String,
    /// Whether trying again changes nothing.
    #[serde(default)]
    pub refused: bool,
    /// The UID of the pod that said so.
    #[serde(default)]
    pub pod: String,
}

/// A restore of a backup: into a new cluster, or in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdRestore",
    plural = "etcdrestores",
    singular = "etcdrestore",
    shortname = "etcdrs",
    namespaced,
    derive = "PartialEq",
    status = "EtcdRestoreStatus",
    validation = ("self.metadata.name.size() <= 50", "the name must have at most 50 characters: other names are made of it"),
    validation = ("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", "the name becomes that of pods: it must have only letters, digits and -"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.etcdCluster.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Revision", type_ = "integer", json_path = ".status.backup.revision"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a restore stays as it is: make another one"},
    {"rule": "has(self.s3) != has(self.volume)", "message": "say where the backup is: either s3 or volume"},
    {"rule": "!has(self.backupStorageType) || (self.backupStorageType == 'S3') == has(self.s3)", "message": "backupStorageType S3 goes with s3, and Volume with volume"},
    {"rule": "!has(self.template) || !self.inPlace", "message": "template is for a new cluster, and inPlace for one that is there"},
]))]
pub struct EtcdRestoreSpec {
    /// The EtcdCluster that is to have the data.
    pub etcd_cluster: ClusterReference,
    /// What kind of place the backup is in. The original's; it need not be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_storage_type: Option<StorageType>,
    /// The backup is in a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Place>,
    /// The backup is on a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumePlace>,
    /// What the EtcdCluster is to be, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<EtcdClusterSpec>,
    /// Whether the data of an EtcdCluster that is there may be replaced. What was written since the
    /// backup is lost then.
    #[serde(default)]
    pub in_place: bool,
}

impl EtcdRestoreSpec {
    /// Where the backup is.
    pub fn place(&self) -> Option<Place> {
        Place::of(self.s3.as_ref(), self.volume.as_ref())
    }
}

/// An EtcdCluster of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterReference {
    /// Its name.
    #[schemars(length(min = 1, max = 50), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// How a restore goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRestoreStatus {
    /// In one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RestorePhase>,
    /// Whether the cluster runs with the data of the backup.
    #[serde(default)]
    pub succeeded: bool,
    /// Why it does not, or what is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The backup, as it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Content>,
    /// The UID of the EtcdCluster that was asked to begin from it.
    #[serde(rename = "clusterUID", default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// How often the backup could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Trouble>,
    /// The generation of the resource that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What else is to be known.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// How a restore goes, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestorePhase {
    /// The backup is being verified.
    Checking,
    /// The backup is good, and something else is missing.
    Waiting,
    /// The cluster was asked to begin from it.
    Restoring,
    /// The cluster runs with its data.
    Succeeded,
    /// It cannot be restored, and nothing was touched.
    Refused,
}

/// What a cluster is to begin from: the value of the annotation [`RESTORE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// The EtcdRestore.
    pub name: String,
    /// This very one.
    pub uid: String,
    /// Where the backup is.
    pub place: Place,
    /// The SHA-256 of the file that was verified.
    pub sha256: String,
    /// Its revision.
    pub revision: i64,
    /// The etcd that it was taken from, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<Version>,
    /// Whether it takes the place of what a cluster has by then.
    #[serde(default)]
    pub in_place: bool,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn spec(policy: Value) -> EtcdBackupSpec {
        let content =
            json!({"cluster": "db", "volume": {"claim": "c", "path": "db"}, "backupPolicy": policy});
        serde_json::from_value(content).unwrap()
    }

    /// In the original 0 means: not at all.
    #[rstest]
    #[case::nothing_said(json!({}), None, None, 3600)]
    #[case::all_said(
        json!({"backupIntervalInSecond": 125, "maxBackups": 4, "timeoutInSecond": 60}),
        Some(125),
        Some(4),
        60
    )]
    #[case::zeros(json!({"backupIntervalInSecond": 0, "maxBackups": 0, "timeoutInSecond": 0}), None, None, 3600)]
    fn the_policy_of_the_original_is_understood(
        #[case] policy: Value,
        #[case] interval: Option<i64>,
        #[case] keep: Option<u32>,
        #[case] timeout: i64,
    ) {
        let spec = spec(policy);
        assert_eq!((spec.interval_seconds(), spec.is_repeated()), (interval, interval.is_some()));
        assert_eq!(spec.retention().and_then(|retention| retention.keep_last), keep);
        assert_eq!(spec.timeout_seconds(), timeout);
    }
}
