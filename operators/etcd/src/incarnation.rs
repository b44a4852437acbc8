//! Incarnations of a cluster: it begins once, and after that only from a backup or from a survivor. Pure.
//!
//! See `docs/decisions/0021-etcd-incarnations.md`.

use std::fmt;

use kube::ResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        EtcdCluster, INCARNATION,
        backup::{Place, RESTORE, RestoreFrom},
    },
    etcd::Id,
    observe::RecordSeen,
    version::Version,
};

/// From what a later incarnation begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Source {
    /// A backup.
    Backup {
        /// Where it is.
        place: Place,
        /// The checksum that it must have.
        sha256: String,
        /// Whether revisions are moved forward, because clients know later ones than the backup has.
        moves_revisions: bool,
    },
    /// What a member of the incarnation before has left.
    Survivor {
        /// That member.
        member: String,
        /// Its volume, which is only read.
        claim: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup { place, .. } => write!(formatter, "the backup {}", place.path()),
            Self::Survivor { member, .. } => write!(formatter, "the data of {member}"),
        }
    }
}

/// An incarnation of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incarnation {
    /// Its number; 0 is the first.
    pub number: u32,
    /// From what it begins; the first begins from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What its seed runs, where it is to read what an etcd of another version than the wanted one may have written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// The restore that asked for it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Requested>,
    /// What may be lost by it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub loss: String,
}

/// Which restore asked for an incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requested {
    /// Its UID.
    pub uid: String,
    /// The revision of its backup.
    #[serde(default)]
    pub revision: i64,
}

/// The incarnation that a cluster has.
///
/// The number only grows, and the status knows it, too. Whoever replaces a resource takes its annotations off: of an
/// incarnation that has begun the number is all that is still needed.
///
/// # Errors
/// When nobody can tell, because somebody has written something else there, in words.
pub fn of(cluster: &EtcdCluster) -> Result<Incarnation, String> {
    let written = annotation::<Incarnation>(cluster, INCARNATION)?;
    let number = written.as_ref().map_or(0, |written| written.number);
    let told = told(cluster);
    match written {
        _ if told <= number => Ok(written.unwrap_or_default()),
        None if cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some()) => {
            Ok(Incarnation { number: told, ..Incarnation::default() })
        }
        _ => Err(format!(
            "the annotation {INCARNATION} says {number}, and the status says that incarnation {told} is there: put back what it said"
        )),
    }
}

/// The incarnation that the status tells of.
pub fn told(cluster: &EtcdCluster) -> u32 {
    cluster.status.as_ref().map_or(0, |status| status.incarnation)
}

/// The restore that is asked for and was not begun yet, if there is one.
///
/// # Errors
/// When the request is none, in words.
pub fn request(cluster: &EtcdCluster, current: &Incarnation) -> Result<Option<RestoreFrom>, String> {
    let is_new = |request: &RestoreFrom| {
        let restored = cluster.status.as_ref().and_then(|status| status.restored.as_ref());
        let was_done = restored.is_some_and(|restored| restored.restore == request.uid);
        let is_current = current.restore.as_ref().is_some_and(|requested| requested.uid == request.uid);
        !was_done && !is_current
    };
    Ok(annotation::<RestoreFrom>(cluster, RESTORE)?.filter(is_new))
}

/// What etcd calls the cluster in that incarnation, once it has begun.
pub fn cluster_id(cluster: &EtcdCluster, records: &[RecordSeen], number: u32) -> Option<Id> {
    let status = cluster.status.as_ref().filter(|status| status.incarnation == number);
    let of_it = records.iter().filter(|record| record.spec.incarnation == number);
    status
        .and_then(|status| status.cluster_id)
        .or_else(|| of_it.into_iter().find_map(|record| record.status.cluster_id))
}

/// Whether a cluster has data, or will have what it had before: this incarnation has begun, or takes the place of one that
/// has served. That one has no ID yet while it is being made ready is no reason to begin another.
pub fn holds_data(cluster: &EtcdCluster, records: &[RecordSeen], current: &Incarnation) -> bool {
    let succeeds_one_that_served = match &current.source {
        None => current.number > 0,
        Some(Source::Survivor { .. }) => true,
        Some(Source::Backup { moves_revisions, .. }) => *moves_revisions,
    };
    succeeds_one_that_served || cluster_id(cluster, records, current.number).is_some()
}

fn annotation<T: serde::de::DeserializeOwned>(
    cluster: &EtcdCluster,
    name: &str,
) -> Result<Option<T>, String> {
    let Some(text) = cluster.annotations().get(name) else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|error| format!("the annotation {name} cannot be read: {error}: correct or remove it"))
}
