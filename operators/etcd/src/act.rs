//! Act: what the operator asks of etcd itself.
//!
//! What was decided on an observation is checked once more, against what a quorum says now. Each can
//! be repeated: a member is known by its peer URL, and what is so already is left alone.

mod upkeep;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use wheelhouse::{Action, Category, Error, Result};

pub(crate) use self::upkeep::ROOM_PERCENT;
use crate::{
    asking::{Listed, first_with_quorum},
    children::quorum,
    etcd::{self, Client, Confirmed, Dial, Id},
    size::Size,
    version::Version,
};

/// No call takes longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long etcd is asked again where it says "not yet".
const ASKED_AGAIN_FOR: Duration = Duration::from_secs(2);
/// And so often.
const ASKED_AGAIN_EVERY: Duration = Duration::from_millis(100);

/// A change of who the members are, or who leads, or of what etcd lets them do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What is to change.
    pub what: What,
    /// Whom it is about, by name.
    pub member: String,
    /// What etcd calls the cluster: at an address there can be another by now.
    #[serde(default)]
    pub cluster: Option<Id>,
    /// The members that can be asked: address and port.
    pub through: Vec<String>,
}

/// What is to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// It becomes a member without a vote.
    AddLearner {
        /// Where the others reach it.
        peer_url: String,
    },
    /// It gets a vote.
    Promote {
        /// Its ID.
        id: Id,
    },
    /// It is no member any more.
    Remove {
        /// Where the others reached it.
        peer_url: String,
        /// Only if it has never started.
        unless_started: bool,
    },
    /// It leads.
    Lead {
        /// Its ID.
        id: Id,
    },
    /// The cluster may go back to an older minor version.
    AllowDowngrade {
        /// To this one.
        to: Version,
    },
    /// Nothing, if the cluster works as the minor version before this one: before an etcd of that version is started.
    CheckUpgrade {
        /// To this one.
        to: Version,
    },
    /// Nothing, if the cluster works as this version, or an older one: before an etcd of that version is started.
    CheckDowngrade {
        /// As this one.
        to: Version,
    },
    /// The cluster does not go back any more.
    CancelDowngrade,
    /// The members take snapshots of their logs.
    FillLogs,
    /// Writes are taken again after space had run out.
    TakeBackNoSpace {
        /// How large the data of a member may be that does not say so itself.
        quota: Size,
    },
}

impl Action for Change {
    fn name(&self) -> &'static str {
        match self.what {
            What::AddLearner { .. } => "add-learner",
            What::Promote { .. } => "promote",
            What::Remove { .. } => "remove",
            What::Lead { .. } => "move-leader",
            What::AllowDowngrade { .. } => "allow-downgrade",
            What::CheckUpgrade { .. } => "check-upgrade",
            What::CheckDowngrade { .. } => "check-downgrade",
            What::CancelDowngrade => "cancel-downgrade",
            What::FillLogs => "fill-logs",
            What::TakeBackNoSpace { .. } => "disarm",
        }
    }

    fn is_destructive(&self) -> bool {
        !matches!(self.what, What::CheckUpgrade { .. } | What::CheckDowngrade { .. })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = &self.member;
        match &self.what {
            What::AddLearner { .. } => write!(formatter, "add member {member} as a learner"),
            What::Promote { .. } => write!(formatter, "give member {member} its vote"),
            What::Remove { .. } => write!(formatter, "remove member {member}"),
            What::Lead { .. } => write!(formatter, "let member {member} lead"),
            What::AllowDowngrade { to } => {
                write!(formatter, "let the cluster go back to {}", to.minor_text())
            }
            What::CheckUpgrade { to } => {
                write!(formatter, "check that the cluster can go on to {}", to.minor_text())
            }
            What::CheckDowngrade { to } => {
                write!(formatter, "check that the cluster works as {}", to.minor_text())
            }
            What::CancelDowngrade => formatter.write_str("keep the cluster from going back"),
            What::FillLogs => formatter.write_str("fill the logs until the members take snapshots of them"),
            What::TakeBackNoSpace { .. } => formatter.write_str("take back the alarm that space ran out"),
        }
    }
}

/// Carries out a change.
pub(crate) async fn act(change: Change, dialer: &Arc<dyn Dial>) -> Result<()> {
    let (listed, address) = list(&change, dialer).await?;
    let client = connect(&change, dialer, &address).await?;
    match &change.what {
        What::AddLearner { peer_url } => add(&change, &listed, &client, peer_url).await,
        What::Promote { id } => promote(&change, &listed, &client, *id).await,
        What::Remove { peer_url, unless_started } => {
            remove(&change, &listed, &client, dialer, (peer_url, *unless_started)).await
        }
        What::Lead { id } => lead(&change, &listed, &client, dialer, *id).await,
        What::AllowDowngrade { to } => upkeep::allow_downgrade(&change, &client, *to).await,
        What::CheckUpgrade { to } => upkeep::check_upgrade(&change, &client, *to).await,
        What::CheckDowngrade { to } => upkeep::check_downgrade(&change, &client, *to).await,
        What::CancelDowngrade => upkeep::cancel_downgrade(&change, &client).await,
        What::FillLogs => upkeep::fill_logs(&change, &client).await,
        What::TakeBackNoSpace { quota } => {
            upkeep::take_back_no_space(&change, &listed, &client, dialer, *quota).await
        }
    }
}

/// Who the members are now, and through whom that was learned.
async fn list(change: &Change, dialer: &Arc<dyn Dial>) -> Result<(Vec<Listed>, String)> {
    if change.through.is_empty() {
        return Err(Error::new(Category::Unavailable, format!("cannot {change}: no member answers")));
    }
    // Changes are few, and whatever answers there by now may be older than what was seen.
    let first = first_with_quorum(dialer, &change.through, change.cluster, Confirmed::ByARead).await;
    first.map_err(|why| {
        Error::new(Category::Unavailable, format!("cannot {change}: no quorum answers: {why}"))
    })
}

async fn connect(change: &Change, dialer: &Arc<dyn Dial>, address: &str) -> Result<Client> {
    Client::connect(dialer.clone(), address, PATIENCE).await.map_err(|error| failed(change, error))
}

async fn add(change: &Change, listed: &[Listed], client: &Client, peer_url: &str) -> Result<()> {
    if listed.iter().any(|member| member.peer_urls.iter().any(|url| url == peer_url)) {
        return Ok(());
    }
    if let Some(other) = listed.iter().find(|member| member.is_learner) {
        return Err(superseded(change, format!("{} is still learning", other.id)));
    }
    patiently(change, || async { client.add_learner(peer_url).await.map(drop) }).await
}

async fn promote(change: &Change, listed: &[Listed], client: &Client, id: Id) -> Result<()> {
    match listed.iter().find(|member| member.id == id) {
        Some(member) if member.is_learner => {}
        Some(_) => return Ok(()),
        None => return Err(superseded(change, "it is no member".to_owned())),
    }
    patiently(change, || client.promote(id.0)).await
}

async fn remove(
    change: &Change,
    listed: &[Listed],
    client: &Client,
    dialer: &Arc<dyn Dial>,
    (peer_url, unless_started): (&str, bool),
) -> Result<()> {
    let is_it = |member: &&Listed| member.peer_urls.iter().any(|url| url == peer_url);
    let Some(member) = listed.iter().find(is_it) else { return Ok(()) };
    if unless_started && !member.name.is_empty() {
        return Err(superseded(change, "it has started".to_owned()));
    }
    if !member.is_learner {
        let left: Vec<_> = listed.iter().filter(|other| !other.is_learner && other.id != member.id).collect();
        let healthy = healthy(change, dialer).await;
        let well = left.iter().filter(|other| healthy.contains(&other.id)).count();
        if left.is_empty() || well < quorum(left.len()) {
            let what = format!("of the {} that would be left only {well} are well", left.len());
            return Err(superseded(change, what));
        }
    }
    patiently(change, || client.remove(member.id.0)).await
}

async fn lead(
    change: &Change,
    listed: &[Listed],
    client: &Client,
    dialer: &Arc<dyn Dial>,
    id: Id,
) -> Result<()> {
    if !listed.iter().any(|member| member.id == id && !member.is_learner) {
        return Err(superseded(change, "it has no vote".to_owned()));
    }
    let leader = client.status().await.map_err(|error| failed(change, error))?.leader;
    if leader == id.0 {
        return Ok(());
    }
    // Only the leader itself can hand over.
    for address in &change.through {
        let Ok(client) = connect(change, dialer, address).await else { continue };
        let Ok(status) = client.status().await else { continue };
        if status.header.unwrap_or_default().member_id == leader {
            return client.move_leader(id.0).await.map_err(|error| failed(change, error));
        }
    }
    Err(Error::new(Category::Unavailable, format!("cannot {change}: the leader cannot be asked")))
}

/// The members that answer and know a leader.
async fn healthy(change: &Change, dialer: &Arc<dyn Dial>) -> Vec<Id> {
    let asking = change.through.iter().map(|address| async move {
        let client = connect(change, dialer, address).await.ok()?;
        let status = client.status().await.ok().filter(|status| status.leader != 0)?;
        status.header.map(|header| Id(header.member_id))
    });
    join_all(asking).await.into_iter().flatten().collect()
}

/// etcd wants everybody to have been connected for five seconds before anybody joins or leaves, and a
/// learner to have caught up before it votes. Until then it is asked again, for a while; after that the world
/// is looked at again, and nothing has failed.
async fn patiently<F>(change: &Change, ask: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = etcd::Result<()>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.says("unhealthy cluster") || error.says("in sync with leader") => {
                if begun.elapsed() >= ASKED_AGAIN_FOR {
                    tracing::info!("etcd does not {change} yet: {error}");
                    return Ok(());
                }
                tokio::time::sleep(ASKED_AGAIN_EVERY).await;
            }
            outcome => return outcome.map_err(|error| failed(change, error)),
        }
    }
}

fn failed(change: &Change, error: etcd::Error) -> Error {
    match error {
        etcd::Error::Refused { message, .. } => Error::application(format!("cannot {change}: {message}")),
        etcd::Error::NoAnswer(why) => {
            Error::new(Category::LostAnswer, format!("cannot tell whether this took effect: {change}: {why}"))
        }
    }
}

fn superseded(change: &Change, why: String) -> Error {
    Error::new(Category::Conflict, format!("did not {change}: {why}"))
}
