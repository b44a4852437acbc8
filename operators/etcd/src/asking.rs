//! What is asked of etcd itself: each member how it is, and all of them who the members are.

mod hashes;
mod standing;
mod upkeep;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde::{Deserialize, Serialize};
use wheelhouse::Probe;

pub(crate) use self::{hashes::AskHashes, standing::AskStanding};
pub use self::{
    hashes::Hashes,
    upkeep::{Alarm, AlarmKind, Upkeep},
};
use crate::{
    etcd::{self, Client, Confirmed, Dial, Id},
    positions::{Position, Positions},
    version::Version,
};

/// How long a call to etcd may take: without a quorum it would wait longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A member that has said nothing for so long may have nothing to say: the next one is asked, too. All of them at
/// once would be most of what an operator of thousands of clusters does.
const NEXT_AFTER: Duration = Duration::from_millis(200);

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Its cluster.
    pub cluster: Id,
    /// Itself.
    pub member: Id,
    /// Whom it takes for the leader, if it knows one.
    #[serde(default)]
    pub leader: Option<Id>,
    /// What it runs.
    #[serde(default)]
    pub version: Option<Version>,
    /// What it complains about: alarms, mostly.
    #[serde(default)]
    pub errors: Vec<String>,
    /// What it says of its data.
    #[serde(default)]
    pub upkeep: Upkeep,
}

impl Answer {
    /// The alarms that it knows of, its own and those of others.
    pub fn alarms(&self) -> impl Iterator<Item = Alarm> {
        self.errors.iter().filter_map(|complaint| Alarm::in_words(complaint))
    }
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its ID.
    pub id: Id,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// Where the others reach it.
    pub peer_urls: Vec<String>,
    /// Whether it has no vote yet.
    pub is_learner: bool,
}

/// Asks one member how it is.
pub(crate) struct AskMember {
    pub(crate) dialer: Arc<dyn Dial>,
    /// Address and port.
    pub(crate) address: String,
    /// An address can be somebody else's later.
    pub(crate) pod: String,
    /// What etcd calls the cluster, if that is known.
    pub(crate) cluster: Option<Id>,
    /// Where is remembered how far it is.
    pub(crate) positions: Arc<Positions>,
    /// The UID of the cluster there.
    pub(crate) of: String,
    pub(crate) fresh_for: Duration,
}

impl Probe for AskMember {
    type Answer = Answer;

    fn target(&self) -> String {
        format!("{} {} {:?}", self.address, self.pod, self.cluster)
    }

    fn time_out(&self) -> Duration {
        PATIENCE * 2
    }

    fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    async fn ask(&self) -> Result<Option<Answer>, String> {
        let asked = async {
            let client = Client::connect(self.dialer.clone(), &self.address, PATIENCE).await?;
            let said = client.status().await?;
            let knows = match said.leader {
                0 => client.members_it_knows().await?,
                _ => Vec::new(),
            };
            Ok::<_, etcd::Error>((said, knows))
        };
        let (said, knows) = asked.await.map_err(|error| error.to_string())?;
        let header = said.header.clone().unwrap_or_default();
        check_cluster(self.cluster, Id(header.cluster_id))?;
        let position = Position {
            index: said.raft_index,
            term: said.raft_term,
            revision: header.revision,
            is_learner: said.is_learner,
            voters: knows.iter().filter(|member| !member.is_learner).count(),
        };
        self.positions.heard(&self.of, &self.pod, position);
        Ok(Some(Answer {
            cluster: Id(header.cluster_id),
            member: Id(header.member_id),
            leader: Some(Id(said.leader)).filter(|leader| leader.0 != 0),
            version: said.version.parse().ok(),
            upkeep: Upkeep::of(&said),
            errors: in_order(said.errors),
        }))
    }
}

/// etcd tells its alarms in any order.
fn in_order(mut errors: Vec<String>) -> Vec<String> {
    errors.sort();
    errors
}

/// Asks who the members are: whoever answers first with a quorum behind it.
pub(crate) struct AskMembers {
    pub(crate) dialer: Arc<dyn Dial>,
    /// Addresses and ports.
    pub(crate) addresses: Vec<String>,
    /// What etcd calls the cluster, if that is known.
    pub(crate) cluster: Option<Id>,
    /// By what a list is known to be good: clusters by the thousand are asked no more than they have to be.
    pub(crate) confirmed: Confirmed,
    /// Of whom, and what is intended of them: a list is never older than that.
    pub(crate) intentions: String,
    pub(crate) fresh_for: Duration,
}

impl Probe for AskMembers {
    type Answer = Vec<Listed>;

    fn target(&self) -> String {
        let addresses = self.addresses.join(" ");
        format!("{addresses} {:?} {:?} {}", self.cluster, self.confirmed, self.intentions)
    }

    fn time_out(&self) -> Duration {
        PATIENCE * 2
    }

    fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    async fn ask(&self) -> Result<Option<Vec<Listed>>, String> {
        if self.addresses.is_empty() {
            return Err("no member has an address".to_owned());
        }
        let first = first_with_quorum(&self.dialer, &self.addresses, self.cluster, self.confirmed).await;
        first.map(|(members, _)| Some(members))
    }
}

/// The members, as a quorum confirms them, and through whom that was learned first. One is asked after the other:
/// the next as soon as the one before has said no, or has said nothing for a moment.
pub(crate) async fn first_with_quorum(
    dialer: &Arc<dyn Dial>,
    addresses: &[String],
    cluster: Option<Id>,
    confirmed: Confirmed,
) -> Result<(Vec<Listed>, String), String> {
    let ask = |address: &String| {
        let (dialer, address) = (dialer.clone(), address.clone());
        async move { members(dialer, &address, cluster, confirmed).await.map(|members| (members, address)) }
    };
    let mut not_asked = addresses.iter();
    let mut asking = FuturesUnordered::new();
    let mut complaints = BTreeSet::new();
    loop {
        asking.extend(not_asked.next().map(ask));
        let answer = match not_asked.len() {
            0 => asking.next().await,
            _ => match tokio::time::timeout(NEXT_AFTER, asking.next()).await {
                Ok(answer) => answer,
                Err(_) => continue,
            },
        };
        match answer {
            Some(Ok(first)) => return Ok(first),
            Some(Err(why)) => drop(complaints.insert(why)),
            None => return Err(complaints.into_iter().collect::<Vec<_>>().join("; ")),
        }
    }
}

/// At an address there can be somebody else by now.
fn check_cluster(known: Option<Id>, answering: Id) -> Result<(), String> {
    match known.filter(|known| *known != answering) {
        Some(known) => Err(format!("cluster {answering} answers there, and not {known}")),
        None => Ok(()),
    }
}

/// The members, as a quorum confirms them through the member at that address.
async fn members(
    dialer: Arc<dyn Dial>,
    address: &str,
    cluster: Option<Id>,
    confirmed: Confirmed,
) -> Result<Vec<Listed>, String> {
    let asked = async { Client::connect(dialer, address, PATIENCE).await?.members(confirmed).await };
    let (answering, members) = asked.await.map_err(|error| error.to_string())?;
    check_cluster(cluster, Id(answering))?;
    let mut listed: Vec<_> = members
        .into_iter()
        .map(|member| Listed {
            id: Id(member.id),
            name: member.name,
            peer_urls: member.peer_urls,
            is_learner: member.is_learner,
        })
        .collect();
    listed.sort_by_key(|member| member.id);
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::future::BoxFuture;
    use parking_lot::Mutex;

    use super::*;
    use crate::etcd::Stream;

    /// Nobody answers: those whose address begins with `silent` say nothing, and others refuse.
    #[derive(Default)]
    struct Nobody(Mutex<Vec<(String, Duration)>>, Option<Instant>);

    impl Dial for Arc<Nobody> {
        fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
            self.0.lock().push((address.to_owned(), self.1.map(|begun| begun.elapsed()).unwrap_or_default()));
            match address.starts_with("silent") {
                true => Box::pin(std::future::pending()),
                false => Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) }),
            }
        }
    }

    async fn dialled(addresses: [&str; 3]) -> (Vec<(String, Duration)>, String) {
        let nobody = Arc::new(Nobody(Mutex::default(), Some(Instant::now())));
        let dialer: Arc<dyn Dial> = Arc::new(nobody.clone());
        let why = first_with_quorum(&dialer, &addresses.map(str::to_owned), None, Confirmed::ByTheList)
            .await
            .unwrap_err();
        (nobody.0.lock().clone(), why)
    }

    #[tokio::test]
    async fn who_says_no_is_followed_by_the_next_at_once() {
        let (dialled, why) = dialled(["a:1", "b:1", "c:1"]).await;
        let order: Vec<_> = dialled.iter().map(|(address, _)| address.as_str()).collect();
        assert_eq!(order, ["a:1", "b:1", "c:1"]);
        assert!(dialled.iter().all(|(_, after)| *after < NEXT_AFTER), "{dialled:?}");
        assert!(why.contains("refused"), "{why}");
    }

    #[tokio::test]
    async fn who_says_nothing_is_followed_by_the_next_after_a_moment_and_not_before() {
        let (dialled, why) = dialled(["silent-a:1", "silent-b:1", "c:1"]).await;
        let after: Vec<_> = dialled.iter().map(|(_, after)| *after).collect();
        assert!(after[0] < NEXT_AFTER && after[1] >= NEXT_AFTER && after[2] >= NEXT_AFTER * 2, "{dialled:?}");
        assert!(after[2] < Duration::from_secs(1), "nobody waits until the first is given up: {dialled:?}");
        assert!(why.contains("refused") && why.contains("; "), "each of them is told: {why}");
    }
}
