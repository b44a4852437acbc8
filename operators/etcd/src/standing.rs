//! How far a member is that serves nobody.
//!
//! etcd answers no client before it has found a quorum once. So of a cluster that has lost its quorum, whoever was
//! restarted since is silent, though it may be the one that has everything. What etcd tells other members and in its
//! metrics is there from the start: the supervisor in the pod puts that together, and the operator asks the supervisor.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    etcd::{Dial, Id, Tcp, http},
    positions::Position,
};

/// Where the supervisor tells it.
pub(crate) const PATH: &str = "/standing";

/// Where etcd tells whoever asks for its members which cluster that is about.
const CLUSTER_ID: &str = "x-etcd-cluster-id";

/// Who is as far as it was so long ago has read all that it has.
const LOOKED_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Asks etcd itself, twice: for its metrics, and at the port of its peers, as they do, for the members.
///
/// # Errors
/// When it does not run, or can be asked as others are; in words.
pub(crate) async fn ask(metrics: &str, peers: &dyn Dial, peer: &str) -> Result<Standing, String> {
    let before = look(metrics, peers, peer).await?;
    tokio::time::sleep(LOOKED_AGAIN_AFTER).await;
    let now = look(metrics, peers, peer).await?;
    // Its log is read piece by piece.
    if now != before {
        return Err("etcd reads its log yet".to_owned());
    }
    Ok(now)
}

async fn look(metrics: &str, peers: &dyn Dial, peer: &str) -> Result<Standing, String> {
    let (_, metrics) = http::get(&Tcp, metrics, "/metrics").await?;
    let (headers, members) = http::get(peers, peer, "/members").await?;
    let cluster = headers.get(CLUSTER_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    let cluster = cluster.ok_or("etcd does not tell which cluster it is of")?;
    Standing::of(&String::from_utf8_lossy(&metrics), cluster, &members)
}

/// A member that knows no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Its cluster.
    pub cluster: Id,
    /// Itself.
    pub member: Id,
    /// How far it is.
    pub position: Position,
}

impl Standing {
    /// From etcd's metrics, the ID of its cluster, and the members as it tells them to others.
    ///
    /// # Errors
    /// When it knows a leader, and can be asked itself; and when something is missing, in words.
    fn of(metrics: &str, cluster: Id, members: &[u8]) -> Result<Self, String> {
        let number = |name: &str| number(metrics, name).ok_or(format!("etcd does not tell {name}"));
        if number("etcd_server_has_leader")? != 0.0 {
            return Err("etcd knows a leader: it is to be asked itself".to_owned());
        }
        let member = labelled(metrics, "etcd_server_id", "server_id").and_then(|id| id.parse().ok());
        let member: Id = member.ok_or("etcd does not tell its ID")?;
        // Until it has looked through its log, it does not know what it knows. Where nothing is behind its last snapshot, it
        // tells how far that is as soon as it asks the others for their votes.
        let applied = number("etcd_server_proposals_applied_total")?;
        if applied < 1.0 {
            return Err("etcd has not read its log yet".to_owned());
        }
        let members: Vec<Value> = serde_json::from_slice(members)
            .map_err(|error| format!("etcd does not tell who the members are: {error}"))?;
        let is_learner = |listed: &&Value| listed["isLearner"].as_bool().unwrap_or_default();
        let itself = members.iter().find(|listed| listed["id"].as_u64() == Some(member.0));
        let itself = itself.ok_or_else(|| format!("etcd does not list itself, {member}, as a member"))?;
        let position = Position {
            index: whole(applied),
            // Of terms nothing is told. Only of two that are equally far it would matter, and not much.
            term: 0,
            revision: i64::try_from(whole(number("etcd_debugging_mvcc_current_revision")?))
                .unwrap_or_default(),
            is_learner: is_learner(&itself),
            voters: members.iter().filter(|listed| !is_learner(listed)).count(),
        };
        Ok(Self { cluster, member, position })
    }
}

/// The value of a metric without labels. Prometheus' text has floating point numbers only.
fn number(metrics: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value)
}

/// What a label of a metric says.
fn labelled<'m>(metrics: &'m str, name: &str, label: &str) -> Option<&'m str> {
    let begins = format!("{name}{{{label}=\"");
    metrics.lines().find_map(|line| line.strip_prefix(&begins)?.split('"').next())
}

/// Exact up to 2^53, which no log reaches.
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# TYPE etcd_debugging_mvcc_current_revision gauge
etcd_debugging_mvcc_current_revision 41
# TYPE etcd_server_has_leader gauge
etcd_server_has_leader 0
etcd_server_id{server_id=\"8e9e05c52164694d\"} 1
etcd_server_proposals_applied_total 1.234567e+06
etcd_server_proposals_committed_total 0
";
    const MEMBERS: &str = r#"[
        {"id": 10276657743932975437, "peerURLs": ["http://db-0:2380"], "name": "db-0"},
        {"id": 7, "peerURLs": ["http://db-1:2380"], "name": "db-1"},
        {"id": 8, "peerURLs": ["http://db-2:2380"], "isLearner": true}
    ]"#;

    #[test]
    fn it_is_put_together_from_metrics_and_members() {
        let standing = Standing::of(METRICS, Id(5), MEMBERS.as_bytes()).unwrap();
        let position = Position { index: 1_234_567, term: 0, revision: 41, is_learner: false, voters: 2 };
        assert_eq!(standing, Standing { cluster: Id(5), member: Id(0x8e9e_05c5_2164_694d), position });
    }

    #[test]
    fn nothing_is_told_that_is_not_known() {
        let told =
            |metrics: &str, members: &str| Standing::of(metrics, Id(5), members.as_bytes()).unwrap_err();
        let with_leader = METRICS.replace("has_leader 0", "has_leader 1");
        assert!(told(&with_leader, MEMBERS).contains("knows a leader"));
        let unread = METRICS.replace("applied_total 1.234567e+06", "applied_total 0");
        assert!(told(&unread, MEMBERS).contains("has not read its log"));
        assert!(told("", MEMBERS).contains("does not tell etcd_server_has_leader"));
        assert!(told(METRICS, "[]").contains("does not list itself"));
        assert!(told(METRICS, "<html>").contains("who the members are"));
    }
}
