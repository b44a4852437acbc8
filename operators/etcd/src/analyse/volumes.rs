//! Volumes that are to become larger. Pure.
//!
//! Whether the class of a volume allows that is for the API server to say. What it has refused is not asked for again
//! before somebody changes the spec, so that a refusal costs nothing else.

use serde_json::json;
use wheelhouse::{
    Plan, Step,
    plan::{Condition, ConditionStatus},
    world::Failure,
};

use crate::{
    act::Change,
    api::EtcdCluster,
    observe::VolumeSeen,
    size::Size,
    view::{Member, View},
};

const EXPANDED: &str = "VolumesExpanded";
const REFUSED: &str = "Refused";

/// How large people want volumes to be, in their words.
fn wanted(cluster: &EtcdCluster) -> Option<String> {
    let theirs = cluster.spec.pod.as_ref().and_then(|pod| pod.persistent_volume_claim_spec.as_ref());
    match theirs {
        Some(theirs) => {
            let requests = theirs.resources.as_ref()?.requests.as_ref()?;
            requests.get("storage").map(|quantity| quantity.0.clone())
        }
        None => Some(cluster.spec.storage.size.clone()),
    }
}

/// Members whose volumes are smaller than they are wanted, as far as anybody asked for more.
fn too_small<'a, 'b>(view: &'a View<'b>) -> impl Iterator<Item = (&'a Member<'b>, &'b VolumeSeen)> {
    let wanted = wanted(&view.seen.cluster).and_then(|text| Size::of(&text));
    let volumes = view.members.iter().filter_map(|member| Some((member, member.volume?)));
    volumes.filter(move |(member, volume)| {
        member.is_kept()
            && !volume.reference.terminating
            && volume.requested.is_some_and(|size| Some(size) < wanted)
    })
}

/// Whether the last attempt failed because a volume may not become larger.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    failure.message.contains("update PersistentVolumeClaim")
        && ["forbidden", "is invalid", "Forbidden", "Invalid"]
            .iter()
            .any(|word| failure.message.contains(word))
}

fn refusal(view: &View<'_>) -> Option<String> {
    let now = view.seen.last_failure.as_ref().filter(|failure| is_refusal(failure));
    let status = view.seen.cluster.status.as_ref();
    let told = status.and_then(|status| status.conditions.iter().find(|known| known.type_ == EXPANDED));
    let generation = view.seen.cluster.metadata.generation;
    let told = told.filter(|known| known.reason == REFUSED && known.observed_generation == generation);
    now.map(|failure| {
        format!(
            "{}; let the storage class allow expansion: any change of the spec tries again, or expand the PersistentVolumeClaims yourself",
            failure.message
        )
    })
    .or_else(|| told.map(|known| known.message.clone()))
}

/// Lets the next volume become larger.
pub(super) fn expand(plan: &mut Plan<Change>, view: &View<'_>) -> bool {
    let Some(size) = wanted(&view.seen.cluster).filter(|_| refusal(view).is_none()) else { return false };
    // A claim that nothing is bound to yet cannot be changed.
    let mut bound = too_small(view).filter(|(_, volume)| volume.capacity.is_some());
    let Some((member, volume)) = bound.next() else { return false };
    let fields = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let target = volume.reference.clone();
    plan.step(Step::Update { target, fields }, format!("the volume of {} is to have {size}", member.name));
    true
}

/// Whether volumes are as large as they are wanted.
pub(super) fn condition(view: &View<'_>) -> Option<Condition> {
    let condition = |status, reason: &str, message: String| {
        Some(Condition { kind: EXPANDED, status, reason: reason.to_owned(), message })
    };
    if view.seen.cluster.spec.storage.empty_dir {
        return None;
    }
    let is_growing = |member: &&Member<'_>| {
        let volume = member.volume.filter(|_| member.is_kept());
        volume.is_some_and(|volume| volume.capacity.is_some() && volume.capacity < volume.requested)
    };
    let size = wanted(&view.seen.cluster).unwrap_or_default();
    let small: Vec<_> = too_small(view).map(|(member, _)| member.name.as_str()).collect();
    match refusal(view) {
        Some(why) if !small.is_empty() => condition(ConditionStatus::False, REFUSED, why),
        _ => {
            let growing = view.members.iter().filter(is_growing).map(|member| member.name.as_str());
            let waiting: Vec<_> = small.iter().copied().chain(growing).collect();
            match waiting.is_empty() {
                true => condition(
                    ConditionStatus::True,
                    "AsWanted",
                    "every volume is at least as large as it is wanted".to_owned(),
                ),
                false => condition(
                    ConditionStatus::False,
                    "Expanding",
                    format!("the volumes of {} are to have {size}", waiting.join(", ")),
                ),
            }
        }
    }
}
