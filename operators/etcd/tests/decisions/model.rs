//! A world in which plans can be followed: Kubernetes, kubelets, supervisors and etcd itself, as far as
//! decisions depend on them, with what can go wrong.
//!
//! The supervisors decide by the operator's own table (`supervisor::word`). etcd keeps a list that
//! changes only with a quorum, and refuses what the real one refuses. Every acknowledged write is on the
//! disks of a quorum: what each member's disk holds is a number that grows. A backup holds such a number, too.
//!
//! A cluster works as the oldest of its members does, or as the version before if that was allowed; an older etcd than
//! that does not start, and nobody joins while the cluster may go back.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator::{
    act::{Change, What},
    api::{
        Data, Defragmented, EtcdCluster, EtcdClusterStatus, EtcdMember, EtcdMemberSpec, EtcdMemberStatus,
        INCARNATION, Intent, QuorumLoss, SEED,
        backup::{Place, RESTORE, RestoreFrom, VolumePlace},
    },
    asking::{Answer, Hashes, Listed, Upkeep},
    children,
    etcd::Id,
    incarnation::{self, Incarnation, Source},
    observe::{BackupSeen, PodSeen, RecordSeen, Seen, VolumeSeen},
    positions::Position,
    size::Size,
    supervisor::{
        folder::{Folder, Mark},
        word::{Beginning, ClusterSeen, Word, word},
    },
    tls::Wanted,
    version::{TESTED, Version},
};
use rand::{RngExt as _, rngs::SmallRng};
use serde_json::{Value, json};
use wheelhouse::{Known, Plan, Reference, Step, jiff::Timestamp, kube::ResourceExt as _, plan::Guard};

pub const NAME: &str = "db";
pub const NAMESPACE: &str = "n";

#[derive(Clone, Debug)]
pub struct Record {
    pub reference: Reference,
    pub spec: EtcdMemberSpec,
    pub status: EtcdMemberStatus,
    pub created: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Pod {
    pub reference: Reference,
    pub finished: bool,
    /// By when it was to be gone, if it is to go.
    pub gone_by: Option<Timestamp>,
    pub version: Version,
    pub made_for: String,
    pub incarnation: u32,
    pub has_node: bool,
    /// Whether etcd runs in it, and whether it ever did.
    pub runs: bool,
    pub has_run: bool,
    /// Whether it has found a quorum since it was started: before that etcd serves no client.
    pub serves: bool,
    /// Nobody reaches it, and it reaches nobody.
    pub cut_off: bool,
    /// Nobody ever will: it stays for as long as somebody takes its node for one that may come back.
    pub node_is_gone: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// As which member etcd has a log there, and how much of what was acknowledged it holds.
    pub log: Option<(u64, u64)>,
    /// What lies ready to begin with.
    pub prepared: Option<u64>,
    pub incarnation: u32,
    /// The minor version that can read it.
    pub storage: u32,
    /// Whether its log has entries that 3.7 cannot read.
    pub has_old_entries: bool,
    /// How large the volume is, and whether much of the file on it is free.
    pub size: Size,
    pub is_fragmented: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub cluster: EtcdCluster,
    pub records: BTreeMap<String, Record>,
    pub pods: BTreeMap<String, Pod>,
    pub volumes: BTreeMap<String, (Reference, Disk)>,
    /// Who the members are. The real list is on the disks; it changes only with a quorum.
    pub list: Vec<Listed>,
    pub acknowledged: u64,
    pub incarnations_begun: BTreeSet<u32>,
    /// What the latest backup holds.
    pub backup: Option<u64>,
    /// The version that it was taken from.
    pub backed_up_by: Option<Version>,
    pub names_used: BTreeSet<String>,
    pub now: Timestamp,
    /// What was intended when the list was last asked for, and what it said.
    asked: Option<(String, Vec<Listed>)>,
    /// Requests to add somebody that were given up, and may yet take effect.
    late: Vec<String>,
    /// Whether the plan that is followed was made from old news.
    pub is_stale: bool,
    /// Whether one ever was.
    pub had_two_operators: bool,
    /// The minor version that the cluster works as, and the one that it may go back to.
    pub works_as: u32,
    pub way_back: Option<u32>,
    /// How many nodes there are, each for one pod.
    pub nodes: usize,
    /// Who was told to lead.
    lead: Option<Id>,
    next_uid: u64,
    next_id: u64,
    pub story: Vec<String>,
}

/// Where the others reach a member, as the cluster wants it.
fn url(cluster: &EtcdCluster, member: &str) -> String {
    children::peer_url(Wanted::by(cluster).peers(), NAME, NAMESPACE, member)
}

impl World {
    pub fn new(size: i32) -> Self {
        let mut cluster: EtcdCluster =
            EtcdCluster::new(NAME, serde_json::from_value(json!({"size": size})).unwrap());
        cluster.metadata.namespace = Some(NAMESPACE.to_owned());
        cluster.metadata.uid = Some("cluster".to_owned());
        cluster.metadata.resource_version = Some("1".to_owned());
        Self {
            cluster,
            records: BTreeMap::new(),
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            list: Vec::new(),
            acknowledged: 0,
            incarnations_begun: BTreeSet::new(),
            backup: None,
            backed_up_by: None,
            names_used: BTreeSet::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            asked: None,
            late: Vec::new(),
            is_stale: false,
            had_two_operators: false,
            works_as: 6,
            way_back: None,
            nodes: usize::MAX,
            lead: None,
            next_uid: 0,
            next_id: 0,
            story: Vec::new(),
        }
    }

    fn reference(&mut self, kind: &str, name: &str) -> Reference {
        self.next_uid += 1;
        serde_json::from_value(json!({
            "kind": {"group": "", "version": "v1", "kind": kind, "plural": format!("{}s", kind.to_lowercase())},
            "namespace": NAMESPACE,
            "name": name,
            "uid": format!("uid-{}", self.next_uid),
            "resourceVersion": "1",
        }))
        .unwrap()
    }

    pub fn incarnation(&self) -> u32 {
        incarnation::of(&self.cluster).unwrap().number
    }

    fn has_begun(&self) -> bool {
        self.incarnations_begun.contains(&self.incarnation())
    }

    fn keeps_data_in_pods(&self) -> bool {
        self.cluster.spec.storage.empty_dir
    }

    /// What is in a pod goes with it.
    fn forget_what_was_in_pods(&mut self) {
        if self.keeps_data_in_pods() {
            self.volumes.retain(|name, _| self.pods.contains_key(name));
        }
    }

    /// Nothing in a pod that has ended, or is about to, is of use to anybody.
    fn lose_what_was_in_the_pod_of(&mut self, name: &str) {
        let in_pods = self.keeps_data_in_pods();
        if let Some((_, disk)) = self.volumes.get_mut(name).filter(|_| in_pods) {
            disk.log = None;
        }
    }

    fn disk(&self, member: &str) -> Option<&Disk> {
        self.volumes.get(member).map(|(_, disk)| disk)
    }

    /// Whether a member takes part: it runs, is reachable, and has a log as that member.
    fn takes_part(&self, listed: &Listed) -> bool {
        let Some(name) = member_of(listed) else { return false };
        let runs = self.pods.get(&name).is_some_and(|pod| pod.runs && !pod.cut_off);
        runs && self.disk(&name).is_some_and(|disk| disk.log.is_some_and(|(id, _)| id == listed.id.0))
    }

    fn voters(&self) -> Vec<&Listed> {
        self.list.iter().filter(|listed| !listed.is_learner).collect()
    }

    pub fn has_quorum(&self) -> bool {
        let voters = self.voters();
        let well = voters.iter().filter(|voter| self.takes_part(voter)).count();
        !voters.is_empty() && well >= children::quorum(voters.len())
    }

    /// Whether the data that was acknowledged is with a quorum that could be there again.
    pub fn could_have_quorum(&self) -> bool {
        let voters = self.voters();
        let with_log = voters.iter().filter(|voter| self.has_log(voter)).count();
        !voters.is_empty() && with_log >= children::quorum(voters.len())
    }

    fn leader(&self) -> Option<Id> {
        // The one with the most on its disk, which raft guarantees; of several, whom the lead was handed over to.
        let most = |listed: &&&Listed| {
            let name = member_of(listed).unwrap_or_default();
            self.disk(&name).and_then(|disk| disk.log).map_or(0, |(_, held)| held)
        };
        let voters = self.voters();
        let well = voters.iter().filter(|voter| self.takes_part(voter));
        let is_told = |listed: &&&Listed| Some(listed.id) == self.lead;
        let first = well.max_by_key(|listed| (most(listed), is_told(listed)));
        self.has_quorum().then(|| first.map(|voter| voter.id)).flatten()
    }

    /// What the operator sees. What etcd says may be old, but no older than what is intended, and of no other incarnation.
    pub fn observe(&mut self, random: &mut SmallRng) -> Seen {
        let intentions: Vec<_> = self
            .records
            .values()
            .map(|record| {
                format!("{}{}{}", record.reference.name, record.spec.intent, record.spec.join.is_some())
            })
            .collect();
        let intentions = format!("{} {}", self.incarnation(), intentions.join(" "));
        let is_known = self.asked.as_ref().is_some_and(|(when, _)| *when == intentions);
        if !is_known || random.random_bool(0.7) {
            // Members of an incarnation that has ended are not asked.
            let says_so = self.has_begun() && self.has_quorum();
            self.asked = says_so.then(|| (intentions, self.list.clone()));
        }
        let at = self.now;
        let members = match &self.asked {
            // A new question, and the answer is still to come.
            _ if random.random_bool(0.1) => Known::Unknown { why: "not asked yet".to_owned(), since: at },
            Some((_, list)) => Known::Value { value: list.clone(), at },
            None => Known::Unknown { why: "no quorum".to_owned(), since: at },
        };
        let leader = self.leader();
        let has_list = members.value().is_some();
        let current = self.incarnation();
        let pods = self.pods.iter().map(|(name, pod)| {
            let listed = self.list.iter().find(|listed| listed.peer_urls == [url(&self.cluster, name)]);
            let is_reached = pod.runs && !pod.cut_off && !pod.finished;
            let answers = is_reached && pod.serves && !self.is_defragmenting(name);
            let log = self.disk(name).and_then(|disk| disk.log);
            let position = log.map(|(_, held)| Position {
                index: held,
                term: 1,
                revision: i64::try_from(held).unwrap(),
                is_learner: listed.is_some_and(|listed| listed.is_learner),
                voters: self.voters().len(),
            });
            let is_of_now = pod.incarnation == current;
            PodSeen {
                reference: pod.reference.clone(),
                phase: if pod.finished { "Failed" } else { "Running" }.to_owned(),
                gone_by: pod.gone_by,
                waits_for: None,
                ready: answers && leader.is_some() && listed.is_some_and(|listed| !listed.is_learner),
                has_node: pod.has_node,
                address: pod.has_node.then(|| format!("{name}:2379")),
                version: Some(pod.version),
                made_for: Some(pod.made_for.clone()),
                incarnation: pod.incarnation,
                position: position.filter(|_| answers && !has_list),
                standing: match position.filter(|_| is_reached && !pod.serves && is_of_now && !has_list) {
                    Some(value) => Known::Value { value, at },
                    None => Known::Absent,
                },
                etcd: match log.filter(|_| answers && is_of_now) {
                    Some((id, _)) => Known::Value {
                        value: Answer {
                            cluster: cluster_id(pod.incarnation),
                            member: Id(id),
                            // Who was removed hears of nobody any more.
                            leader: leader.filter(|_| listed.is_some_and(|listed| listed.id.0 == id)),
                            version: Some(pod.version),
                            errors: Vec::new(),
                            upkeep: self.upkeep(name, pod),
                        },
                        at,
                    },
                    None => Known::Unknown {
                        why: "connection refused".to_owned(),
                        since: at - std::time::Duration::from_secs(60),
                    },
                },
            }
        });
        let hashes = match random.random_bool(0.2) {
            true => Known::Unknown { why: "not asked yet".to_owned(), since: at },
            false => Known::Value { value: self.hashes(), at },
        };
        Seen {
            is_ours: true,
            hashes,
            repository: "etcd".to_owned(),
            supervisor_image: "supervisor".to_owned(),
            records: self
                .records
                .values()
                .map(|record| RecordSeen {
                    reference: record.reference.clone(),
                    spec: record.spec.clone(),
                    status: record.status.clone(),
                    created: record.created,
                })
                .collect(),
            volumes: self
                .volumes
                .values()
                .filter(|_| !self.keeps_data_in_pods())
                .map(|(reference, disk)| VolumeSeen {
                    reference: reference.clone(),
                    is_ours: true,
                    incarnation: disk.incarnation,
                    goes_with_the_cluster: false,
                    requested: Some(disk.size),
                    capacity: Some(disk.size),
                    other_owners: Vec::new(),
                })
                .collect(),
            pods: pods.collect(),
            backup: self.backup.filter(|_| !has_list).map(|held| BackupSeen {
                place: place(held),
                sha256: checksum(held, self.backed_up_by),
                revision: i64::try_from(held).unwrap(),
                etcd_version: self.backed_up_by,
                at,
            }),
            backups: Vec::new(),
            members,
            furthest: None,
            cluster: self.cluster.clone(),
            tls: None,
            last_failure: None,
            now: self.now,
        }
    }

    fn hashes(&self) -> Hashes {
        let asked = self.list.iter().filter(|listed| self.takes_part(listed));
        Hashes { groups: vec![asked.map(|listed| listed.id).collect()] }
    }

    /// Whether a member writes its data anew, or has yet to say that it did.
    fn is_defragmenting(&self, name: &str) -> bool {
        let Some(record) = self.records.get(name).filter(|_| !self.is_out_of_reach(name)) else {
            return false;
        };
        let done = record.status.defragmented.as_ref().map(|done| done.asked);
        record.spec.defragment.as_ref().is_some_and(|wish| !wish.given_up && done != Some(wish.asked))
    }

    /// Whether all volumes are as large as they are wanted, and no file on them is mostly free; and all pods run the version that people
    /// want, and are made for what they want, but for those that nobody can do without. The status may be from before the last wish, and so
    /// may what etcd was told of a way back, and the record of who is on a node that is gone.
    pub fn is_looked_after(&self) -> bool {
        let size = Size::of(&self.cluster.spec.storage.size);
        let is_former = |disk: &Disk| disk.incarnation < self.incarnation();
        let is_large = |disk: &Disk| self.keeps_data_in_pods() || Some(disk.size) == size;
        let is_well = |disk: &Disk| is_large(disk) && !disk.is_fragmented;
        let (wanted, version) = (children::wanted(&self.cluster), &self.cluster.spec.version);
        let stays = self.keeps_data_in_pods() && self.cluster.spec.size <= 2;
        let is_as_wanted =
            |pod: &Pod| (stays || pod.made_for == wanted) && pod.version.to_string() == *version;
        let is_away = |name: &String| self.is_out_of_reach(name);
        let is_settled = |record: &Record| {
            record.spec.incarnation < self.incarnation() || record.spec.intent == Intent::Left
        };
        self.way_back.is_none()
            && self.volumes.iter().all(|(name, (_, disk))| is_away(name) || is_former(disk) || is_well(disk))
            && self.pods.values().all(|pod| pod.node_is_gone || is_as_wanted(pod))
            && !self.records.keys().any(|name| self.is_defragmenting(name))
            && self.records.iter().all(|(name, record)| !is_away(name) || is_settled(record))
    }

    /// What etcd says, some of it since 3.6.
    fn upkeep(&self, name: &str, pod: &Pod) -> Upkeep {
        let is_fragmented = self.disk(name).is_some_and(|disk| disk.is_fragmented);
        let (size, in_use) = (Size(200 << 20), Size(if is_fragmented { 50 << 20 } else { 200 << 20 }));
        if pod.version.minor < 6 {
            return Upkeep { size, in_use, ..Upkeep::default() };
        }
        let storage = self.disk(name).map(|disk| Version::new(3, disk.storage, 0));
        let downgrade_to = self.way_back.map(|minor| Version::new(3, minor, 0));
        Upkeep { size, in_use, quota: Some(Size(2 << 30)), storage_version: storage, downgrade_to }
    }

    /// The minor versions of those that etcd lists, if all of them run.
    fn minors(&self) -> Option<Vec<u32>> {
        let minor = |listed: &Listed| {
            let pod = self.pods.get(&member_of(listed)?)?;
            self.takes_part(listed).then_some(pod.version.minor)
        };
        self.list.iter().map(minor).collect()
    }

    /// The leader looks at the versions of the members, every now and then.
    fn watch_versions(&mut self, random: &mut SmallRng) {
        let Some(minors) = self.minors().filter(|_| self.has_quorum() && random.random_bool(0.5)) else {
            return;
        };
        let Some(oldest) = minors.iter().min().copied() else { return };
        match self.way_back {
            Some(target) if minors.iter().all(|minor| *minor == target) => self.way_back = None,
            Some(target) if self.works_as == target + 1 && oldest == target + 1 => self.works_as = target,
            Some(_) => {}
            None => self.works_as = self.works_as.max(oldest),
        }
        let works_as = self.works_as;
        let running: Vec<_> = self.list.iter().filter(|listed| self.takes_part(listed)).cloned().collect();
        for listed in running.iter().filter(|_| random.random_bool(0.7)) {
            if let Some((_, disk)) = self.volumes.get_mut(&member_of(listed).unwrap()) {
                disk.storage = works_as;
            }
        }
    }

    /// Whether etcd of that pod starts with the data that is there; a plan from old news apart, nothing else is tried.
    fn can_start(&self, name: &str) -> bool {
        let minor = self.pods[name].version.minor;
        let can = minor >= self.works_as && minor <= self.works_as + 1;
        assert!(
            can || self.had_two_operators,
            "{name} is started as 3.{minor} while the cluster works as 3.{}: {:#?}",
            self.works_as,
            self.story
        );
        can
    }

    /// Carries out a plan, up to the step at which the operator crashes.
    pub fn follow(&mut self, plan: &Plan<Change>, crash_before: Option<usize>, random: &mut SmallRng) {
        for (index, planned) in plan.steps.iter().enumerate() {
            let is_last = index + 1 == plan.steps.len();
            assert!(is_last || !planned.step.is_destructive(), "{plan}");
            if crash_before == Some(index) {
                self.story.push("the operator crashes".to_owned());
                return;
            }
            if !self.carry_out(&planned.step, random) {
                return;
            }
        }
        if crash_before.is_none() {
            let status: EtcdClusterStatus = serde_json::from_value(plan.status.clone().unwrap()).unwrap();
            if self.cluster.status.as_ref() != Some(&status) {
                self.cluster.status = Some(status);
                self.touch_cluster();
            }
        }
    }

    fn touch_cluster(&mut self) {
        let version: u64 = self.cluster.metadata.resource_version.as_ref().unwrap().parse().unwrap();
        self.cluster.metadata.resource_version = Some((version + 1).to_string());
    }

    fn carry_out(&mut self, step: &Step<Change>, random: &mut SmallRng) -> bool {
        let is_routine = matches!(step, Step::Apply(object) if object.kind.kind != "PersistentVolumeClaim");
        if !is_routine {
            self.story.push(step.to_string());
        }
        match step {
            Step::Apply(object) if object.kind.kind == "PersistentVolumeClaim" => {
                self.make_volume(object.name(), &object.content)
            }
            Step::Apply(_) => true,
            Step::Evict { target } => {
                self.is_left_with_a_quorum(&target.name) && self.delete(target, &Guard::Identity)
            }
            Step::Create(object) if object.kind.kind == "EtcdMember" => {
                self.make_record(object.name(), &object.content)
            }
            Step::Create(object) => self.make_pod(object.name(), &object.content),
            Step::Update { target, fields } => self.update(target, fields),
            Step::Delete { target, guard } => self.delete(target, guard),
            Step::Act(change) => self.act(change, random),
            other => panic!("no such step was expected: {other}"),
        }
    }

    fn make_volume(&mut self, name: &str, content: &Value) -> bool {
        let reference = self.reference("PersistentVolumeClaim", name);
        let size = Size::of(&self.cluster.spec.storage.size).unwrap();
        let disk = Disk { incarnation: incarnation_in(content), size, ..Disk::default() };
        self.volumes.entry(name.to_owned()).or_insert((reference, disk));
        true
    }

    fn make_record(&mut self, name: &str, content: &Value) -> bool {
        if self.records.contains_key(name) {
            return false;
        }
        let record: EtcdMember = serde_json::from_value(content.clone()).unwrap();
        if record.spec.intent == Intent::Waiting {
            assert!(self.names_used.insert(name.to_owned()), "{name} was used before: {:#?}", self.story);
        }
        let reference = self.reference("EtcdMember", name);
        let status = EtcdMemberStatus::default();
        let record = Record { reference, spec: record.spec, status, created: self.now };
        self.records.insert(name.to_owned(), record);
        true
    }

    fn make_pod(&mut self, name: &str, content: &Value) -> bool {
        if self.pods.contains_key(name) {
            return false;
        }
        let annotation = |name: &str| content["metadata"]["annotations"][name].as_str().unwrap().to_owned();
        let pod = Pod {
            has_node: self.pods.values().filter(|pod| pod.has_node).count() < self.nodes,
            reference: self.reference("Pod", name),
            finished: false,
            gone_by: None,
            version: annotation(children::VERSION).parse().unwrap(),
            made_for: annotation(children::WANTED),
            incarnation: incarnation_in(content),
            runs: false,
            has_run: false,
            serves: false,
            cut_off: false,
            node_is_gone: false,
        };
        self.pods.insert(name.to_owned(), pod);
        if self.keeps_data_in_pods() {
            self.make_volume(name, content);
        }
        true
    }

    fn update(&mut self, target: &Reference, fields: &Value) -> bool {
        if target.kind.kind == "EtcdCluster" {
            if Some(&target.resource_version) != self.cluster.metadata.resource_version.as_ref() {
                return false;
            }
            let annotations = fields["metadata"]["annotations"].as_object().unwrap().clone();
            if let Some(text) = annotations.get(INCARNATION) {
                self.check_beginning_anew(&serde_json::from_str(text.as_str().unwrap()).unwrap());
            }
            for (name, value) in annotations {
                match value.as_str() {
                    Some(text) => drop(self.cluster.annotations_mut().insert(name, text.to_owned())),
                    None => drop(self.cluster.annotations_mut().remove(&name)),
                }
            }
            self.touch_cluster();
            return true;
        }
        if target.kind.kind == "PersistentVolumeClaim" {
            let size = fields["spec"]["resources"]["requests"]["storage"].as_str().unwrap();
            let Some((_, disk)) = self.volumes.get_mut(&target.name) else { return false };
            disk.size = Size::of(size).unwrap();
            return true;
        }
        if fields["spec"]["defragment"]["asked"].is_string() && !self.is_stale {
            let others = self.records.keys().filter(|name| **name != target.name);
            assert_eq!(others.filter(|name| self.is_defragmenting(name)).count(), 0, "{:#?}", self.story);
            let leads = self.list.iter().any(|listed| {
                Some(listed.id) == self.leader() && listed.peer_urls == [url(&self.cluster, &target.name)]
            });
            assert!(!leads || self.list.len() == 1, "the leader is away: {:#?}", self.story);
        }
        let Some(record) = self.records.get_mut(&target.name) else { return false };
        if record.reference.uid != target.uid || record.reference.resource_version != target.resource_version
        {
            return false;
        }
        let mut spec = serde_json::to_value(&record.spec).unwrap();
        // Where nothing is to change, all that matters is that it is this version.
        let changed = fields.get("spec").cloned().unwrap_or_else(|| json!({}));
        wheelhouse::overrides::merge(&mut spec, &changed);
        record.spec = serde_json::from_value(spec).unwrap();
        touch(&mut record.reference);
        true
    }

    /// Nobody gives up a cluster that could have a quorum again, unless a person asked for that; and who survived
    /// with most of it is what another begins from.
    fn check_beginning_anew(&self, next: &Incarnation) {
        assert_eq!(next.number, self.incarnation() + 1);
        if next.restore.is_some() {
            let is_ready =
                |(_, disk): &(Reference, Disk)| disk.incarnation == next.number && disk.prepared.is_some();
            assert!(self.volumes.values().any(is_ready), "nothing lies ready: {:#?}", self.story);
            let request = self.cluster.annotations().get(RESTORE);
            let request: Option<RestoreFrom> = request.map(|text| serde_json::from_str(text).unwrap());
            let may_go = request.is_some_and(|request| request.in_place);
            // Whatever the status says of it by now.
            let has_data = !self.incarnations_begun.is_empty();
            assert!(may_go || !has_data, "nobody said that what there is may go: {:#?}", self.story);
            return;
        }
        assert!(!self.could_have_quorum(), "a cluster is given up that could live: {:#?}", self.story);
        let most = self.voters().iter().map(|voter| self.held_by(voter.id)).max().unwrap();
        match next.source.as_ref().unwrap() {
            Source::Survivor { claim, .. } => {
                assert_eq!(self.disk(claim).unwrap().log.unwrap().1, most, "{:#?}", self.story);
            }
            Source::Backup { .. } => assert_eq!(most, 0, "somebody has survived: {:#?}", self.story),
        }
    }

    /// What another incarnation begins with, if it can be read.
    fn content_of(&self, source: &Source) -> Option<u64> {
        match source {
            Source::Survivor { claim, .. } => Some(self.disk(claim)?.log?.1),
            Source::Backup { sha256, .. } => Some(taken(sha256).0),
        }
    }

    /// Whoever begins anew reads what is there with its own etcd.
    fn check_it_reads(&self, name: &str, source: &Source) {
        let minor = self.pods[name].version.minor;
        let can = match source {
            Source::Survivor { claim, .. } => {
                let disk = self.disk(claim).unwrap();
                minor >= disk.storage && (minor <= 6 || !disk.has_old_entries)
            }
            Source::Backup { sha256, .. } => taken(sha256).1.is_none_or(|by| minor >= by.minor),
        };
        assert!(can, "{name} begins with 3.{minor}, and cannot read {source}: {:#?}", self.story);
    }

    /// As the budget for disruptions counts.
    fn is_left_with_a_quorum(&self, without: &str) -> bool {
        let voters = self.voters();
        let others = voters.iter().filter(|voter| member_of(voter).as_deref() != Some(without));
        others.filter(|voter| self.takes_part(voter)).count() >= children::quorum(voters.len())
    }

    /// Whether nothing is lost for good when the pod of a member goes.
    fn can_spare_the_pod_of(&self, name: &str) -> bool {
        let mut without = self.clone();
        without.volumes.remove(name);
        !self.keeps_data_in_pods() || !self.could_have_quorum() || without.could_have_quorum()
    }

    fn delete(&mut self, target: &Reference, guard: &Guard) -> bool {
        let name = &target.name;
        let is_away = self.pods.keys().any(|other| other != name && self.is_defragmenting(other));
        let serves = |name: &String| self.pods.get(name).is_some_and(|pod| pod.runs && !pod.cut_off);
        let is_listed = self.list.iter().any(|listed| listed.peer_urls == [url(&self.cluster, name)]);
        let is_former = self.pods.get(name).is_some_and(|pod| pod.incarnation < self.incarnation());
        assert!(
            !is_away
                || !serves(name)
                || !is_listed
                || is_former
                || self.is_stale
                || target.kind.kind != "Pod",
            "{name} goes while another is away: {:#?}",
            self.story
        );
        match target.kind.kind.as_str() {
            "Pod" => {
                let current = self.incarnation();
                let is_spared = self.is_stale || is_former || self.can_spare_the_pod_of(name);
                if let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.reference.uid == target.uid) {
                    assert!(
                        !is_listed
                            || !pod.cut_off
                            || pod.finished
                            || !pod.has_run
                            || self.is_stale
                            || pod.incarnation < current,
                        "the pod of a member that nobody reaches is deleted: {:#?}",
                        self.story
                    );
                    assert!(is_spared, "what {name} has goes with its pod: {:#?}", self.story);
                    // Its kubelet cannot be told.
                    match pod.cut_off && !pod.finished {
                        true => {
                            pod.reference.terminating = true;
                            pod.gone_by.get_or_insert(self.now);
                        }
                        false => drop(self.pods.remove(name)),
                    }
                    self.forget_what_was_in_pods();
                }
            }
            "PersistentVolumeClaim" => {
                assert_eq!(*guard, Guard::Unchanged);
                assert!(!is_listed, "the volume of member {name} is deleted: {:#?}", self.story);
                let is_former = |(_, disk): &(Reference, Disk)| {
                    disk.incarnation < self.incarnation() && disk.log.is_some()
                };
                assert!(
                    !self.volumes.get(name).is_some_and(is_former),
                    "what {name} has left is deleted: {:#?}",
                    self.story
                );
                if self.volumes.get(name).is_some_and(|(reference, _)| reference == target) {
                    self.volumes.remove(name);
                }
            }
            "EtcdMember" => {
                assert_eq!(*guard, Guard::Unchanged);
                if self.records.get(name).is_some_and(|record| record.reference == *target) {
                    self.records.remove(name);
                } else {
                    return false;
                }
            }
            other => panic!("{other} is deleted"),
        }
        true
    }

    /// etcd, with what the real one refuses; and act, which looks at the list before it asks.
    fn act(&mut self, change: &Change, random: &mut SmallRng) -> bool {
        let is_lost = random.random_bool(0.1);
        if !self.has_quorum() || (is_lost && random.random_bool(0.5)) {
            if let (What::AddLearner { .. }, true) = (&change.what, is_lost) {
                self.late.push(change.member.clone());
            }
            return false;
        }
        match &change.what {
            What::AddLearner { peer_url } => self.add(&change.member, peer_url),
            What::Promote { id } => {
                let well = self
                    .list
                    .iter()
                    .find(|listed| listed.id == *id)
                    .is_some_and(|listed| self.takes_part(listed));
                if let Some(listed) = self.list.iter_mut().find(|listed| listed.id == *id).filter(|_| well) {
                    listed.is_learner = false;
                    self.replicate();
                }
            }
            What::Remove { peer_url, unless_started } => {
                let before = self.list.clone();
                let has_started =
                    |listed: &Listed| listed.peer_urls == [peer_url.clone()] && !listed.name.is_empty();
                if *unless_started && self.list.iter().any(has_started) {
                    return false;
                }
                self.list.retain(|listed| listed.peer_urls != [peer_url.clone()]);
                if !self.has_quorum() {
                    // What was decided on old news is found out when it is carried out.
                    assert!(self.is_stale, "{change} costs the quorum: {before:?} {:#?}", self.story);
                    self.list = before;
                    return false;
                }
                self.replicate();
            }
            What::Lead { id } => {
                self.replicate();
                self.lead = Some(*id);
            }
            What::AllowDowngrade { to } => {
                if self.way_back.is_some() || to.minor + 1 != self.works_as {
                    return false;
                }
                self.way_back = Some(to.minor);
            }
            What::CheckUpgrade { to } => return self.works_as + 1 == to.minor,
            What::CheckDowngrade { to } => return self.works_as <= to.minor,
            What::CancelDowngrade => self.way_back = None,
            What::FillLogs => {
                let there: Vec<_> =
                    self.list.iter().filter(|listed| self.takes_part(listed)).cloned().collect();
                for name in there.iter().filter_map(member_of) {
                    self.volumes.get_mut(&name).unwrap().1.has_old_entries = false;
                }
            }
            What::TakeBackNoSpace { .. } => panic!("no space ran out"),
        }
        !is_lost
    }

    fn add(&mut self, member: &str, peer_url: &str) {
        let is_there = self.list.iter().any(|listed| listed.peer_urls == [peer_url.to_owned()]);
        let all_well = self.list.iter().all(|listed| self.takes_part(listed));
        if is_there || !all_well || self.list.iter().any(|listed| listed.is_learner) {
            return;
        }
        self.next_id += 1;
        let id = Id(0xe7cd_0000 + self.next_id);
        self.story.push(format!("etcd lists {member} as {id}"));
        self.list.push(Listed {
            id,
            name: String::new(),
            peer_urls: vec![peer_url.to_owned()],
            is_learner: true,
        });
    }

    /// A client writes; what is acknowledged is on the disks of a quorum, the leader's among them.
    pub fn write(&mut self, random: &mut SmallRng) {
        let Some(leader) = self.leader() else { return };
        let held = self.held_by(leader) + 1;
        let voters: Vec<_> =
            self.voters().into_iter().filter(|voter| self.takes_part(voter)).cloned().collect();
        let needed = children::quorum(self.voters().len());
        let (mut others, mut written): (Vec<_>, _) =
            (voters.into_iter().filter(|voter| voter.id != leader).collect(), 1);
        self.put(leader, held);
        while let Some(voter) = others.pop() {
            let is_needed = written + others.len() < needed;
            if is_needed || random.random_bool(0.6) {
                self.put(voter.id, held);
                written += 1;
            }
        }
        self.acknowledged += 1;
    }

    fn held_by(&self, id: Id) -> u64 {
        let disks = self.volumes.values().filter_map(|(_, disk)| disk.log);
        disks.filter(|(member, _)| *member == id.0).map(|(_, held)| held).max().unwrap_or_default()
    }

    fn put(&mut self, id: Id, held: u64) {
        let Some(listed) = self.list.iter().find(|listed| listed.id == id) else { return };
        let name = member_of(listed).unwrap();
        if let Some((_, disk)) = self.volumes.get_mut(&name) {
            disk.log = Some((id.0, held));
        }
    }

    /// Somebody makes a backup of all that is acknowledged.
    fn back_up(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.backup = Some(self.held_by(leader));
        let member = self.list.iter().find(|listed| listed.id == leader).and_then(member_of);
        self.backed_up_by = member.and_then(|member| Some(self.pods.get(&member)?.version));
    }

    /// Everybody who takes part catches up with the leader.
    fn replicate(&mut self) {
        let Some(leader) = self.leader() else { return };
        let held = self.held_by(leader);
        let parts: Vec<_> =
            self.list.iter().filter(|listed| self.takes_part(listed)).map(|listed| listed.id).collect();
        parts.into_iter().for_each(|id| self.put(id, held));
    }

    /// The members with a quorum among them hold every acknowledged write.
    pub fn check_nothing_is_lost(&self) {
        let Some(leader) = self.leader() else { return };
        assert_eq!(
            self.held_by(leader),
            self.acknowledged,
            "acknowledged writes are lost: {:#?}",
            self.story
        );
    }

    /// kubelets and supervisors do what they do.
    pub fn run_pods(&mut self, random: &mut SmallRng) {
        self.now = self.now.saturating_add(std::time::Duration::from_secs(1)).unwrap();
        self.pods.retain(|_, pod| !pod.reference.terminating || pod.cut_off || random.random_bool(0.5));
        self.forget_what_was_in_pods();
        let names: Vec<_> = self.pods.keys().cloned().collect();
        for name in names {
            self.run_pod(&name, random);
        }
        for late in std::mem::take(&mut self.late) {
            if self.has_quorum() {
                self.add(&late, &url(&self.cluster, &late));
            }
        }
        self.replicate();
        self.watch_versions(random);
    }

    fn run_pod(&mut self, name: &str, random: &mut SmallRng) {
        let Some(pod) = self.pods.get(name).filter(|pod| pod.has_node) else { return };
        // Supervisors keep their records saying who they are.
        if let Some((id, _)) = self.disk(name).and_then(|disk| disk.log).filter(|_| pod.runs && !pod.cut_off)
        {
            let uid = pod.reference.uid.clone();
            self.serve(name, &uid, id, random.random_bool(0.2));
            if self.is_defragmenting(name) && random.random_bool(0.3) {
                self.defragment(name, &uid);
            }
            return;
        }
        let (uid, has_volume) = (pod.reference.uid.clone(), self.volumes.contains_key(name));
        if pod.finished || pod.runs || pod.cut_off || pod.reference.terminating || !has_volume {
            return;
        }
        let mark = Mark {
            cluster_uid: "cluster".to_owned(),
            member: name.to_owned(),
            identity: None,
            version: None,
        };
        let log = self.disk(name).and_then(|disk| disk.log);
        let folder = if log.is_some() { Folder::Ours(mark) } else { Folder::Empty };
        let record = self.records.get(name).map(|record| {
            let mut object = EtcdMember::new(name, record.spec.clone());
            object.status = Some(record.status.clone());
            object
        });
        let current = self.incarnation();
        let status = self.cluster.status.as_ref().filter(|status| status.incarnation == current);
        let cluster = ClusterSeen {
            incarnation: current,
            seed: self.cluster.annotations().get(SEED).cloned(),
            has_id: status.is_some_and(|status| status.cluster_id.is_some()),
        };
        let said = word(&folder, record.as_ref(), Some(&cluster));
        // It says that it begins, and dies before it does.
        if matches!(said, Word::Begin(_)) && random.random_bool(0.05) {
            self.story.push(format!("{name} dies as it begins"));
            return self.say(name, &uid, |status| status.began = true);
        }
        let id = match said {
            Word::GoOn if self.pods[name].version.minor > 6 && self.volumes[name].1.has_old_entries => {
                self.story.push(format!("{name} does not start 3.7 with its log"));
                return self.say(name, &uid, |status| {
                    (status.data, status.old_entries) = (Some(Data::Present), Some(true));
                });
            }
            Word::GoOn if !self.can_start(name) => return,
            Word::GoOn => log.unwrap().0,
            Word::Begin(Beginning::NewCluster) => self.begin_incarnation(name, 0),
            Word::Begin(Beginning::Anew(source)) => {
                let prepared = self.disk(name).and_then(|disk| disk.prepared);
                let Some(held) = prepared.or_else(|| self.content_of(&source)) else { return };
                self.check_it_reads(name, &source);
                let id = self.begin_incarnation(name, held);
                if let Some((_, disk)) = self.volumes.get_mut(name) {
                    (disk.log, disk.prepared, disk.has_old_entries) = (Some((id, held)), None, false);
                }
                id
            }
            Word::Prepare(source) => {
                let held = self.content_of(&source).filter(|_| random.random_bool(0.5));
                if let (Some(held), Some((_, disk))) = (held, self.volumes.get_mut(name)) {
                    disk.prepared = Some(held);
                }
                let is_ready = self.disk(name).is_some_and(|disk| disk.prepared.is_some());
                let data = if is_ready { Data::Prepared } else { Data::Empty };
                return self.say(name, &uid, |status| status.data = Some(data));
            }
            // etcd says that it does not fit, and ends.
            Word::Begin(Beginning::Join(_)) if self.way_back.is_some() || !self.can_start(name) => {
                self.story.push(format!("{name} does not fit"));
                return self.say(name, &uid, |status| status.began = true);
            }
            Word::Begin(Beginning::Join(_)) => {
                match self.list.iter_mut().find(|listed| listed.peer_urls == [url(&self.cluster, name)]) {
                    Some(listed) => {
                        listed.name = name.to_owned();
                        listed.id.0
                    }
                    // It was removed meanwhile: etcd says so and ends.
                    None => return self.say(name, &uid, |status| status.began = true),
                }
            }
            Word::Wait(_) => return self.say(name, &uid, |status| status.data = Some(Data::Empty)),
            Word::Refuse(data, _) => return self.say(name, &uid, |status| status.data = Some(data)),
        };
        let (works_as, version) = (self.works_as, self.pods[name].version);
        self.story.push(format!("{name} runs {version} as {id:x}"));
        if let Some((_, disk)) = self.volumes.get_mut(name) {
            disk.log.get_or_insert_with(|| {
                disk.storage = works_as;
                (id, 0)
            });
        }
        if let Some(pod) = self.pods.get_mut(name) {
            (pod.runs, pod.has_run, pod.serves) = (true, true, false);
        }
        self.write_old_entries(name);
        self.serve(name, &uid, id, true);
    }

    /// Who starts tells the others what it is called: until 3.6, and while the cluster works as 3.5, in words that 3.7 cannot
    /// read. Who joins gets what is in the log of the others.
    fn write_old_entries(&mut self, name: &str) {
        let is_old = self.pods[name].version.minor < 6 || self.works_as < 6;
        let members: Vec<_> = self.list.iter().filter_map(member_of).collect();
        let of_others = members
            .iter()
            .any(|member| member != name && self.disk(member).is_some_and(|disk| disk.has_old_entries));
        for member in members {
            let Some((_, disk)) = self.volumes.get_mut(&member) else { continue };
            let has_just_joined = member == name && disk.log.is_some_and(|(_, held)| held == 0);
            disk.has_old_entries |= (is_old && disk.log.is_some()) || (has_just_joined && of_others);
        }
    }

    /// Once etcd has found a quorum it serves clients, its supervisor among them, who then says who it is.
    fn serve(&mut self, name: &str, uid: &str, id: u64, looks: bool) {
        let finds_quorum = self.has_quorum();
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.serves |= finds_quorum;
        if pod.serves {
            self.say_who_it_is(name, uid, id, looks);
        }
    }

    /// A cluster begins, with this member: once an incarnation, and beside nobody of another.
    fn begin_incarnation(&mut self, name: &str, held: u64) -> u64 {
        let number = self.incarnation();
        assert!(
            self.incarnations_begun.insert(number),
            "incarnation {number} begins again: {:#?}",
            self.story
        );
        // Who never began may be listed, and can do nothing.
        let was_member = |name: &String| {
            let is_it = |listed: &&Listed| member_of(listed).as_ref() == Some(name);
            self.list.iter().find(is_it).is_some_and(|listed| self.has_log(listed))
        };
        let is_former = |(name, pod): &(&String, &Pod)| {
            pod.incarnation < number && (pod.gone_by.is_none() || was_member(name))
        };
        let former: Vec<_> = self.pods.iter().filter(is_former).collect();
        assert!(former.is_empty(), "{former:?} are there yet: {:#?}", self.story);
        self.acknowledged = held;
        self.works_as = self.pods[name].version.minor;
        self.way_back = None;
        self.next_id += 1;
        let id = Id(self.next_id);
        self.list = vec![Listed {
            id,
            name: name.to_owned(),
            peer_urls: vec![url(&self.cluster, name)],
            is_learner: false,
        }];
        id.0
    }

    fn defragment(&mut self, name: &str, pod: &str) {
        let wish = self.records.get(name).and_then(|record| record.spec.defragment.clone());
        let (Some((_, disk)), Some(wish)) = (self.volumes.get_mut(name), wish) else { return };
        disk.is_fragmented = false;
        let (before, after) = (Size(200 << 20), Size(50 << 20));
        let done = Defragmented { asked: wish.asked, before, after, problem: String::new() };
        self.say(name, pod, |status| status.defragmented = Some(done));
    }

    /// What is in its log a supervisor looks at as it starts, and then from time to time.
    fn say_who_it_is(&mut self, name: &str, pod: &str, id: u64, looks: bool) {
        let incarnation = self.pods.get(name).map_or(0, |pod| pod.incarnation);
        let runs = |minor: u32| self.pods.get(name).is_some_and(|pod| pod.version.minor == minor);
        let tells_of_its_log = runs(6);
        let has_old_entries = self.disk(name).is_some_and(|disk| disk.has_old_entries);
        self.say(name, pod, |status| {
            if !tells_of_its_log || status.old_entries.is_none() || status.pod != pod || looks {
                status.old_entries = tells_of_its_log.then_some(has_old_entries);
            }
            status.began = true;
            status.data = Some(Data::Present);
            status.member_id = Some(Id(id));
            status.cluster_id = Some(cluster_id(incarnation));
        });
    }

    fn say(&mut self, name: &str, pod: &str, change: impl FnOnce(&mut EtcdMemberStatus)) {
        if let Some(record) = self.records.get_mut(name) {
            let before = record.status.clone();
            change(&mut record.status);
            record.status.pod = pod.to_owned();
            if record.status != before {
                touch(&mut record.reference);
            }
        }
    }

    /// Something goes wrong. Never so much that a quorum of the data is gone for good, unless people want the cluster
    /// to begin anew then, and there is something to begin from.
    pub fn disturb(&mut self, random: &mut SmallRng) {
        let names: Vec<_> = self.pods.keys().cloned().collect();
        let Some(name) = names.get(random.random_range(0..names.len().max(1))).cloned() else { return };
        let what = random.random_range(0..15);
        let word = [
            "is killed",
            "loses its pod",
            "fails",
            "is wiped",
            "is cut off",
            "is healed",
            "loses its record",
            "",
            "",
            "is fragmented",
            "",
            "",
            "",
            "",
            "",
        ];
        let is_let_be =
            (what == 6 && !self.has_quorum()) || (!word[what].is_empty() && self.is_out_of_reach(&name));
        if !word[what].is_empty() && !is_let_be {
            self.story.push(format!("{name} {}", word[what]));
        }
        match what {
            // Whether who has no record was a member, only a quorum can tell: without one a person is asked.
            _ if is_let_be => {}
            1 | 2 if !self.can_spare_the_pod_of(&name) => {}
            8 if self.keeps_data_in_pods() => {
                self.cluster.spec.options.snapshot_count = Some(random.random_range(5000..5003));
                self.story.push("other options are wanted".to_owned());
            }
            0 => self.pods.get_mut(&name).unwrap().runs = false,
            1 => {
                let pod = self.pods.get_mut(&name).unwrap();
                (pod.reference.terminating, pod.gone_by, pod.runs) = (true, Some(self.now), false);
                self.lose_what_was_in_the_pod_of(&name);
            }
            2 => {
                let pod = self.pods.get_mut(&name).unwrap();
                (pod.finished, pod.runs) = (true, false);
                self.lose_what_was_in_the_pod_of(&name);
            }
            3 => self.wipe(&name, random),
            4 => self.pods.get_mut(&name).unwrap().cut_off = true,
            5 => self.heal(),
            6 => drop(self.records.remove(&name)),
            7 => {
                let size = random.random_range(1..=5);
                self.story.push(format!("{size} are wanted"));
                self.cluster.spec.size = size;
            }
            8 => self.wish_for_a_version(random),
            9 => drop(self.volumes.get_mut(&name).map(|(_, disk)| disk.is_fragmented = true)),
            10 => {
                self.cluster.spec.storage.size = "16Gi".to_owned();
                self.story.push("larger volumes are wanted".to_owned());
            }
            11 => self.back_up(),
            12 => self.ask_for_a_restore(random),
            13 if !self.can_do_without_the_node_of(&name) => {}
            13 => self.lose_the_node_of(&name),
            _ => {
                self.now = self.now.saturating_add(std::time::Duration::from_secs(400)).unwrap();
                self.story.push("time passes".to_owned());
            }
        }
    }

    /// As far as it would be let in.
    pub fn wish_for_a_version(&mut self, random: &mut SmallRng) {
        let version = TESTED[random.random_range(0..TESTED.len())];
        let current = self.cluster.status.as_ref().and_then(|status| status.current_version.parse().ok());
        let is_let_in = current.is_none_or(|current: Version| {
            version.minor.abs_diff(current.minor) <= 1
                && (version.minor >= current.minor || current.has_a_way_back())
        });
        if is_let_in {
            self.story.push(format!("{version} is wanted"));
            self.cluster.spec.version = version.to_string();
        }
    }

    fn wipe(&mut self, name: &str, random: &mut SmallRng) {
        let mut without = self.clone();
        if let Some((_, disk)) = without.volumes.get_mut(name) {
            disk.log = None;
        }
        if let Some(pod) = without.pods.get_mut(name) {
            pod.runs = false;
        }
        if random.random_bool(0.3) {
            without.pods.remove(name);
            without.volumes.remove(name);
        }
        // A seed that has served nobody may be wiped, too.
        let served_nobody = self.list.is_empty() && self.incarnation() == 0;
        let is_wanted_anew =
            self.cluster.spec.recovery.quorum_loss == QuorumLoss::Restore && self.has_begun();
        // Nobody can tell what is where nobody gets to: a person decides then.
        let is_all_known = !self.pods.values().any(|pod| pod.node_is_gone);
        // Where only a learner is left a person decides, too.
        let has_learner = without.list.iter().any(|listed| listed.is_learner);
        let is_something_left = (without.backup.is_some() && !has_learner)
            || without.voters().iter().any(|voter| without.has_log(voter));
        // Nobody would know whether one that was being removed still counts: a person decides then.
        let is_in_limbo = |record: &Record| {
            let is_listed = self
                .list
                .iter()
                .any(|listed| listed.peer_urls == [url(&self.cluster, &record.reference.name)]);
            // A record that was lost and written again does not say that it began.
            let has_been_one = record.status.began
                || self.disk(&record.reference.name).is_some_and(|disk| disk.log.is_some());
            record.spec.intent == Intent::Leaving && has_been_one && !is_listed
        };
        let is_clear = !self.records.values().any(is_in_limbo);
        let can_begin_anew = is_wanted_anew && is_all_known && is_something_left && is_clear;
        if served_nobody || without.keeps_quorum() || can_begin_anew {
            *self = without;
        }
    }

    fn has_log(&self, listed: &Listed) -> bool {
        let name = member_of(listed).unwrap_or_default();
        self.disk(&name).is_some_and(|disk| disk.log.is_some_and(|(id, _)| id == listed.id.0))
    }

    /// Somebody asks for the latest backup, or takes back what was asked for.
    fn ask_for_a_restore(&mut self, random: &mut SmallRng) {
        if random.random_bool(0.3) {
            self.story.push("no restore is asked for".to_owned());
            self.cluster.annotations_mut().remove(RESTORE);
            self.touch_cluster();
        } else {
            self.ask_for_the_backup(random.random_bool(0.7));
        }
    }

    /// Somebody asks for the latest backup, if there is one.
    pub fn ask_for_the_backup(&mut self, in_place: bool) {
        let Some(held) = self.backup else { return };
        self.next_uid += 1;
        let request = RestoreFrom {
            name: "restore".to_owned(),
            uid: format!("uid-{}", self.next_uid),
            place: place(held),
            sha256: checksum(held, self.backed_up_by),
            revision: i64::try_from(held).unwrap(),
            etcd_version: self.backed_up_by,
            in_place,
        };
        let whatever = if in_place { ", whatever there is" } else { "" };
        self.story.push(format!("the backup of {held} is asked for{whatever}"));
        let text = serde_json::to_string(&request).unwrap();
        self.cluster.annotations_mut().insert(RESTORE.to_owned(), text);
        self.touch_cluster();
    }

    pub fn heal(&mut self) {
        self.pods.values_mut().for_each(|pod| pod.cut_off = pod.node_is_gone);
    }

    /// The node of a pod goes, and does not come back: nobody tells what runs there.
    pub fn lose_the_node_of(&mut self, name: &str) {
        let now = self.now;
        let pod = self.pods.get_mut(name).unwrap();
        (pod.cut_off, pod.node_is_gone) = (true, true);
        pod.reference.terminating = true;
        pod.gone_by.get_or_insert(now);
        self.story.push(format!("the node of {name} is gone"));
    }

    /// Whether the node of that pod is gone for good.
    pub fn is_out_of_reach(&self, name: &str) -> bool {
        self.pods.get(name).is_some_and(|pod| pod.node_is_gone)
    }

    /// How many records, pods and volumes of this incarnation are where somebody can reach them.
    pub fn within_reach(&self) -> [usize; 3] {
        let is_in_use = |(name, (_, disk)): &(&String, &(Reference, Disk))| {
            disk.incarnation == self.incarnation() && !self.is_out_of_reach(name)
        };
        let records = self.records.keys().filter(|name| !self.is_out_of_reach(name)).count();
        let pods = self.pods.values().filter(|pod| !pod.node_is_gone).count();
        [records, pods, self.volumes.iter().filter(is_in_use).count()]
    }

    /// Whether the others have a quorum, now and for good, if a node goes. Where a cluster begins anew in any case, or has its data in pods,
    /// it stays.
    fn can_do_without_the_node_of(&self, name: &str) -> bool {
        let mut without = self.clone();
        without.lose_the_node_of(name);
        let is_alone = !self.pods.values().any(|pod| pod.node_is_gone);
        is_alone
            && !self.keeps_data_in_pods()
            && self.has_begun()
            && without.has_quorum()
            && without.keeps_quorum()
    }

    /// Whether the data that was acknowledged is with a quorum on nodes that there are.
    fn keeps_quorum(&self) -> bool {
        let voters = self.voters();
        let is_there = |listed: &&&Listed| {
            self.has_log(listed) && !self.is_out_of_reach(&member_of(listed).unwrap_or_default())
        };
        voters.iter().filter(is_there).count() >= children::quorum(voters.len())
    }
}

/// What etcd calls an incarnation.
fn cluster_id(incarnation: u32) -> Id {
    Id(u64::from(incarnation) + 1)
}

/// Where a backup is.
fn place(held: u64) -> Place {
    Place::Volume(VolumePlace { claim: "backups".to_owned(), path: held.to_string() })
}

/// What stands for the checksum of a backup: what it holds, and the etcd that it was taken from.
fn checksum(held: u64, by: Option<Version>) -> String {
    by.map_or_else(|| held.to_string(), |by| format!("{held} {by}"))
}

fn taken(checksum: &str) -> (u64, Option<Version>) {
    let mut words = checksum.split(' ');
    (words.next().unwrap().parse().unwrap(), words.next().map(|by| by.parse().unwrap()))
}

fn incarnation_in(content: &Value) -> u32 {
    content["metadata"]["labels"][children::INCARNATION_LABEL]
        .as_str()
        .map_or(0, |text| text.parse().unwrap())
}

fn touch(reference: &mut Reference) {
    let version: u64 = reference.resource_version.parse().unwrap();
    reference.resource_version = (version + 1).to_string();
}

/// The name of a member, from where the others reach it.
fn member_of(listed: &Listed) -> Option<String> {
    listed.peer_urls.first()?.split_once("://")?.1.split('.').next().map(str::to_owned)
}
