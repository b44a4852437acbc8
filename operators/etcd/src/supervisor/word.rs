//! Whether etcd may be started, and how: by what is in the folder, and by the record's word. Pure.
//!
//! Invariants:
//! - An empty folder is started from at most once in a member's life, and never where nobody can be asked.
//! - An incarnation of a cluster whose ID is known never begins again, and one after the first only from its source.
//! - Data of the member itself is started with whether or not anybody can be asked.

use crate::{
    api::{Data, EtcdMember, EtcdMemberStatus, Intent},
    incarnation::Source,
};

use super::folder::Folder;
use std::cmp::Ordering;

/// What is known about the cluster when its seed is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSeen {
    /// The incarnation that there is.
    pub incarnation: u32,
    /// The member that is its seed.
    pub seed: Option<String>,
    /// Whether it has had an ID.
    pub has_id: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Go on with the data that is there.
    GoOn,
    /// Begin: first write into the record that it began.
    Begin(Beginning),
    /// Make ready what it is to begin from, and wait.
    Prepare(Source),
    /// Wait, for this.
    Wait(String),
    /// Do not start, and say why.
    Refuse(Data, String),
}

/// How a member begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// As the first of a new cluster.
    NewCluster,
    /// As the first of another incarnation, with the data that was made ready.
    Anew(Source),
    /// As one more of those that `--initial-cluster` names.
    Join(String),
}

/// What to do, given the folder, the record if there is one and it can be read, and the cluster likewise.
pub fn word(folder: &Folder, record: Option<&EtcdMember>, cluster: Option<&ClusterSeen>) -> Word {
    match folder {
        Folder::Foreign(why) => return Word::Refuse(Data::Foreign, why.clone()),
        Folder::Corrupt(why) => return Word::Refuse(Data::Corrupt, format!("the log is corrupt: {why}")),
        Folder::Ours(_) => return Word::GoOn,
        Folder::Empty => {}
    }
    let Some(record) = record else {
        return Word::Wait("the folder is empty, and the record of this member cannot be read".to_owned());
    };
    let EtcdMemberStatus { began, .. } = record.status.clone().unwrap_or_default();
    if began {
        return Word::Refuse(Data::Lost, "this member had data, and its folder is empty".to_owned());
    }
    match (record.spec.intent, &record.spec.join) {
        (Intent::Existing, _) => {
            Word::Refuse(Data::Lost, "etcd knows this member, and its folder is empty".to_owned())
        }
        (Intent::Leaving | Intent::Left, _) => Word::Wait("this member is leaving".to_owned()),
        (Intent::Joining, Some(join)) => Word::Begin(Beginning::Join(join.initial_cluster.clone())),
        (Intent::Joining, None) => Word::Wait("etcd is being asked to add this member".to_owned()),
        (Intent::Waiting, _) => match cluster {
            None => Word::Wait("the EtcdCluster cannot be read".to_owned()),
            Some(cluster) => first_word(record, cluster),
        },
    }
}

/// The word about a member that was never offered to etcd.
fn first_word(record: &EtcdMember, cluster: &ClusterSeen) -> Word {
    let is_seed = cluster.seed == record.metadata.name;
    match (record.spec.incarnation.cmp(&cluster.incarnation), record.spec.source.clone()) {
        (Ordering::Less, _) => Word::Wait("this member is of an incarnation that has ended".to_owned()),
        (Ordering::Greater, Some(source)) => Word::Prepare(source),
        (Ordering::Greater, None) => {
            Word::Wait("this member is of an incarnation that is to come".to_owned())
        }
        (Ordering::Equal, _) if cluster.has_id => {
            Word::Wait("it is not this member's turn to join yet".to_owned())
        }
        (Ordering::Equal, Some(source)) if is_seed => Word::Begin(Beginning::Anew(source)),
        (Ordering::Equal, Some(source)) => Word::Prepare(source),
        // Only the first incarnation begins from nothing.
        (Ordering::Equal, None) if is_seed && record.spec.incarnation == 0 => {
            Word::Begin(Beginning::NewCluster)
        }
        (Ordering::Equal, None) => Word::Wait("the cluster has not begun yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::supervisor::folder::Mark;

    fn record(spec: Value, began: bool) -> EtcdMember {
        let mut content = json!({"cluster": "a", "ordinal": 0});
        wheelhouse::overrides::merge(&mut content, &spec);
        let mut record = EtcdMember::new("a-0", serde_json::from_value(content).unwrap());
        record.status = Some(EtcdMemberStatus { began, ..EtcdMemberStatus::default() });
        record
    }

    fn joining() -> Value {
        json!({"intent": "Joining", "join": {"memberID": "1f", "initialCluster": "a-0=u"}})
    }

    fn cluster(seed: &str, has_id: bool) -> ClusterSeen {
        ClusterSeen { incarnation: 0, seed: Some(seed.to_owned()), has_id }
    }

    fn survivor() -> Value {
        json!({"survivor": {"member": "a-0", "claim": "a-0"}})
    }

    fn begins(word: &Word) -> bool {
        matches!(word, Word::Begin(_))
    }

    #[test]
    fn the_seed_begins_a_cluster_that_has_no_id_and_only_once() {
        let waiting = json!({"intent": "Waiting"});
        let said = |seed: &str, has_id, began| {
            word(&Folder::Empty, Some(&record(waiting.clone(), began)), Some(&cluster(seed, has_id)))
        };
        assert_eq!(said("a-0", false, false), Word::Begin(Beginning::NewCluster));
        assert!(!begins(&said("a-1", false, false)), "another is the seed");
        assert!(!begins(&said("a-0", true, false)), "the cluster has begun");
        assert!(matches!(said("a-0", false, true), Word::Refuse(Data::Lost, _)), "it began once");
    }

    #[rstest]
    #[case::of_one_that_is_to_come(2, 1, "a-0", true, false)]
    #[case::that_is_not_named_yet(1, 1, "a-9", true, false)]
    #[case::that_is_the_seed(1, 1, "a-0", false, true)]
    #[case::of_one_that_has_ended(1, 2, "a-0", false, false)]
    fn another_incarnation_begins_from_its_source_once_it_is_its_turn(
        #[case] incarnation: u32,
        #[case] of_cluster: u32,
        #[case] seed: &str,
        #[case] prepares: bool,
        #[case] begins: bool,
    ) {
        let record =
            record(json!({"intent": "Waiting", "incarnation": incarnation, "source": survivor()}), false);
        let cluster = ClusterSeen { incarnation: of_cluster, ..cluster(seed, false) };
        let said = word(&Folder::Empty, Some(&record), Some(&cluster));
        assert_eq!(matches!(said, Word::Prepare(_)), prepares, "{said:?}");
        assert_eq!(matches!(said, Word::Begin(Beginning::Anew(_))), begins, "{said:?}");
        let has_begun = word(&Folder::Empty, Some(&record), Some(&ClusterSeen { has_id: true, ..cluster }));
        assert!(!matches!(has_begun, Word::Begin(_)), "it has begun");
    }

    #[test]
    fn another_incarnation_never_begins_from_nothing() {
        let record = record(json!({"intent": "Waiting", "incarnation": 1}), false);
        let cluster = ClusterSeen { incarnation: 1, ..cluster("a-0", false) };
        assert!(matches!(word(&Folder::Empty, Some(&record), Some(&cluster)), Word::Wait(_)));
    }

    #[test]
    fn a_member_joins_once_etcd_lists_it_and_only_once() {
        let said = |spec, began| word(&Folder::Empty, Some(&record(spec, began)), None);
        assert_eq!(said(joining(), false), Word::Begin(Beginning::Join("a-0=u".to_owned())));
        assert!(matches!(said(joining(), true), Word::Refuse(Data::Lost, _)));
        assert!(matches!(said(json!({"intent": "Joining"}), false), Word::Wait(_)));
        assert!(matches!(said(json!({"intent": "Leaving"}), false), Word::Wait(_)));
    }

    #[test]
    fn an_empty_folder_is_never_started_from_where_nobody_can_be_asked() {
        assert!(matches!(word(&Folder::Empty, None, None), Word::Wait(_)));
        let waiting = record(json!({"intent": "Waiting"}), false);
        assert!(matches!(word(&Folder::Empty, Some(&waiting), None), Word::Wait(_)));
    }

    #[test]
    fn a_member_whose_record_was_lost_and_written_again_does_not_begin() {
        let existing = record(json!({"intent": "Existing"}), false);
        assert!(matches!(word(&Folder::Empty, Some(&existing), None), Word::Refuse(Data::Lost, _)));
    }

    #[rstest]
    #[case::without_a_record(None)]
    #[case::that_began(Some(record(joining(), true)))]
    #[case::that_leaves(Some(record(json!({"intent": "Leaving"}), true)))]
    fn a_member_goes_on_with_its_own_data(#[case] record: Option<EtcdMember>) {
        let mark =
            Mark { cluster_uid: "u".to_owned(), member: "a-0".to_owned(), identity: None, version: None };
        assert_eq!(word(&Folder::Ours(mark), record.as_ref(), None), Word::GoOn);
    }

    #[test]
    fn nobody_starts_with_the_data_of_another() {
        let said = word(&Folder::Foreign("b's".to_owned()), Some(&record(joining(), false)), None);
        assert_eq!(said, Word::Refuse(Data::Foreign, "b's".to_owned()));
    }
}
