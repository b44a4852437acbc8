//! Analyse: from what was seen to what is to be done. Pure.
//!
//! Invariants:
//! - Pods are called `NAME-0` to `NAME-(N-1)`; one of another name is never made,
//!   and none is made while as many as are wanted are there, whatever their names.
//! - A pod is deleted only if it is not wanted, has run to its end, or is to be
//!   replaced because what is wanted changed, and then only while all others are
//!   ready; one that is not ready itself, while every pod that was replaced is, or if
//!   it never ran. One at a time.

use std::time::Duration;

use serde_json::json;
use wheelhouse::{
    Event, Plan, Step,
    jiff::SignedDuration,
    k8s_openapi::api::core::v1::Pod,
    kube::ResourceExt as _,
    plan::{Condition, Conditions, Guard},
};

use crate::{
    api::{GordonStatus, PodStatus},
    observe::{PodSeen, Seen},
    pod,
};

/// A pod that ends at once is not replaced more often than that.
const REPLACED_EVERY: Duration = Duration::from_secs(10);

/// What is to be done about one Gordon.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.gordon.metadata.deletion_timestamp.is_none() {
        match render_missing(seen) {
            Ok(missing) => {
                create(&mut plan, seen, missing);
                if let Some(complaint) = name_taken(seen) {
                    plan.tell(Event::warning("NameTaken", complaint));
                }
                remove_one(&mut plan, seen);
                plan.set_status(&status(seen, None));
            }
            Err(complaint) => {
                plan.tell(Event::warning("InvalidTemplate", &complaint));
                plan.set_status(&status(seen, Some(complaint)));
            }
        }
    }
    plan
}

fn wanted(seen: &Seen) -> i32 {
    seen.gordon.spec.gordon.replicas
}

fn has_wanted_name(seen: &Seen, pod: &PodSeen) -> bool {
    pod::index(&seen.gordon.name_any(), &pod.reference.name).is_some_and(|index| index < wanted(seen))
}

fn render_missing(seen: &Seen) -> Result<Vec<Pod>, String> {
    // Also when nothing is missing, so that a template is known to be wrong at once.
    pod::render(&seen.gordon, &seen.image, 0)?;
    let missing = (0..wanted(seen)).filter(|index| {
        let name = pod::name(&seen.gordon.name_any(), *index);
        !seen.taken_names.contains(&name) && !seen.pods.iter().any(|pod| pod.reference.name == name)
    });
    let here = seen.pods.iter().filter(|pod| !pod.reference.terminating).count();
    let room = usize::try_from(wanted(seen)).unwrap_or(0).saturating_sub(here);
    missing.take(room).map(|index| pod::render(&seen.gordon, &seen.image, index)).collect()
}

fn create(plan: &mut Plan, seen: &Seen, missing: Vec<Pod>) {
    let replicas = wanted(seen);
    for pod in missing {
        plan.tell(Event::normal("Scheduled", format!("Scheduled pod {}", pod.name_any())));
        plan.create(&pod, format!("Deploying {replicas} replicas of gordon"));
    }
}

/// The most urgent removal, if there is one.
fn remove_one(plan: &mut Plan, seen: &Seen) {
    let here = || seen.pods.iter().filter(|pod| !pod.reference.terminating);
    let surplus = here()
        .filter(|pod| !has_wanted_name(seen, pod))
        .max_by_key(|pod| (pod.reference.name.len(), pod.reference.name.clone()));
    if let Some(pod) = surplus {
        let because = format!("{} replicas of gordon are wanted", wanted(seen));
        return remove(plan, pod, Guard::Identity, because);
    }
    for pod in here().filter(|pod| pod.is_finished()) {
        let age = seen.now.duration_since(pod.created);
        let wait = SignedDuration::try_from(REPLACED_EVERY).unwrap_or_default().saturating_sub(age);
        if wait.is_positive() {
            plan.look_again_after(wait.unsigned_abs());
        } else {
            let still = Guard::Still(vec![("/status/phase".to_owned(), json!(pod.phase))]);
            return remove(plan, pod, still, format!("it has {}, and is replaced", pod.phase.to_lowercase()));
        }
    }
    let wanted_of_pods = pod::wanted(&seen.gordon.spec.gordon);
    let is_whole = here().count() == usize::try_from(wanted(seen)).unwrap_or(0);
    let all_ready = is_whole && seen.pods.iter().all(|pod| pod.ready && !pod.reference.terminating);
    let is_outdated = |pod: &PodSeen| pod.made_for.as_deref() != Some(&wanted_of_pods);
    let is_replaced = |pod: &PodSeen| !is_outdated(pod) && !pod.reference.terminating && pod.ready;
    // One that does not work may go before those that do, but not while the last
    // one that was replaced does not work either: that may be why. One that never
    // ran can go at any time.
    let none_under_way = is_whole && seen.pods.iter().all(|pod| is_outdated(pod) || is_replaced(pod));
    let because = || "what is wanted of pods has changed".to_owned();
    let may_go_first = |pod: &PodSeen| !pod.ready && (none_under_way || pod.phase == "Pending");
    if let Some(pod) = here().find(|pod| is_outdated(pod) && may_go_first(pod)) {
        remove(plan, pod, Guard::Unchanged, because());
    } else if let Some(pod) = here().find(|pod| is_outdated(pod) && all_ready) {
        remove(plan, pod, Guard::Identity, because());
    }
}

fn remove(plan: &mut Plan, pod: &PodSeen, guard: Guard, because: String) {
    plan.tell(Event::normal("Removing", format!("Removing pod {}: {because}", pod.reference.name)));
    plan.step(Step::Delete { target: pod.reference.clone(), guard }, because);
}

fn status(seen: &Seen, complaint: Option<String>) -> GordonStatus {
    let generation = seen.gordon.metadata.generation;
    let last = seen.gordon.status.clone().unwrap_or_default();
    let pods = seen.pods.iter().map(|pod| PodStatus {
        name: pod.reference.name.clone(),
        phase: if pod.reference.terminating { "Terminating".to_owned() } else { pod.phase.clone() },
        ready: pod.ready && !pod.reference.terminating,
        node: pod.node.clone(),
    });
    let mut pods: Vec<_> = pods.collect();
    pods.sort_by_key(|pod| (pod::index(&seen.gordon.name_any(), &pod.name), pod.name.clone()));
    let ready = pods.iter().filter(|pod| pod.ready).count();
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(readiness(seen, ready, complaint));
    GordonStatus {
        observed_generation: generation,
        replicas: count(pods.len()),
        ready_replicas: count(ready),
        selector: format!("{}={}", pod::LABEL, seen.gordon.name_any()),
        conditions: conditions.into_vec(),
        pods,
    }
}

fn name_taken(seen: &Seen) -> Option<String> {
    let name = seen.taken_names.first()?;
    Some(format!("pod {name} belongs to somebody else: rename this Gordon or remove that pod"))
}

fn readiness(seen: &Seen, ready: usize, complaint: Option<String>) -> Condition {
    let replicas = wanted(seen);
    let is_complete = count(ready) == replicas && seen.pods.len() == ready;
    let not_ready = |reason: &str, message: String| Condition {
        kind: "Ready",
        status: false.into(),
        reason: reason.to_owned(),
        message,
    };
    if let Some(complaint) = complaint {
        not_ready("InvalidTemplate", complaint)
    } else if let Some(complaint) = name_taken(seen) {
        not_ready("NameTaken", complaint)
    } else if is_complete {
        let message = format!("{ready} of {replicas} pods are ready");
        Condition { kind: "Ready", status: true.into(), reason: "AllReady".to_owned(), message }
    } else if let Some(failure) = &seen.last_failure {
        not_ready(failure.category.as_str(), failure.message.clone())
    } else if seen.pods.len() > usize::try_from(replicas).unwrap_or(0) {
        not_ready("ScalingDown", format!("{} pods are there, {replicas} are wanted", seen.pods.len()))
    } else {
        not_ready("WaitingForPods", format!("{ready} of {replicas} pods are ready"))
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
