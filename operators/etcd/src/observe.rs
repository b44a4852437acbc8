//! Observe: an EtcdCluster, the records, pods and volumes of its members, and what etcd says.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodCondition};
use kube::{
    ResourceExt as _,
    core::{Expression, PartialObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wheelhouse::{Known, Reference, Result, World, jiff::Timestamp, world::Failure};

use crate::{
    EtcdClusters,
    api::{
        EtcdCluster, EtcdMember, EtcdMemberSpec, EtcdMemberStatus,
        backup::{EtcdBackup, Kept, Place},
    },
    asking::{Answer, AskHashes, AskMember, AskMembers, AskStanding, Hashes, Listed},
    children::{self, CLUSTER_LABEL, CLUSTER_UID_LABEL},
    etcd::{Confirmed, Dial, Id},
    incarnation, layout,
    positions::{Position, Positions, Seen as PositionSeen},
    size::Size,
    tls,
    tls::TlsSeen,
    version::Version,
    view::View,
};

/// How old an answer may be when all is well.
const FRESH_WHEN_WELL: Duration = Duration::from_secs(4);
/// And while something is to change.
const FRESH_WHEN_CHANGING: Duration = Duration::from_millis(150);
/// How old hashes may be, which are asked for only when something depends on them.
const FRESH_HASHES: Duration = Duration::from_secs(20);

wheelhouse::projection! {
    /// The fields of a pod that are read. The cache holds nothing else of pods.
    pub struct PodView of Pod {
        status: PodState,
    }
}

/// How a pod is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodState {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<PodCondition>,
}

wheelhouse::projection! {
    /// The fields of a volume that are read. The cache holds nothing else of volumes.
    pub struct VolumeView of PersistentVolumeClaim {
        spec: VolumeWish,
        status: VolumeState,
    }
}

/// How a volume is to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeWish {
    #[serde(default)]
    resources: VolumeResources,
}

/// What is asked for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeResources {
    #[serde(default)]
    requests: VolumeStorage,
}

/// How a volume is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeState {
    #[serde(default)]
    capacity: VolumeStorage,
}

/// How much it holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeStorage {
    storage: Option<String>,
}

/// The world as this operator has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// What is wanted, and what the status was.
    pub cluster: EtcdCluster,
    /// Whether this operator looks after it.
    pub is_ours: bool,
    /// Where the images of etcd are, unless the cluster says otherwise.
    pub repository: String,
    /// The image with the supervisor.
    pub supervisor_image: String,
    /// The records of its members.
    pub records: Vec<RecordSeen>,
    /// Their pods.
    pub pods: Vec<PodSeen>,
    /// Volumes with its name on them; those of a former cluster of that name, too.
    pub volumes: Vec<VolumeSeen>,
    /// The EtcdBackups that it has.
    #[serde(default)]
    pub backups: Vec<Reference>,
    /// Who the members are, as a quorum confirmed it after all that was intended.
    pub members: Known<Vec<Listed>>,
    /// How far the member that was furthest was, when this process last heard of it. Only while nobody
    /// knows who the members are.
    #[serde(default)]
    pub furthest: Option<PositionSeen>,
    /// The latest good backup of it that is known here.
    #[serde(default)]
    pub backup: Option<BackupSeen>,
    /// What is seen of its certificates; nothing where nobody speaks TLS.
    #[serde(default)]
    pub tls: Option<TlsSeen>,
    /// Whether all members hold the same; absent while nothing depends on that.
    pub hashes: Known<Hashes>,
    /// What went wrong the last time, if it did.
    #[serde(default)]
    pub last_failure: Option<Failure>,
    /// When this was.
    pub now: Timestamp,
}

/// The record of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordSeen {
    /// This very one.
    pub reference: Reference,
    /// What is intended.
    pub spec: EtcdMemberSpec,
    /// What its supervisor found.
    #[serde(default)]
    pub status: EtcdMemberStatus,
    /// When it was made.
    pub created: Timestamp,
}

impl RecordSeen {
    /// Whether it is the record of another member than the one that etcd calls that.
    pub fn is_another(&self, id: Id) -> bool {
        self.status.member_id.is_some_and(|known| known != id)
    }
}

/// The pod of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSeen {
    /// This very one.
    pub reference: Reference,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// By when it was to be gone, if it is to go.
    #[serde(default)]
    pub gone_by: Option<Timestamp>,
    /// What it waits for, if it has not started.
    #[serde(default)]
    pub waits_for: Option<PodWait>,
    /// Whether clients are sent to it.
    pub ready: bool,
    /// Whether it is on a node: before that nothing is mounted in it.
    #[serde(default)]
    pub has_node: bool,
    /// Where etcd answers, once it has an address.
    #[serde(default)]
    pub address: Option<String>,
    /// The version that it was made to run.
    #[serde(default)]
    pub version: Option<Version>,
    /// What people wanted of it when it was made.
    #[serde(default)]
    pub made_for: Option<String>,
    /// The incarnation of the cluster that it was made for.
    #[serde(default)]
    pub incarnation: u32,
    /// How far etcd in it is. Only while nobody knows who the members are.
    #[serde(default)]
    pub position: Option<Position>,
    /// What etcd in it says.
    pub etcd: Known<Answer>,
    /// How far it is although it serves nobody, as its supervisor says. Only while nobody knows who the members are,
    /// and of who does not answer.
    #[serde(default = "absent")]
    pub standing: Known<Position>,
}

fn absent<T>() -> Known<T> {
    Known::Absent
}

/// What a pod waits for that has not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodWait {
    /// A node, in the words of the scheduler.
    Node(String),
    /// What is to be done before etcd may start, in the words of kubelet.
    Preparation(String),
}

impl fmt::Display for PodWait {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Node(why) | Self::Preparation(why)) = self;
        formatter.write_str(why)
    }
}

impl PodSeen {
    /// It ran to its end, and will not run again.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// A good backup of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSeen {
    /// Where it is.
    pub place: Place,
    /// Its checksum.
    pub sha256: String,
    /// Its revision.
    pub revision: i64,
    /// The version of etcd that it was taken from, if that is known.
    #[serde(default)]
    pub etcd_version: Option<Version>,
    /// When it was there and verified.
    pub at: Timestamp,
}

/// The volume of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSeen {
    /// This very one.
    pub reference: Reference,
    /// Whether it is of this cluster, and not of one that had its name before.
    pub is_ours: bool,
    /// The incarnation of the cluster that it was made for.
    #[serde(default)]
    pub incarnation: u32,
    /// Whether it goes when the cluster goes.
    pub goes_with_the_cluster: bool,
    /// How large it is asked to be.
    #[serde(default)]
    pub requested: Option<Size>,
    /// How large it is.
    #[serde(default)]
    pub capacity: Option<Size>,
    /// Its owners but for the cluster.
    #[serde(default)]
    pub other_owners: Vec<Value>,
}

pub(crate) async fn observe(
    operator: &EtcdClusters,
    cluster: Arc<EtcdCluster>,
    world: &World<'_>,
) -> Result<Seen> {
    let uid = cluster.uid().unwrap_or_default();
    let tls = tls::secrets::see(operator, &cluster, world).await?;
    let dialer = operator.dialer_to(world.resource().key());
    let records: Vec<_> =
        world.owned::<EtcdMember>().await?.iter().map(|record| see_record(record, world.now())).collect();
    // If that cannot be read, nothing is done, whatever is seen.
    let current = incarnation::of(&cluster).unwrap_or_default().number;
    let cluster_id = incarnation::cluster_id(&cluster, &records, current);
    let fresh_for = if is_settled(&cluster, &records) { FRESH_WHEN_WELL } else { FRESH_WHEN_CHANGING };
    let mut pods: Vec<_> = world
        .owned::<PodView>()
        .await?
        .iter()
        .map(|pod| see_pod(&dialer, &operator.positions, pod, world, (&uid, cluster_id), fresh_for))
        .collect();
    let of_this_name = Expression::Equal(CLUSTER_LABEL.to_owned(), cluster.name_any()).into();
    let volumes = world.select::<VolumeView>(&of_this_name).await?;
    let volumes = volumes.iter().map(|volume| VolumeSeen {
        reference: Reference::of(&**volume),
        is_ours: volume.labels().get(CLUSTER_UID_LABEL) == Some(&uid),
        incarnation: incarnation_in(volume.labels()),
        goes_with_the_cluster: volume.owner_references().iter().any(|owner| owner.uid == uid),
        other_owners: volume
            .owner_references()
            .iter()
            .filter(|owner| owner.uid != uid)
            .filter_map(|owner| serde_json::to_value(owner).ok())
            .collect(),
        requested: volume.spec.resources.requests.storage.as_deref().and_then(Size::of),
        capacity: volume.status.capacity.storage.as_deref().and_then(Size::of),
    });
    let backups = world.owned::<PartialObjectMeta<EtcdBackup>>().await?;
    let of_now = pods.iter().filter(|pod| pod.incarnation == current);
    let mut addresses: Vec<_> = of_now.filter_map(|pod| pod.address.clone()).collect();
    addresses.sort();
    let members = world.probe(AskMembers {
        dialer: dialer.clone(),
        addresses,
        cluster: cluster_id,
        confirmed: confirmation_by(&pods),
        intentions: format!("{uid} {current} {}", intentions(&records)),
        fresh_for,
    });
    let furthest = operator.positions.furthest(&uid).filter(|_| members.value().is_none());
    if members.value().is_none() {
        for pod in &mut pods {
            pod.position = operator.positions.of(&uid, &pod.reference.uid);
            if let (true, Some(address)) = (is_silent(pod), &pod.address) {
                pod.standing = world.probe(AskStanding {
                    dialer: operator.dialer.clone(),
                    address: address.clone(),
                    pod: pod.reference.uid.clone(),
                    cluster: cluster_id,
                    member: id_of(&records, &pod.reference.name),
                    fresh_for,
                });
            }
        }
    }
    let mut seen = Seen {
        is_ours: operator.scope.includes(cluster.annotations()),
        repository: operator.repository.clone(),
        supervisor_image: operator.supervisor_image.clone(),
        volumes: volumes.collect(),
        backup: latest_backup(world, &cluster, cluster_id).await?.filter(|_| members.value().is_none()),
        backups: backups.iter().map(|backup| Reference::of(&**backup)).collect(),
        members,
        furthest,
        cluster: (*cluster).clone(),
        records,
        pods,
        tls,
        last_failure: world.last_failure(),
        now: world.now(),
        hashes: Known::Absent,
    };
    if crate::analyse::depends_on_hashes(&View::of(&seen)) {
        seen.hashes = world.probe(ask_hashes(dialer, &seen.pods, cluster_id));
    }
    Ok(seen)
}

/// How whoever is in these pods can be asked for a list that a quorum confirms.
fn confirmation_by(pods: &[PodSeen]) -> Confirmed {
    match pods.iter().all(|pod| pod.version.is_some_and(Version::confirms_its_list)) {
        true => Confirmed::ByTheList,
        false => Confirmed::ByARead,
    }
}

/// What etcd calls a member, as its record says.
fn id_of(records: &[RecordSeen], member: &str) -> Option<Id> {
    records.iter().find(|record| record.reference.name == member)?.status.member_id
}

/// Whether etcd was asked, and said nothing.
fn is_silent(pod: &PodSeen) -> bool {
    pod.etcd.value().is_none() && !pod.etcd.is_not_asked_yet()
}

fn ask_hashes(dialer: Arc<dyn Dial>, pods: &[PodSeen], cluster: Option<Id>) -> AskHashes {
    let answering = pods.iter().filter(|pod| pod.etcd.value().is_some());
    let mut members: Vec<_> =
        answering.filter_map(|pod| Some((pod.address.clone()?, pod.reference.uid.clone()))).collect();
    members.sort();
    AskHashes { dialer, members, cluster, fresh_for: FRESH_HASHES }
}

/// Whether nothing was about to change when the status was written.
fn is_settled(cluster: &EtcdCluster, records: &[RecordSeen]) -> bool {
    let ready = cluster.status.as_ref().map_or(0, |status| status.ready_members);
    ready == cluster.spec.size && usize::try_from(cluster.spec.size) == Ok(records.len())
}

/// The latest good backup of the cluster, of all that look after it. One of another cluster that had its name, or of what it
/// was before it was restored, is not taken for it.
async fn latest_backup(
    world: &World<'_>,
    cluster: &EtcdCluster,
    id: Option<Id>,
) -> Result<Option<BackupSeen>> {
    let lister = world.lister::<EtcdBackup>(cluster.namespace().as_deref()).await?;
    let name = cluster.name_any();
    let all = lister.list(cluster.namespace().as_deref()).into_iter();
    let of_it = all.filter(|backup| backup.spec.cluster.as_ref() == Some(&name));
    let latest = |backup: Arc<EtcdBackup>| {
        let kept = latest_of(&backup.status.as_ref()?.history, id)?;
        Some(BackupSeen {
            place: backup.spec.place()?.at(&kept.path),
            sha256: kept.content.sha256.clone(),
            revision: kept.content.revision,
            etcd_version: kept.content.etcd_version,
            at: kept.at,
        })
    };
    Ok(of_it.filter_map(latest).max_by_key(|backup| backup.at))
}

/// The latest of these that is of the cluster that etcd calls that.
fn latest_of(history: &[Kept], id: Option<Id>) -> Option<&Kept> {
    let of_it = history.iter().filter(|kept| id.is_some() && kept.content.cluster_id == id);
    of_it.max_by_key(|kept| kept.at)
}

/// The incarnation that something was made for; the first has no label.
fn incarnation_in(labels: &BTreeMap<String, String>) -> u32 {
    labels.get(children::INCARNATION_LABEL).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// What is intended of every member, as one text.
fn intentions(records: &[RecordSeen]) -> String {
    let mut all: Vec<_> = records
        .iter()
        .map(|record| {
            format!("{}:{}:{}", record.reference.name, record.spec.intent, record.spec.join.is_some())
        })
        .collect();
    all.sort();
    all.join(" ")
}

fn see_record(record: &EtcdMember, now: Timestamp) -> RecordSeen {
    RecordSeen {
        reference: Reference::of(record),
        spec: record.spec.clone(),
        status: record.status.clone().unwrap_or_default(),
        created: record.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
    }
}

fn see_pod(
    dialer: &Arc<dyn Dial>,
    positions: &Arc<Positions>,
    pod: &PodView,
    world: &World<'_>,
    (uid, cluster): (&str, Option<Id>),
    fresh_for: Duration,
) -> PodSeen {
    let is = |kind: &str| {
        let holds = |condition: &PodCondition| condition.type_ == kind && condition.status == "True";
        pod.status.conditions.iter().any(holds)
    };
    let lacks = |kind: &str| {
        let lacking = |known: &&PodCondition| known.type_ == kind && known.status == "False";
        pod.status.conditions.iter().find(lacking)?.message.clone()
    };
    // The address of a pod that has ended may be another's.
    let has_ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let address =
        pod.status.pod_ip.as_ref().filter(|_| !has_ended).map(|address| match address.contains(':') {
            true => format!("[{address}]:{}", layout::CLIENT_PORT),
            false => format!("{address}:{}", layout::CLIENT_PORT),
        });
    PodSeen {
        reference: Reference::of(pod),
        phase: pod.status.phase.clone().unwrap_or_else(|| "Pending".to_owned()),
        gone_by: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        waits_for: lacks("PodScheduled")
            .map(PodWait::Node)
            .or_else(|| lacks("Initialized").map(PodWait::Preparation)),
        ready: is("Ready"),
        has_node: is("PodScheduled") || address.is_some(),
        version: pod.annotations().get(children::VERSION).and_then(|version| version.parse().ok()),
        made_for: pod.annotations().get(children::WANTED).cloned(),
        incarnation: incarnation_in(pod.labels()),
        position: None,
        etcd: match &address {
            Some(address) => world.probe(AskMember {
                dialer: dialer.clone(),
                address: address.clone(),
                pod: pod.uid().unwrap_or_default(),
                cluster,
                positions: positions.clone(),
                of: uid.to_owned(),
                fresh_for,
            }),
            None => Known::Absent,
        },
        standing: Known::Absent,
        address,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_a_member_only_tells_what_it_remembers_lists_are_confirmed_by_a_read() {
        let pods = |versions: &[Option<&str>]| {
            let pod = |version: &Option<&str>| {
                let content = json!({
                    "reference": reference(), "phase": "Running", "ready": true, "version": version, "etcd": "absent",
                });
                serde_json::from_value::<PodSeen>(content).unwrap()
            };
            confirmation_by(&versions.iter().map(pod).collect::<Vec<_>>())
        };
        assert_eq!(pods(&[Some("3.5.35"), Some("3.6.16")]), Confirmed::ByTheList);
        assert_eq!(pods(&[Some("3.5.35"), Some("3.4.30")]), Confirmed::ByARead);
        assert_eq!(pods(&[Some("3.5.35"), None]), Confirmed::ByARead);
    }

    fn reference() -> Reference {
        Reference {
            kind: wheelhouse::Kind::of::<Pod>(&()),
            namespace: None,
            name: "db-0".to_owned(),
            uid: String::new(),
            resource_version: String::new(),
            terminating: false,
        }
    }

    /// A cluster of the same name that was there before, or this one before it was restored, is another.
    #[test]
    fn a_backup_of_another_cluster_is_none_of_this_one() {
        let kept = |path: &str, at: &str, cluster: Option<&str>| {
            let content = json!({
                "path": path, "scheduled": at, "at": at, "size": 1, "sha256": path, "revision": 7, "clusterID": cluster,
            });
            serde_json::from_value::<Kept>(content).unwrap()
        };
        let history = [
            kept("ours", "2026-01-01T00:00:00Z", Some("c1")),
            kept("ours-too", "2026-01-02T00:00:00Z", Some("c1")),
            kept("of-another", "2026-01-03T00:00:00Z", Some("c0")),
            kept("of-nobody-knows-whom", "2026-01-04T00:00:00Z", None),
        ];
        let latest = |id: Option<u64>| latest_of(&history, id.map(Id)).map(|kept| kept.path.as_str());
        assert_eq!(latest(Some(0xc1)), Some("ours-too"));
        assert_eq!(latest(Some(0xc2)), None);
        assert_eq!(latest(None), None);
    }
}
