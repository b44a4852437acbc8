//! What was seen of a cluster, put together by member. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use wheelhouse::Known;

use crate::{
    api::{Data, INCARNATION, Intent, SEED, backup::RestoreFrom},
    asking::{Answer, Listed},
    children::{self, member_name, ordinal_in, quorum},
    etcd::Id,
    incarnation::{self, Incarnation, Source},
    observe::{PodSeen, RecordSeen, Seen, VolumeSeen},
    positions::Position,
    tls::{Scheme, Wanted},
    version::Version,
};

/// All that is known of one member.
#[derive(Clone, Debug, Default)]
pub struct Member<'a> {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its record.
    pub record: Option<&'a RecordSeen>,
    /// Its pod.
    pub pod: Option<&'a PodSeen>,
    /// Its volume.
    pub volume: Option<&'a VolumeSeen>,
    /// What etcd's list says of it, if a quorum confirmed one.
    pub listed: Option<&'a Listed>,
    /// Whether its data is in its pod, and goes with it.
    keeps_data_in_pod: bool,
}

impl<'a> Member<'a> {
    /// What etcd in its pod says.
    pub fn answer(&self) -> Option<&'a Answer> {
        self.pod.and_then(|pod| pod.etcd.value())
    }

    /// Whether it answers as itself and knows a leader: then it is a member, whatever a list says.
    pub fn follows(&self) -> bool {
        let is_itself = |id: Id| !self.record.is_some_and(|record| record.is_another(id));
        self.answer().is_some_and(|answer| answer.leader.is_some() && is_itself(answer.member))
    }

    /// How far it is, if it is known to follow nobody: etcd says so itself or, where it serves no client yet, its
    /// supervisor does.
    pub fn stranded_at(&self) -> Option<Position> {
        let pod = self.pod?;
        match self.answer() {
            // At an address there can be another member by now.
            Some(answer) if self.record.is_some_and(|record| record.is_another(answer.member)) => None,
            Some(answer) => pod.position.filter(|_| answer.leader.is_none()),
            None => pod.standing.value().copied(),
        }
    }

    /// Whether it is not to be a member any more.
    pub fn is_to_go(&self) -> bool {
        self.intent().is_some_and(Intent::is_to_go)
    }

    /// What is intended of it.
    pub fn intent(&self) -> Option<Intent> {
        self.record.map(|record| record.spec.intent)
    }

    /// Whether etcd lists it with a vote, and it answers and knows a leader, and is not about to go.
    pub fn is_healthy(&self) -> bool {
        let stays = self.pod.is_some_and(|pod| !pod.reference.terminating);
        match (self.listed, self.answer()) {
            (Some(listed), Some(answer)) => {
                stays && answer.member == listed.id && answer.leader.is_some() && !listed.is_learner
            }
            _ => false,
        }
    }

    /// Whether its data is known to be gone or of no use. Who answers has it.
    pub fn is_lost(&self) -> bool {
        let Some(record) = self.record else { return false };
        if self.answer().is_some() || self.stranded_at().is_some() {
            return false;
        }
        match record.status.data {
            Some(Data::Lost | Data::Corrupt | Data::Foreign) => true,
            _ if !record.status.began => false,
            _ if self.keeps_data_in_pod => self.pod.is_none_or(PodSeen::is_finished),
            _ => self.volume.is_none(),
        }
    }

    /// Whether it lost what it never had: etcd ended before it had said who it is.
    pub fn is_lost_before_it_was_anybody(&self) -> bool {
        self.is_lost() && self.record.is_some_and(|record| record.status.member_id.is_none())
    }

    /// Why its data is lost, in words.
    pub fn loss(&self) -> String {
        match self.record {
            Some(_) if self.is_lost_before_it_was_anybody() => {
                "etcd ended before it wrote anything: its log says why".to_owned()
            }
            Some(record) if !record.status.message.is_empty() && record.status.data != Some(Data::Empty) => {
                record.status.message.clone()
            }
            _ if self.keeps_data_in_pod => "its data went with its pod".to_owned(),
            _ => "its volume is gone".to_owned(),
        }
    }

    /// Whether it is to be a member: it has a record, is not on its way out, and has what it needs.
    pub fn is_kept(&self) -> bool {
        self.intent().is_some_and(|intent| !intent.is_to_go()) && !self.is_lost()
    }

    /// Whether its record, or one that was written again, says that it began.
    pub fn began(&self) -> bool {
        self.record.is_some_and(|record| record.status.began || record.spec.intent == Intent::Existing)
    }

    /// Whether it has begun, and is not known to have nothing. It may have served by now, whoever has heard of that.
    pub fn may_have_served(&self) -> bool {
        self.began() && self.record.is_some_and(|record| record.status.data != Some(Data::Lost))
    }

    /// Whether there is something of it that nobody tells of: its record is gone.
    pub fn is_a_riddle(&self) -> bool {
        self.record.is_none() && (self.pod.is_some() || self.volume.is_some())
    }

    /// Whether etcd was never asked to add it.
    pub fn only_waits(&self) -> bool {
        let began = self.record.is_some_and(|record| record.status.began);
        self.intent() == Some(Intent::Waiting) && !began && self.listed.is_none()
    }

    /// Whether it has data, or may have.
    pub fn has_begun(&self) -> bool {
        let has = |record: &RecordSeen| record.status.began || record.spec.intent == Intent::Existing;
        self.listed.is_some() || self.record.is_none_or(has)
    }

    /// The version that its next pod is to run.
    pub fn intended_version(&self) -> Option<Version> {
        self.record.and_then(|record| record.spec.version)
    }

    /// The version that it runs; or, if its pod is gone or going, that its next one is to run.
    pub fn version(&self) -> Option<Version> {
        let of_pod = |pod: &PodSeen| pod.version;
        let runs = self.pod.filter(|pod| !pod.reference.terminating).and_then(of_pod);
        runs.or_else(|| self.intended_version()).or_else(|| self.pod.and_then(of_pod))
    }

    /// Whether its supervisor has said that it is ready to begin.
    pub fn can_begin(&self) -> bool {
        self.waits_with(Data::Empty)
    }

    /// Whether its supervisor has said that what it is to begin from lies ready.
    pub fn is_prepared(&self) -> bool {
        self.waits_with(Data::Prepared)
    }

    fn waits_with(&self, data: Data) -> bool {
        let Some((record, pod)) = self.record.zip(self.pod) else { return false };
        record.status.data == Some(data)
            && !record.status.began
            && record.status.pod == pod.reference.uid
            && pod.address.is_some()
            && !pod.reference.terminating
    }

    /// From what it is to begin, if it is to begin an incarnation.
    pub fn source(&self) -> Option<&'a Source> {
        self.record.and_then(|record| record.spec.source.as_ref())
    }

    /// The incarnation that it is a member of: whatever is there of it says so.
    fn incarnation(&self) -> Option<u32> {
        let record = self.record.map(|record| record.spec.incarnation);
        record.or(self.pod.map(|pod| pod.incarnation)).or(self.volume.map(|volume| volume.incarnation))
    }
}

/// What was seen, by member.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// All of it.
    pub seen: &'a Seen,
    /// The name of the cluster.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The incarnation that there is.
    pub incarnation: Incarnation,
    /// The restore that is asked for and has not begun.
    pub request: Option<RestoreFrom>,
    /// Why nobody can tell which incarnation there is, or is asked for.
    pub confusion: Option<String>,
    /// Our members, by number.
    pub members: Vec<Member<'a>>,
    /// What is left of members of incarnations that have ended.
    pub former: Vec<Member<'a>>,
    /// Members of one that has not begun.
    pub coming: Vec<Member<'a>>,
    /// Who the members are, if a quorum confirmed it.
    pub list: Option<&'a [Listed]>,
    /// Members that this operator did not make.
    pub strangers: Vec<&'a Listed>,
    /// How many there are to be.
    pub size: usize,
    /// With what they speak TLS, if they do.
    pub tls: Wanted,
}

impl<'a> View<'a> {
    /// What was seen, by member.
    pub fn of(seen: &'a Seen) -> Self {
        let name = seen.cluster.name_any();
        let namespace = seen.cluster.namespace().unwrap_or_default();
        let list = seen.members.value().map(Vec::as_slice);
        let mut members: BTreeMap<u32, Member<'a>> = BTreeMap::new();
        let keeps_data_in_pod = seen.cluster.spec.storage.empty_dir;
        let mut of = |ordinal: u32, put: &mut dyn FnMut(&mut Member<'a>)| {
            let name = member_name(&name, ordinal);
            let new = || Member { ordinal, name, keeps_data_in_pod, ..Member::default() };
            put(members.entry(ordinal).or_insert_with(new));
        };
        for record in &seen.records {
            of(record.spec.ordinal, &mut |member| member.record = Some(record));
        }
        for pod in &seen.pods {
            if let Some(ordinal) = ordinal_in(&name, &pod.reference.name) {
                of(ordinal, &mut |member| member.pod = Some(pod));
            }
        }
        for volume in seen.volumes.iter().filter(|volume| volume.is_ours) {
            if let Some(ordinal) = ordinal_in(&name, &volume.reference.name) {
                of(ordinal, &mut |member| member.volume = Some(volume));
            }
        }
        let tls = Wanted::by(&seen.cluster);
        let mut strangers = Vec::new();
        for listed in list.unwrap_or_default() {
            match ordinal_of(tls.peers(), &name, &namespace, listed) {
                Some(ordinal) => of(ordinal, &mut |member| member.listed = Some(listed)),
                None => strangers.push(listed),
            }
        }
        let incarnation = incarnation::of(&seen.cluster);
        let request =
            incarnation.as_ref().map_or(Ok(None), |current| incarnation::request(&seen.cluster, current));
        let confusion = incarnation.as_ref().err().or(request.as_ref().err()).cloned();
        let number = incarnation
            .as_ref()
            .map_or_else(|_| incarnation::told(&seen.cluster), |incarnation| incarnation.number);
        let incarnation = incarnation.unwrap_or(Incarnation { number, ..Incarnation::default() });
        let holds_data = incarnation::holds_data(&seen.cluster, &seen.records, &incarnation);
        // What there was before it was asked stays, unless people have said that it may go.
        let request = request.unwrap_or_default().filter(|request| request.in_place || !holds_data);
        let of = |member: &Member<'_>| member.incarnation().unwrap_or(number);
        let (former, others): (Vec<_>, Vec<_>) =
            members.into_values().partition(|member| of(member) < number);
        let (coming, members): (Vec<_>, _) = others.into_iter().partition(|member| of(member) > number);
        // Who is to come has begun nothing. Whoever has is of the incarnation that there really is.
        let ahead = coming.iter().find(|member| member.began()).map(|member| {
            format!(
                "{} has begun as a member of incarnation {}, and the annotation {INCARNATION} says {number}: put back what it said",
                member.name,
                of(member)
            )
        });
        let confusion = confusion.or(ahead);
        let size = usize::try_from(seen.cluster.spec.size).unwrap_or(1).max(1);
        Self {
            seen,
            name,
            namespace,
            incarnation,
            request,
            confusion,
            members,
            former,
            coming,
            list,
            strangers,
            size,
            tls,
        }
    }

    /// Whether a pod of an incarnation that has ended is there: nobody begins beside it.
    pub fn waits_for_former_pods(&self) -> bool {
        self.former_pods().next().is_some()
    }

    /// The pods of incarnations that have ended which are waited for.
    pub fn former_pods(&self) -> impl Iterator<Item = &'a PodSeen> {
        self.former.iter().filter(|member| !self.is_passed_over(member)).filter_map(|member| member.pod)
    }

    /// A member whose pod was to be gone, and is not, though nobody can begin anew beside it: its node is gone, and nobody tells.
    pub fn stuck(&self) -> Option<&Member<'a>> {
        self.members.iter().find(|member| self.is_overdue(member) && !self.is_passed_over(member))
    }

    fn is_overdue(&self, member: &Member<'_>) -> bool {
        member.pod.and_then(|pod| pod.gone_by).is_some_and(|by| by <= self.seen.now)
    }

    /// Whether a pod that does not go is nobody's trouble, wherever it is: a quorum has removed its member, or that never began, and
    /// cannot any more, as its record says. Whom etcd lists is somebody, whatever a record says that was lost and written again.
    fn is_passed_over(&self, member: &Member<'_>) -> bool {
        let is_nobody = |record: &RecordSeen| {
            record.spec.intent == Intent::Left || (record.spec.intent.is_to_go() && !record.status.began)
        };
        self.is_overdue(member) && member.listed.is_none() && member.record.is_some_and(is_nobody)
    }

    /// How many members there are to be by now. An incarnation that has yet to begin has only its seed; a new
    /// cluster that is to begin from a backup has nobody but the one that comes.
    pub fn target(&self) -> usize {
        match () {
            () if self.has_begun() => self.size,
            () if self.incarnation.number > 0 => 1,
            () if self.request.is_some() && self.members.is_empty() => 0,
            () => self.size,
        }
    }

    /// From what the seed of this incarnation begins.
    pub fn source(&self) -> Option<&Source> {
        self.incarnation.source.as_ref().filter(|_| !self.has_begun())
    }

    /// Whether a member is known to be none: a list says so; or the cluster has not begun, and will
    /// not begin with it.
    pub fn is_out(&self, member: &Member<'_>) -> bool {
        let never_was = !self.has_begun() && self.seed() != Some(member.name.as_str());
        member.listed.is_none() && (self.list.is_some() || never_was)
    }

    /// Whether nobody can tell who the members are; not just that the answer is still to come.
    pub fn is_without_a_list(&self) -> bool {
        self.list.is_none() && !self.seen.members.is_not_asked_yet()
    }

    /// For how long a member has been there.
    pub fn age(&self, record: &RecordSeen) -> i64 {
        self.seen.now.duration_since(record.created).as_secs()
    }

    /// After how long people want a member to be given up, in seconds.
    pub fn patience(&self) -> i64 {
        self.seen.cluster.spec.recovery.replace_after_seconds
    }

    /// Whether the cluster was ever there: then it never begins anew.
    pub fn has_begun(&self) -> bool {
        self.cluster_id().is_some()
    }

    /// What etcd calls the cluster.
    pub fn cluster_id(&self) -> Option<Id> {
        incarnation::cluster_id(&self.seen.cluster, &self.seen.records, self.incarnation.number)
    }

    /// The member that the cluster begins with, as the annotation says.
    pub fn seed(&self) -> Option<&str> {
        self.seen.cluster.annotations().get(SEED).map(String::as_str)
    }

    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&Member<'a>> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The next number that nobody had.
    pub fn next_ordinal(&self) -> u32 {
        let used = self.last_ordinal();
        used.map_or(0, |ordinal| ordinal + 1)
    }

    /// The last number that somebody had: in this cluster, or as a volume of a former one.
    pub fn last_ordinal(&self) -> Option<u32> {
        let told = self.seen.cluster.status.as_ref().and_then(|status| status.last_ordinal);
        let all = self.members.iter().chain(&self.former).chain(&self.coming);
        let here = all.map(|member| member.ordinal);
        let volumes = self.seen.volumes.iter();
        let former = volumes.filter_map(|volume| ordinal_in(&self.name, &volume.reference.name));
        here.chain(former).chain(told).max()
    }

    /// Members with a vote, ours or not.
    pub fn voters(&self) -> impl Iterator<Item = &'a Listed> {
        self.list.unwrap_or_default().iter().filter(|listed| !listed.is_learner)
    }

    /// How many members have a vote; as far as was last known of this incarnation. Another one than the first
    /// begins with one.
    pub fn voter_count(&self) -> usize {
        let known =
            self.seen.cluster.status.as_ref().filter(|told| told.incarnation == self.incarnation.number);
        let told = known.and_then(|told| usize::try_from(told.size).ok());
        let begins_with = usize::from(self.incarnation.number > 0);
        self.list.map_or(told.unwrap_or(begins_with), |_| self.voters().count())
    }

    /// Whether anybody learns, ours or not.
    pub fn has_learner(&self) -> bool {
        self.list.unwrap_or_default().iter().any(|listed| listed.is_learner)
    }

    /// The learner, if there is one of ours.
    pub fn learner(&self) -> Option<&Member<'a>> {
        self.members.iter().find(|member| member.listed.is_some_and(|listed| listed.is_learner))
    }

    /// Whether a member of that ID is healthy.
    pub fn is_healthy(&self, id: Id) -> bool {
        let same = |member: &&Member<'a>| member.listed.is_some_and(|listed| listed.id == id);
        self.members.iter().find(same).is_some_and(Member::is_healthy)
    }

    /// Whether all that vote are well.
    pub fn all_voters_are_healthy(&self) -> bool {
        self.list.is_some() && self.voters().all(|voter| self.is_healthy(voter.id))
    }

    /// Whether those that would be left without this one have a quorum, of themselves and among
    /// themselves.
    pub fn others_hold_quorum(&self, without: Id) -> bool {
        if self.list.is_none() {
            return false;
        }
        let left: Vec<_> = self.voters().filter(|voter| voter.id != without).collect();
        let healthy = left.iter().filter(|voter| self.is_healthy(voter.id)).count();
        !left.is_empty() && healthy >= quorum(left.len())
    }

    /// Whom the members follow.
    pub fn leader(&self) -> Option<Id> {
        let healthy = self.members.iter().filter(|member| member.is_healthy());
        healthy.filter_map(|member| member.answer()?.leader).next()
    }

    /// Where to ask etcd.
    pub fn addresses(&self) -> Vec<String> {
        let answering = self.members.iter().filter(|member| member.answer().is_some());
        answering.filter_map(|member| member.pod?.address.clone()).collect()
    }

    /// The versions that members with data are to run, the oldest and the newest. As far as was last known, if
    /// there is none.
    pub fn versions(&self) -> Option<(Version, Version)> {
        let begun = || self.members.iter().filter(|member| member.is_kept() && member.has_begun());
        let versions = || begun().filter_map(Member::version);
        let told = self.seen.cluster.status.as_ref().and_then(|status| status.current_version.parse().ok());
        Some((versions().min().or(told)?, versions().max().or(told)?))
    }

    /// The version that people want.
    pub fn wanted_version(&self) -> Option<Version> {
        self.seen.cluster.spec.version.parse().ok()
    }

    /// The version that members with data are to run next.
    pub fn next_version(&self) -> Option<Version> {
        let wanted = self.wanted_version()?;
        Some(self.versions().map_or(wanted, |(oldest, newest)| wanted.next_on_the_way_from(oldest, newest)))
    }

    /// The version that new members begin with. Whoever begins anew has to read what was written before: any patch level does.
    pub fn version_of_new(&self) -> Option<Version> {
        let Some(reads) = self.incarnation.version.filter(|_| !self.has_begun()) else {
            return self.version_of_the_others();
        };
        self.wanted_version().filter(|wanted| wanted.minor == reads.minor).or(Some(reads))
    }

    /// That of the others, which change theirs one after the other. Who has its data in its pod does not: whoever comes instead has
    /// the next patch level.
    pub fn version_of_the_others(&self) -> Option<Version> {
        let Some((oldest, _)) = self.versions() else { return self.wanted_version() };
        let in_pods = self.seen.cluster.spec.storage.empty_dir;
        let next = self.next_version().filter(|next| in_pods && next.minor == oldest.minor);
        next.or(Some(oldest))
    }

    /// Why nobody knows who the members are.
    pub fn why_unknown(&self) -> String {
        match &self.seen.members {
            Known::Unknown { why, .. } => why.clone(),
            _ => "nobody was asked".to_owned(),
        }
    }

    /// Where the others reach a member.
    pub fn peer_url(&self, member: &str) -> String {
        children::peer_url(self.tls.peers(), &self.name, &self.namespace, member)
    }
}

/// The number of a member that was made here, known by its peer URL.
fn ordinal_of(scheme: Scheme, cluster: &str, namespace: &str, listed: &Listed) -> Option<u32> {
    let url = listed.peer_urls.first()?;
    let member = url.split_once("://")?.1.split('.').next()?;
    let ordinal = ordinal_in(cluster, member)?;
    (*url == children::peer_url(scheme, cluster, namespace, member)).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use rstest::rstest;
    use serde_json::json;
    use wheelhouse::{Reference, jiff::Timestamp};

    use super::*;
    use crate::api::EtcdCluster;

    /// A cluster with so many voters, of which the first so many are well.
    fn seen(voters: u32, well: u32) -> Seen {
        let mut cluster = EtcdCluster::new("db", serde_json::from_value(json!({"size": voters})).unwrap());
        cluster.metadata = ObjectMeta { namespace: Some("n".to_owned()), ..cluster.metadata };
        let at = Timestamp::UNIX_EPOCH;
        let id = |ordinal: u32| Id(u64::from(ordinal) + 1);
        let member = |ordinal| member_name("db", ordinal);
        let listed = |ordinal| Listed {
            id: id(ordinal),
            name: member(ordinal),
            peer_urls: vec![children::peer_url(Scheme::Http, "db", "n", &member(ordinal))],
            is_learner: false,
        };
        let answer = |ordinal| Answer {
            cluster: Id(99),
            member: id(ordinal),
            leader: Some(id(0)),
            version: None,
            errors: Vec::new(),
            upkeep: Default::default(),
        };
        let pod = |ordinal| PodSeen {
            reference: reference(&member(ordinal)),
            phase: "Running".to_owned(),
            gone_by: None,
            waits_for: None,
            ready: true,
            has_node: true,
            address: None,
            version: None,
            made_for: None,
            incarnation: 0,
            position: None,
            etcd: match ordinal < well {
                true => Known::Value { value: answer(ordinal), at },
                false => Known::Unknown { why: "cut off".to_owned(), since: at },
            },
            standing: Known::Absent,
        };
        Seen {
            backups: Vec::new(),
            cluster,
            is_ours: true,
            repository: String::new(),
            supervisor_image: String::new(),
            records: Vec::new(),
            pods: (0..voters).map(pod).collect(),
            volumes: Vec::new(),
            members: Known::Value { value: (0..voters).map(listed).collect(), at },
            furthest: None,
            backup: None,
            tls: None,
            hashes: Known::Absent,
            last_failure: None,
            now: at,
        }
    }

    fn reference(name: &str) -> Reference {
        let kind = wheelhouse::Kind::of::<k8s_openapi::api::core::v1::Pod>(&());
        Reference {
            kind,
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
            uid: name.to_owned(),
            resource_version: "1".to_owned(),
            terminating: false,
        }
    }

    #[rstest]
    #[case::the_one_that_is_down(3, 2, 2, true)]
    #[case::one_that_is_well_while_another_is_down(3, 2, 1, false)]
    #[case::one_of_three_that_are_well(3, 3, 2, true)]
    #[case::one_of_two(2, 2, 1, true)]
    #[case::the_well_one_of_two(2, 1, 0, false)]
    #[case::the_last(1, 1, 0, false)]
    #[case::one_that_is_down_of_two_that_are(5, 3, 4, true)]
    #[case::one_that_is_well_while_two_are_down(5, 3, 0, false)]
    #[case::where_most_are_down(5, 2, 4, false)]
    fn a_member_can_go_only_if_the_others_hold_quorum(
        #[case] voters: u32,
        #[case] well: u32,
        #[case] without: u32,
        #[case] holds: bool,
    ) {
        let seen = seen(voters, well);
        assert_eq!(View::of(&seen).others_hold_quorum(Id(u64::from(without) + 1)), holds);
    }

    #[test]
    fn without_a_list_nobody_can_go() {
        let mut seen = seen(3, 3);
        seen.members = Known::Unknown { why: "no quorum".to_owned(), since: seen.now };
        assert!(!View::of(&seen).others_hold_quorum(Id(1)));
    }

    #[test]
    fn a_member_whose_pod_goes_is_not_counted_on() {
        let mut seen = seen(3, 3);
        if let Some(pod) = seen.pods.first_mut() {
            pod.reference.terminating = true;
        }
        assert!(!View::of(&seen).others_hold_quorum(Id(2)));
    }
}
