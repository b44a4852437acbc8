//! The CRDs: `etcd.database.coreos.com/v1beta2`, `EtcdCluster` as the original operator's, and
//! `EtcdMember`, the durable record of each member. Backups and restores are in [`backup`].

#![allow(clippy::duplicated_attributes, reason = "every printed column has a type")]

pub mod backup;
mod tls;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::core::v1::{
        Affinity, EnvVar, PersistentVolumeClaimSpec, PodSecurityContext, ResourceRequirements, Toleration,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    CustomResource,
    core::cel::{Message, Rule},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wheelhouse::jiff::Timestamp;

pub use self::tls::{AutomaticTls, MemberSecrets, StaticTls, Tls};
pub use crate::options::{Compaction, CompactionMode, Options};
use crate::{
    etcd::Id,
    incarnation::Source,
    options,
    size::Size,
    version::{self, Version},
};

/// Which of the operators looks after a cluster; as in the original.
pub const SCOPE: &str = "etcd.database.coreos.com/scope";
/// An operator for the whole cluster looks after resources with this scope, and after no others.
pub const CLUSTER_WIDE: &str = "clusterwide";
/// The member with which a cluster begins. Written by the operator, once.
pub const SEED: &str = "etcd.database.coreos.com/seed";
/// Which incarnation of the cluster there is, as JSON, unless it is the first. Written by the operator.
pub const INCARNATION: &str = "etcd.database.coreos.com/incarnation";

/// An etcd cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdCluster",
    plural = "etcdclusters",
    singular = "etcdcluster",
    shortname = "etcdclus",
    shortname = "etcd",
    namespaced,
    derive = "PartialEq",
    status = "EtcdClusterStatus",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.size",
        label_selector_path = ".status.selector"
    ),
    validation = ("self.metadata.name.size() <= 50", "the name must have at most 50 characters: other names are made of it"),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "the name becomes that of a Service: it must begin with a letter and have only letters, digits and -"),
    validation = ("!has(self.spec.options) || !has(self.spec.options.quotaBackendBytes) || self.spec.storage.emptyDir || (has(self.spec.pod) && has(self.spec.pod.persistentVolumeClaimSpec)) || quantity(self.spec.options.quotaBackendBytes).isLessThan(quantity(self.spec.storage.size))", "options.quotaBackendBytes must be less than storage.size: the log and snapshots need room, too"),
    validation = way_from(4),
    validation = way_from(5),
    validation = way_from(6),
    validation = way_from(7),
    validation = no_way_from_a_pod(),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyMembers"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.TLS) == has(oldSelf.TLS)", "message": "TLS cannot be turned on or off on a cluster that is there: begin another cluster, and restore a backup into it"},
]))]
pub struct EtcdClusterSpec {
    /// How many members there are to be.
    #[schemars(range(min = 1, max = 7))]
    pub size: i32,
    /// The version of etcd.
    #[serde(default = "default_version")]
    #[schemars(schema_with = "version_schema")]
    pub version: String,
    /// Where the image is: it is `repository:vVERSION`. The operator's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub repository: Option<String>,
    /// Whether the operator is to keep its hands off this cluster.
    #[serde(default)]
    pub paused: bool,
    /// What is to be different about the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodPolicy>,
    /// Whether members and clients speak TLS, and with whose certificates. They do not, by default.
    #[serde(rename = "TLS", default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Where the data is.
    #[serde(default)]
    pub storage: Storage,
    /// What becomes of the volumes when the cluster is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// When a member is given up.
    #[serde(default)]
    pub recovery: Recovery,
    /// Options of etcd.
    #[serde(default)]
    pub options: Options,
    /// What is done for running members from time to time.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// When it is backed up, and where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<backup::ClusterBackup>,
}

fn default_version() -> String {
    version::DEFAULT.to_owned()
}

fn version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 20,
        "x-kubernetes-validations": [
            {
                "rule": "self.matches('^v?[0-3][.][0-9]{1,3}[.][0-9]{1,3}$')",
                "message": "write the version of etcd like 3.6.16",
            },
            {
                "rule": "!self.matches('^v?([0-2][.][0-9]{1,3}|3[.][0-3])[.]')",
                "messageExpression": "'etcd ' + self + ' has no learners, without which nobody joins safely: the oldest version that has them is 3.4.0, the nearest that is tested is 3.5.35'",
            },
        ],
    })
}

/// A rule about another version that is wanted of a cluster which runs one already. It holds for who wants another, and
/// not for who tells which one runs: that can change without anybody's wish, as when a member answers again that
/// runs an older one.
fn once_it_runs(running: &str, wanted: &str, message: String) -> Rule {
    let current = "self.status.currentVersion";
    let is_unknown = format!("!has(self.status) || !has({current})");
    let is_same = "self.spec.version == oldSelf.spec.version";
    let rule = format!("{is_same} || {is_unknown} || !{current}.matches('{running}') || {wanted}");
    Rule::new(rule).message(Message::Message(message))
}

/// The minor version that is wanted, in a CEL expression.
const WANTED: &str = "int(self.spec.version.split('.')[1])";

/// From that minor version there is a way to the next one, and to the one before where etcd has one.
fn way_from(minor: u32) -> Rule {
    let tested = |minor: u32| {
        let tested = version::TESTED.iter().find(|tested| tested.minor == minor);
        tested.map_or_else(|| format!("3.{minor}"), ToString::to_string)
    };
    let (up, has_a_way_back) = (tested(minor + 1), Version::new(3, minor, 0).has_a_way_back());
    let (least, message) = match has_a_way_back {
        true => (minor - 1, format!("goes on to {up} first, or back to {} first", tested(minor - 1))),
        false => (minor, format!("goes on to {up} first, and not back, which it can from 3.6 on only")),
    };
    once_it_runs(
        &format!("^3[.]{minor}[.]"),
        &format!("({WANTED} <= {} && {WANTED} >= {least})", minor + 1),
        format!("from 3.{minor} etcd {message}; it is one minor version at a time"),
    )
}

/// Whose pod is made anew with its data in it has lost that, and whoever comes instead begins with what the others run.
fn no_way_from_a_pod() -> Rule {
    let message = "data that is in pods (storage.emptyDir) cannot go on to another minor version: restore a backup into another cluster";
    let is_the_same = format!("{WANTED} == int(self.status.currentVersion.split('.')[1])");
    once_it_runs(".", &format!("!self.spec.storage.emptyDir || {is_the_same}"), message.to_owned())
}

/// What is to be different about the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPolicy {
    /// More labels. `app` and those that begin with `etcd_` or `etcd.database.coreos.com/` are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels_schema")]
    pub labels: BTreeMap<String, String>,
    /// More annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What etcd gets, and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where pods may be. What it says about other pods is in place of the operator's own
    /// wish to have each on a node of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Whether no two members may be on one node. They are rather not, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<bool>,
    /// Which taints of nodes do not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The labels that nodes must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// More variables for etcd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "environment_schema")]
    pub etcd_env: Vec<EnvVar>,
    /// As whom the pods run; as 65532 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// The volumes, in the words of the original. `spec.storage` is simpler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_spec: Option<PersistentVolumeClaimSpec>,
    /// The original's. It has no effect: pods need no busybox here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busybox_image: Option<String>,
    /// The original's. It has no effect: no pod waits for the DNS before it starts.
    #[serde(rename = "DNSTimeoutInSecond", default, skip_serializing_if = "Option::is_none")]
    pub dns_timeout_in_second: Option<i64>,
    /// The original's. It has no effect: members are called by names that are good in every domain.
    #[serde(rename = "ClusterDomain", default, skip_serializing_if = "Option::is_none")]
    pub cluster_domain: Option<String>,
}

fn environment_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut variable = EnvVar::json_schema(generator);
    if let Some(name) = variable.pointer_mut("/properties/name").and_then(Value::as_object_mut) {
        // What a rule may cost is reckoned by how long a name can be.
        name.insert("maxLength".to_owned(), json!(128));
        let rule = json!([{
            "rule": format!("!self.matches('{}')", options::OPERATORS_VARIABLES),
            "messageExpression": "self + ' cannot be set: who a member is, how it begins, where its data is, how it is reached and whom it trusts are the operator\\'s'",
        }]);
        name.insert("x-kubernetes-validations".to_owned(), rule);
    }
    json_schema!({"type": "array", "maxItems": 64, "items": variable})
}

fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63},
        "x-kubernetes-validations": [{
            "rule": "self.all(label, label != 'app' && !label.startsWith('etcd_') && !label.startsWith('etcd.database.coreos.com/'))",
            "message": "app, and what begins with etcd_ or etcd.database.coreos.com/, are labels of the operator's: pods are found by them",
        }],
    })
}

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.emptyDir == oldSelf.emptyDir", "message": "data cannot move between pods and volumes: begin another cluster"},
    {"rule": "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0", "message": "volumes can become larger, and not smaller: begin another cluster"},
]))]
pub struct Storage {
    /// How large the volume of each member is. It can become larger, where the class allows that.
    #[serde(default = "default_size")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi|Ti)$"), length(max = 8))]
    pub size: String,
    /// The class of the volumes; the default one of the Kubernetes cluster, if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
    /// Keep the data in the pods, without volumes: a member whose pod is deleted has lost its
    /// data, and a cluster that loses most of its pods at once is gone.
    #[serde(default)]
    pub empty_dir: bool,
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: default_size(), storage_class: None, empty_dir: false }
    }
}

fn default_size() -> String {
    "8Gi".to_owned()
}

/// What becomes of the volumes when the cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay.
    #[default]
    Retain,
    /// They go, and the data with them.
    Delete,
}

/// When a member is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// A member that nobody has reached for so long is replaced, if the others hold quorum.
    #[serde(default = "default_replace_after")]
    #[schemars(range(min = 10, max = 604_800))]
    pub replace_after_seconds: i64,
    /// What is done when so many members have lost their data that there can be no quorum again.
    #[serde(default)]
    pub quorum_loss: QuorumLoss,
    /// For how long a quorum has to have been lost for good before that is done.
    #[serde(default = "default_restore_after")]
    #[schemars(range(min = 0, max = 604_800))]
    pub restore_after_seconds: i64,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            replace_after_seconds: default_replace_after(),
            quorum_loss: QuorumLoss::default(),
            restore_after_seconds: default_restore_after(),
        }
    }
}

fn default_restore_after() -> i64 {
    60
}

/// What is done when a quorum is lost for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuorumLoss {
    /// Nothing, until a person decides. Nothing is written meanwhile.
    #[default]
    Wait,
    /// The cluster begins anew from what the survivor with the highest commit has, or, if nobody has
    /// survived, from the latest backup. What was acknowledged after that is lost, and told.
    Restore,
}

fn default_replace_after() -> i64 {
    600
}

/// What is done for running members from time to time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// When the data of a member is written anew, without the space that is free.
    #[serde(default)]
    pub defragment: Defragmentation,
}

/// When the data of a member is written anew. One member at a time, the leader last, and only while all are well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// Whether it is done at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How many hundredths of the file must be free.
    #[serde(default = "default_free_percent")]
    #[schemars(range(min = 10, max = 95))]
    pub free_percent: u32,
    /// How large the file must be.
    #[serde(default = "default_minimum_size")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi)$"), length(max = 8))]
    pub minimum_size: String,
}

impl Default for Defragmentation {
    fn default() -> Self {
        Self { enabled: true, free_percent: default_free_percent(), minimum_size: default_minimum_size() }
    }
}

fn yes() -> bool {
    true
}

fn default_free_percent() -> u32 {
    50
}

fn default_minimum_size() -> String {
    "100Mi".to_owned()
}

/// How a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(oldSelf.clusterID) || (has(self.clusterID) && self.clusterID == oldSelf.clusterID) || (has(self.incarnation) && self.incarnation > (has(oldSelf.incarnation) ? oldSelf.incarnation : 0))", "message": "an incarnation of a cluster begins once"},
    {"rule": "!has(oldSelf.incarnation) || (has(self.incarnation) && self.incarnation >= oldSelf.incarnation)", "message": "an incarnation that has ended does not come back"},
    {"rule": "!has(oldSelf.lastOrdinal) || (has(self.lastOrdinal) && self.lastOrdinal >= oldSelf.lastOrdinal)", "message": "no number is used twice"},
]))]
pub struct EtcdClusterStatus {
    /// In one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The generation of the resource that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many members have a vote.
    #[serde(default)]
    pub size: i32,
    /// How many of them answer.
    #[serde(default)]
    pub ready_members: i32,
    /// Which they are.
    #[serde(default)]
    pub members: MembersStatus,
    /// The oldest version that a member runs.
    #[serde(default)]
    #[schemars(length(max = 20))]
    pub current_version: String,
    /// The version that they are on the way to; none when they are there.
    #[serde(default)]
    pub target_version: String,
    /// The Service by which clients reach it.
    #[serde(default)]
    pub service_name: String,
    /// The port there.
    #[serde(default)]
    pub client_port: i32,
    /// How the pods are selected.
    #[serde(default)]
    pub selector: String,
    /// The cluster, as etcd calls it. Once it is here, the cluster never begins anew.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cluster_id: Option<Id>,
    /// Which incarnation of the cluster this is about; 0 is the first.
    #[serde(default)]
    pub incarnation: u32,
    /// The number of the last member that was made: no member gets one that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ordinal: Option<u32>,
    /// Members that nobody reaches, and since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub unreachable: BTreeMap<String, Timestamp>,
    /// Since when it is certain, without a break, that there can be no quorum again: `recovery.restoreAfterSeconds` counts
    /// from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub quorum_gone_since: Option<Timestamp>,
    /// The restore that its data is from, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// What else is to be known.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// The restore that the data of a cluster is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// The UID of the EtcdRestore.
    pub restore: String,
    /// The revision of the backup.
    pub revision: i64,
    /// When the cluster began from it.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// How a cluster is, in one word; as in the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// It has not served yet.
    Creating,
    /// It serves, or did.
    Running,
    /// It cannot serve again without a person.
    Failed,
}

/// The members by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MembersStatus {
    /// Those that answer and have a vote.
    #[serde(default)]
    pub ready: Vec<String>,
    /// The others.
    #[serde(default)]
    pub unready: Vec<String>,
}

/// The durable record of a member: what is intended of it, and what its supervisor found.
/// People only read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "etcd.database.coreos.com",
    version = "v1beta2",
    kind = "EtcdMember",
    plural = "etcdmembers",
    singular = "etcdmember",
    shortname = "etcdm",
    namespaced,
    derive = "PartialEq",
    status = "EtcdMemberStatus",
    validation = ("self.metadata.name.startsWith(self.spec.cluster + '-') && int(self.metadata.name.substring(self.spec.cluster.size() + 1)) == self.spec.ordinal", "a member is called after its cluster and its number"),
    validation = ("!has(oldSelf.status) || !has(oldSelf.status.began) || !oldSelf.status.began || !has(oldSelf.spec.version) || !has(self.spec.version) || int(self.spec.version.split('.')[1]) - int(oldSelf.spec.version.split('.')[1]) in [-1, 0, 1]", "a member that has data goes one minor version at a time"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Intent", type_ = "string", json_path = ".spec.intent"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.data"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.memberID"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.cluster == oldSelf.cluster && self.ordinal == oldSelf.ordinal && (has(self.incarnation) ? self.incarnation : 0) == (has(oldSelf.incarnation) ? oldSelf.incarnation : 0)", "message": "a member stays who it is"},
    {"rule": "!(oldSelf.intent in ['Leaving', 'Left']) || self.intent == 'Left' || self.intent == oldSelf.intent", "message": "a member that leaves does not come back: a new one is made"},
    {"rule": "oldSelf.intent == 'Waiting' || self.intent != 'Waiting'", "message": "a member that was offered to etcd cannot wait again"},
]))]
pub struct EtcdMemberSpec {
    /// The EtcdCluster that it belongs to.
    #[schemars(length(max = 63))]
    pub cluster: String,
    /// Its number, which no other member of the cluster ever had.
    pub ordinal: u32,
    /// The incarnation of the cluster that it is a member of.
    #[serde(default)]
    pub incarnation: u32,
    /// What is to become of it.
    pub intent: Intent,
    /// How it joins; there once etcd lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// From what it begins, if it is to be the seed of a later incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The version that it is to run: whoever makes its pod anew makes it with this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 20), regex(pattern = "^[0-9]+[.][0-9]+[.][0-9]+$"))]
    pub version: Option<Version>,
    /// That its data is to be written anew, without the space that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragment: Option<Defragment>,
}

/// That the data of a member is to be written anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragment {
    /// When that was asked for. It tells one such wish from another.
    #[schemars(with = "String")]
    pub asked: Timestamp,
    /// Whether clients are to be sent to other members meanwhile: there are some.
    #[serde(default)]
    pub drain: bool,
    /// Whether nobody waits for it any more. It is not begun then.
    #[serde(default)]
    pub given_up: bool,
}

/// What is to become of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Intent {
    /// It has a pod, which waits. The seed begins from here.
    Waiting,
    /// etcd is, or was, asked to add it.
    Joining,
    /// It has begun already, whatever the record of before said: an empty folder is data loss.
    Existing,
    /// etcd is, or was, asked to remove it.
    Leaving,
    /// A quorum said, after that, that it is no member: whatever it has is of the past.
    Left,
}

impl Intent {
    /// Whether it is not to be a member any more.
    pub fn is_to_go(self) -> bool {
        matches!(self, Self::Leaving | Self::Left)
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// How a member joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Join {
    /// The ID that etcd gave it.
    #[serde(rename = "memberID")]
    #[schemars(with = "String")]
    pub member_id: Id,
    /// With whom it starts, as etcd's `--initial-cluster` wants it.
    pub initial_cluster: String,
}

/// What the supervisor of a member found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberStatus {
    /// Whether etcd was ever started from an empty folder: that happens once.
    #[serde(default)]
    pub began: bool,
    /// How its data is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// What etcd calls it.
    #[serde(rename = "memberID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub member_id: Option<Id>,
    /// What etcd calls its cluster.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cluster_id: Option<Id>,
    /// What there is to say about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The UID of the pod that said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The authorities that etcd has trusted since it started, in short; none while it does not run, or without TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trusts: String,
    /// The certificates and authorities that are in the pod now, in short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mounted: String,
    /// When its data was last written anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defragmented: Option<Defragmented>,
    /// Whether its log has entries of before 3.6, which 3.7 cannot read. Told by those that run 3.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_entries: Option<bool>,
}

/// That the data of a member was written anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defragmented {
    /// When that had been asked for.
    #[schemars(with = "String")]
    pub asked: Timestamp,
    /// How large the file was, in bytes.
    #[schemars(with = "i64")]
    pub before: Size,
    /// How large it is.
    #[schemars(with = "i64")]
    pub after: Size,
    /// Why it was not written anew, if it was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// How the data of a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Data {
    /// There is none yet, and etcd waits to begin.
    Empty,
    /// What it is to begin from lies ready.
    Prepared,
    /// It is there.
    Present,
    /// It was there, or should be, and is not.
    Lost,
    /// etcd cannot read it.
    Corrupt,
    /// The folder has the data of another member.
    Foreign,
}
