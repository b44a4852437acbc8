//! Purges: a CdnPurge gets a number in the list of its cluster, and is complete when
//! every pod has confirmed that number.
//!
//! Invariants:
//! - A purge gets a number once, and under the version of the list that was seen:
//!   of two writers one is refused, and looks again.
//! - Who does not answer has confirmed nothing.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wheelhouse::{
    Event, NoAction, Operator, Plan, Reference, Result, Step, World,
    jiff::Timestamp,
    plan::{Condition, Conditions},
};

use crate::{
    api::{CdnCluster, CdnPurge, CdnPurgeStatus, Role},
    children,
    configuration::Purges,
    observe::{self, PodSeen},
    validity::check_purge,
};

/// How often agents are asked until all have confirmed.
const ASK_OFTEN: Duration = Duration::from_secs(1);

/// The operator of purges.
pub struct CdnPurges;

/// The world as far as a purge has to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeSeen {
    /// What is wanted, and what the status was.
    pub purge: CdnPurge,
    /// What the cluster is, if it is there.
    pub role: Option<Role>,
    /// The list of purges, and this very object; or what is wrong with it.
    pub list: Option<PurgeList>,
    /// The cluster's pods.
    pub pods: Vec<PodSeen>,
    /// When this was.
    pub now: Timestamp,
}

/// The list of a cluster's purges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeList {
    /// This very object.
    pub reference: Reference,
    /// When it began; none if it cannot be read.
    pub began: Option<String>,
    /// What it says, or what is wrong with it.
    pub content: std::result::Result<Purges, String>,
}

impl Operator for CdnPurges {
    type Resource = CdnPurge;
    type Observation = PurgeSeen;
    type Action = NoAction;

    async fn observe(&self, purge: Arc<CdnPurge>, world: &World<'_>) -> Result<PurgeSeen> {
        let cluster = &purge.spec.cluster;
        let list = world.get::<ConfigMap>(&children::purges_name(cluster)).await?;
        let is_complete = is_complete(&purge);
        Ok(PurgeSeen {
            role: world.get::<CdnCluster>(cluster).await?.map(|cluster| cluster.spec.role),
            list: list.map(|list| see_list(&list)),
            // Of one that is complete nothing more has to be known.
            pods: if is_complete { Vec::new() } else { observe::pods(cluster, world).await? },
            purge: (*purge).clone(),
            now: world.now(),
        })
    }

    fn analyse(&self, seen: &PurgeSeen) -> Plan {
        analyse(seen)
    }
}

fn see_list(list: &ConfigMap) -> PurgeList {
    let content = Purges::read(&list.data.clone().unwrap_or_default());
    let content = content.map_err(|why| format!("the ConfigMap {}: {why}", list.name_any()));
    PurgeList {
        reference: Reference::of(list),
        began: content.as_ref().ok().map(|purges| purges.began.clone()),
        content,
    }
}

fn is_complete(purge: &CdnPurge) -> bool {
    let conditions = purge.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
}

/// What is to be done about one purge.
pub fn analyse(seen: &PurgeSeen) -> Plan {
    let mut plan = Plan::new();
    if seen.purge.metadata.deletion_timestamp.is_some() || is_complete(&seen.purge) {
        return plan;
    }
    let last = seen.purge.status.clone().unwrap_or_default();
    let (held, waiting) = match (&seen.list, check_purge(&seen.purge.spec)) {
        (_, Err(why)) => (None, Some(("Invalid", why))),
        (list, Ok(())) => held(&mut plan, seen, list.as_ref()),
    };
    let here: Vec<_> = seen.pods.iter().filter(|pod| !pod.reference.terminating).collect();
    let has_confirmed = |pod: &&&PodSeen| {
        let (Some(agent), Some((began, number))) = (pod.agent.value(), &held) else { return false };
        agent.purges_began == *began && agent.purged >= *number
    };
    let confirmed = here.iter().filter(has_confirmed).count();
    let missing: Vec<_> =
        here.iter().filter(|pod| !has_confirmed(pod)).map(|pod| pod.reference.name.as_str()).collect();
    let (is_complete, reason, message) = match waiting {
        Some((reason, message)) => (false, reason, message),
        None if missing.is_empty() => {
            (true, "Confirmed", format!("{confirmed} of {} pods confirmed it", here.len()))
        }
        None => {
            plan.look_again_after(ASK_OFTEN);
            (false, "WaitingForPods", format!("not confirmed yet by {}", missing.join(", ")))
        }
    };
    let mut conditions = Conditions::from_last(&last.conditions, seen.purge.metadata.generation, seen.now);
    conditions.set(Condition {
        kind: "Complete",
        status: is_complete.into(),
        reason: reason.to_owned(),
        message,
    });
    plan.set_status(&CdnPurgeStatus {
        observed_generation: seen.purge.metadata.generation,
        number: held.as_ref().map(|(_, number)| *number).or(last.number),
        pods: i32::try_from(here.len()).unwrap_or(i32::MAX),
        confirmed: i32::try_from(confirmed).unwrap_or(i32::MAX),
        conditions: conditions.into_vec(),
    });
    plan
}

/// Since when the list began in which a purge has a number, and that number.
type Held = (String, u64);
/// What a purge waits for: the reason, and in words.
type Waiting = (&'static str, String);

/// What a purge is on the list as; or what it waits for.
fn held(plan: &mut Plan, seen: &PurgeSeen, list: Option<&PurgeList>) -> (Option<Held>, Option<Waiting>) {
    let cluster = &seen.purge.spec.cluster;
    let waiting = |reason, message| (None, Some((reason, message)));
    match (seen.role, list) {
        (None, _) => waiting("ClusterNotFound", format!("there is no CdnCluster {cluster}")),
        (Some(Role::Balancer), _) => {
            waiting("NotACache", format!("{cluster} is a balancer and keeps nothing: purge its sources"))
        }
        (_, None) => {
            waiting("WaitingForCluster", format!("the CdnCluster {cluster} has not been set up yet"))
        }
        (_, Some(PurgeList { content: Err(why), .. })) => waiting("InvalidList", why.clone()),
        (_, Some(PurgeList { reference, began, content: Ok(purges) })) => {
            // Where it began is not in its text.
            let began = began.clone().unwrap_or_default();
            let purges = Purges { began: began.clone(), ..purges.clone() };
            if let Some(number) = number(seen, &purges) {
                return (Some((began, number)), None);
            }
            include(plan, seen, reference, purges);
            waiting("Including", format!("it is put on the list of {cluster}"))
        }
    }
}

/// The number that a purge was seen to have. What is only about to be written counts for nothing.
fn number(seen: &PurgeSeen, purges: &Purges) -> Option<u64> {
    // One of another list holds as soon as this one does.
    let last = seen.purge.status.as_ref().and_then(|status| status.number).map(|last| last.min(purges.last));
    purges.number_of(&uid(&seen.purge)).or(last)
}

/// Puts a purge on the list.
fn include(plan: &mut Plan, seen: &PurgeSeen, list: &Reference, mut purges: Purges) {
    let spec = &seen.purge.spec;
    if purges.include(&uid(&seen.purge), &spec.paths, spec.prefix.as_deref()) {
        plan.tell(Event::normal(
            "PurgedEverything",
            format!(
                "there were too many purges of {} to tell apart: everything is purged once",
                spec.cluster
            ),
        ));
    }
    plan.step(
        Step::Update { target: list.clone(), fields: json!({"data": purges.write()}) },
        "this must not be served any more",
    );
}

fn uid(purge: &CdnPurge) -> String {
    purge.metadata.uid.clone().unwrap_or_default()
}
