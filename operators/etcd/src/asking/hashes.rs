//! Whether all members hold the same: the hashes of what each knew at one revision.
//!
//! etcd computes the same hash in all versions since 3.5.16, whether or not a tombstone was compacted away. A hash
//! counts only beside others of the same compaction. It is computed over all of the data while writes wait, so it is
//! asked of one member after the other, and only when something depends on it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use wheelhouse::Probe;

use super::check_cluster;
use crate::{
    children::quorum,
    etcd::{self, Client, Dial, Id},
};

/// How long one member may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is tried where a compaction comes in between.
const TRIES: u32 = 3;

/// Which members hold the same, the most of them first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hashes {
    /// Members in one group hold the same.
    pub groups: Vec<Vec<Id>>,
}

impl Hashes {
    /// Whether these members, all of them, hold the same.
    pub fn agree(&self, members: impl IntoIterator<Item = Id>) -> bool {
        match self.groups.as_slice() {
            [all] => members.into_iter().all(|member| all.contains(&member)),
            _ => false,
        }
    }

    /// Whether this member holds something else than a majority of so many voters does.
    pub fn is_outvoted(&self, member: Id, voters: &[Id]) -> bool {
        let votes = |group: &Vec<Id>| group.iter().filter(|id| voters.contains(id)).count();
        let majority = self.groups.iter().find(|group| votes(group) >= quorum(voters.len()));
        let was_asked = self.groups.iter().any(|group| group.contains(&member));
        was_asked && majority.is_some_and(|majority| !majority.contains(&member))
    }
}

/// Asks all members what they hold.
pub(crate) struct AskHashes {
    pub(crate) dialer: Arc<dyn Dial>,
    /// Addresses with ports, and what tells the pods apart: an answer from before one was made anew does not count.
    pub(crate) members: Vec<(String, String)>,
    /// What etcd calls the cluster, if that is known.
    pub(crate) cluster: Option<Id>,
    pub(crate) fresh_for: Duration,
}

impl Probe for AskHashes {
    type Answer = Hashes;

    fn target(&self) -> String {
        format!("{:?} {:?}", self.members, self.cluster)
    }

    fn time_out(&self) -> Duration {
        PATIENCE * 14
    }

    fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    /// What the operator does to etcd changes no data, and to compute them costs much.
    fn depends_on_actions(&self) -> bool {
        false
    }

    async fn ask(&self) -> Result<Option<Hashes>, String> {
        let first = self.compare().await?;
        if first.groups.len() <= 1 || self.compare().await? == first {
            return Ok(Some(first));
        }
        Err("the hashes of the members differed, but not twice in the same way".to_owned())
    }
}

impl AskHashes {
    async fn compare(&self) -> Result<Hashes, String> {
        let mut why = "there is nobody to be asked".to_owned();
        for _ in 0..TRIES {
            match self.compare_once().await {
                Ok(hashes) => return Ok(hashes),
                Err(problem) => why = problem,
            }
        }
        Err(why)
    }

    async fn compare_once(&self) -> Result<Hashes, String> {
        let words = |error: etcd::Error| error.to_string();
        let mut clients = Vec::new();
        let mut revision = i64::MAX;
        for (address, _) in &self.members {
            let client = Client::connect(self.dialer.clone(), address, PATIENCE).await.map_err(words)?;
            let header = client.status().await.map_err(words)?.header.unwrap_or_default();
            check_cluster(self.cluster, Id(header.cluster_id))?;
            // Everybody knows that one.
            revision = revision.min(header.revision);
            clients.push((Id(header.member_id), client));
        }
        let mut by_hash: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
        let mut compacted = None;
        for (id, client) in clients {
            let said = client.hash(revision).await.map_err(words)?;
            if compacted.is_some_and(|compacted| compacted != said.compact_revision) {
                return Err("a compaction came in between the hashes of two members".to_owned());
            }
            compacted = Some(said.compact_revision);
            by_hash.entry(said.hash).or_default().push(id);
        }
        let mut groups: Vec<_> = by_hash.into_values().collect();
        groups.iter_mut().for_each(|group| group.sort());
        groups.sort_by_key(|group| (std::cmp::Reverse(group.len()), group.first().copied()));
        Ok(Hashes { groups })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// `1 2 | 3` is two members that hold the same, and one that does not.
    fn hashes(groups: &str) -> Hashes {
        let group = |group: &str| group.split_whitespace().map(|id| id.parse().unwrap()).collect();
        Hashes { groups: groups.split('|').map(group).collect() }
    }

    #[rstest]
    #[case::one_of_three("1 2 | 3", 3, 3, true)]
    #[case::one_of_the_others("1 2 | 3", 3, 1, false)]
    #[case::nobody_of_three_that_all_differ("1 | 2 | 3", 3, 3, false)]
    #[case::nobody_of_two("1 | 2", 2, 2, false)]
    #[case::nobody_where_one_has_not_said("1 | 2", 3, 2, false)]
    #[case::one_of_five_while_one_is_away("1 2 3 | 4", 5, 4, true)]
    #[case::who_was_not_asked("1 2 3 | 4", 5, 5, false)]
    fn a_member_is_outvoted_only_by_a_majority(
        #[case] groups: &str,
        #[case] voters: u64,
        #[case] member: u64,
        #[case] is_outvoted: bool,
    ) {
        let voters: Vec<_> = (1..=voters).map(Id).collect();
        assert_eq!(hashes(groups).is_outvoted(Id(member), &voters), is_outvoted);
    }

    #[test]
    fn members_agree_only_if_all_of_them_were_asked() {
        let ids = |ids: &[u64]| ids.iter().copied().map(Id).collect::<Vec<_>>();
        assert!(hashes("1 2 3").agree(ids(&[1, 2, 3])));
        assert!(!hashes("1 2").agree(ids(&[1, 2, 3])));
        assert!(!hashes("1 2 | 3").agree(ids(&[1, 2])));
    }
}
