//! The certificates of a cluster: whether they are there, which are to be made next, and who has to be restarted
//! to trust others. Pure.
//!
//! Invariants:
//! - No pod is made or restarted while a certificate that it needs is missing, or not known to be there.
//! - How far a rotation goes depends on what every supervisor reports, in the words of its own pod: which authorities
//!   etcd has loaded, and which certificates are in the pod.

use kube::ResourceExt as _;
use wheelhouse::{
    Event, Known, Plan, Step,
    certificates::{
        AuthoritySeen, LeafSeen,
        rotation::{Rotation, Stage},
    },
    plan::{Certified, Condition, ConditionStatus},
};

use super::status::{last_condition, status_of};
use crate::{
    act::Change,
    api::EtcdClusterStatus,
    children,
    tls::{self, Digests, ROTATE, Side, TlsSeen},
    view::{Member, View},
};

/// The condition.
const READY: &str = "CertificatesReady";

/// Makes and renews what the operator itself is to make.
pub(super) fn look_after(plan: &mut Plan<Change>, view: &View<'_>) {
    let (Some(seen), Some(_)) = (&view.seen.tls, &view.tls.automatic) else { return };
    let Some(rotation) = rotation(view, seen) else { return };
    for (certify, because) in rotation.steps() {
        if let Some(event) = event(&certify.what, &because) {
            plan.tell(event);
        }
        plan.step(Step::Certify(Box::new(certify)), because);
    }
}

fn event(what: &Certified, because: &str) -> Option<Event> {
    match what {
        Certified::Authority { after: Some(_), .. } => {
            Some(Event::warning("AuthorityLost", "The authority was lost: another one takes its place"))
        }
        Certified::Announce { .. } => {
            let note = format!("A new authority is made known to all members: {because}");
            Some(Event::normal("RotatingAuthority", note))
        }
        Certified::HandOver => {
            Some(Event::normal("AuthorityChanged", format!("The new authority signs: {because}")))
        }
        Certified::ForgetFormer => {
            Some(Event::normal("AuthorityRotated", format!("The old authority is forgotten: {because}")))
        }
        Certified::Authority { .. } | Certified::Leaf { .. } => None,
    }
}

/// Whether all that pods need is known to be there.
pub(super) fn are_ready(view: &View<'_>) -> bool {
    let Some(seen) = &view.seen.tls else { return true };
    seen.secrets.values().all(|secret| secret.value().is_some_and(|secret| secret.problem.is_none()))
}

/// What is wrong with Secrets that somebody else looks after, in words.
pub(super) fn problem(view: &View<'_>) -> Option<String> {
    let seen = view.seen.tls.as_ref().filter(|_| view.tls.automatic.is_none())?;
    let told = seen.secrets.iter().filter_map(|(side, secret)| {
        let name = view.tls.secrets.get(side)?;
        match secret {
            Known::Absent => Some(format!("there is no Secret {name}")),
            Known::Value { value, .. } => {
                value.problem.as_ref().map(|problem| format!("Secret {name}: {problem}"))
            }
            Known::Unknown { .. } => None,
        }
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Whether etcd in a member's pod trusts others than it should, and would trust the right ones if it were
/// started anew.
pub(super) fn trusts_others(view: &View<'_>, member: &Member<'_>) -> bool {
    let Some(seen) = view.seen.tls.as_ref().filter(|_| can_lose_a_pod(view)) else { return false };
    let Some((trusts, mounted)) = report(member) else { return false };
    // Data in a pod goes with it: that can be done only while the others can do without.
    if view.seen.cluster.spec.storage.empty_dir && !member.is_healthy() {
        return false;
    }
    [Side::Peer, Side::Server].into_iter().any(|side| {
        let file = side.files().authorities;
        let wanted = bundle(seen, side);
        let loaded = trusts.0.get(&file);
        wanted.is_some() && loaded.is_some() && loaded != wanted && mounted.0.get(&file) == wanted
    })
}

/// Whether members that have their data in their pods can be made anew: nobody comes back with it, and of one or two
/// the others do not hold a quorum meanwhile.
pub(super) fn can_lose_a_pod(view: &View<'_>) -> bool {
    !view.seen.cluster.spec.storage.empty_dir || view.size > 2
}

/// What the supervisor in a member's pod says: what etcd trusts, and what is in the pod.
fn report(member: &Member<'_>) -> Option<(Digests, Digests)> {
    let (record, pod) = member.record.zip(member.pod)?;
    let read = |text: &str| text.parse::<Digests>().unwrap_or_default();
    (record.status.pod == pod.reference.uid)
        .then(|| (read(&record.status.trusts), read(&record.status.mounted)))
}

fn leaf(seen: &TlsSeen, side: Side) -> Option<&LeafSeen> {
    seen.secrets.get(&side)?.value()
}

fn bundle(seen: &TlsSeen, side: Side) -> Option<&String> {
    leaf(seen, side)?.bundle.as_ref()
}

/// Whether a member trusts those whom the Secrets say. Who has not started yet trusts what is in its pod by then;
/// so does who looks at the file each time.
fn trusts(seen: &TlsSeen, member: &Member<'_>) -> bool {
    let Some((trusts, mounted)) = report(member) else { return false };
    seen.secrets.keys().all(|side| {
        let file = side.files().authorities;
        let is_loaded = *side != Side::Client && !trusts.0.is_empty();
        let known = if is_loaded { trusts.0.get(&file) } else { mounted.0.get(&file) };
        known.is_some() && known == bundle(seen, *side)
    })
}

/// Whether a member has the certificates that are in the Secrets.
fn shows(seen: &TlsSeen, member: &Member<'_>) -> bool {
    let Some((_, mounted)) = report(member) else { return false };
    seen.secrets.keys().all(|side| {
        let known = mounted.0.get(&side.files().certificate);
        known.is_some() && known == leaf(seen, *side).and_then(|leaf| leaf.certificate.as_ref())
    })
}

/// Members whose pods matter: they are, or are to be, members. Who waits for a node has read nothing yet, and will read what
/// is right by then; that may be never.
fn with_pods<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Member<'a>> {
    let counts = |member: &&Member<'_>| match member.pod {
        Some(pod) => member.listed.is_some() || (member.is_kept() && pod.has_node),
        None => false,
    };
    view.members.iter().filter(counts)
}

/// What is known of the authority; nothing while something has yet to be read.
fn rotation<'a>(view: &View<'_>, seen: &'a TlsSeen) -> Option<Rotation<'a>> {
    let automatic = view.tls.automatic.as_ref()?;
    let cluster = &view.seen.cluster;
    let authority = match &seen.authority {
        Known::Value { value, .. } => Some(value),
        Known::Absent => None,
        Known::Unknown { .. } => return None,
    };
    let mut leaves = Vec::new();
    for (side, secret) in &view.tls.secrets {
        let known = match seen.secrets.get(side)? {
            Known::Value { value, .. } => Some(value),
            Known::Absent => None,
            Known::Unknown { .. } => return None,
        };
        leaves.push((tls::leaf(cluster, *side, secret), known));
    }
    let has_its_bundle = |authority: &AuthoritySeen| {
        seen.secrets.keys().all(|side| bundle(seen, *side) == Some(&authority.bundle))
    };
    Some(Rotation {
        secret: tls::authority_name(&view.name),
        labels: children::labels(cluster),
        authority,
        leaves,
        asked: cluster.annotations().get(ROTATE).cloned(),
        validity: automatic.validity(),
        is_trusted: authority.is_some_and(has_its_bundle)
            && with_pods(view).all(|member| trusts(seen, member)),
        is_shown: with_pods(view).all(|member| shows(seen, member)),
        now: view.seen.now,
    })
}

/// How the certificates are; nothing where nobody speaks TLS.
pub(super) fn condition(view: &View<'_>, last: &EtcdClusterStatus) -> Option<Condition> {
    let seen = view.seen.tls.as_ref()?;
    let condition = |status, reason: &str, message: String| {
        Some(Condition { kind: READY, status, reason: reason.to_owned(), message })
    };
    if let Some(problem) = problem(view) {
        let message = format!("{problem}. No pod is made or restarted until that is mended");
        return condition(ConditionStatus::False, "Missing", message);
    }
    let unknown = seen.secrets.iter().find_map(|(side, secret)| match secret {
        Known::Unknown { why, .. } => Some((view.tls.secrets.get(side)?, why, secret.is_not_asked_yet())),
        _ => None,
    });
    let is_being_read = seen.authority.is_unknown() || unknown.is_some_and(|(.., is_first)| is_first);
    if let (true, Some(known)) = (is_being_read, last_condition(last, READY)) {
        return condition(status_of(&known.status), &known.reason, known.message.clone());
    }
    if let Some((secret, why, _)) = unknown {
        return condition(ConditionStatus::Unknown, "NotRead", format!("cannot read Secret {secret}: {why}"));
    }
    if view.tls.automatic.is_none() {
        let waiting = names(with_pods(view).filter(|member| !trusts(seen, member)));
        return match waiting.is_empty() {
            true => condition(ConditionStatus::True, "Ready", "the Secrets are complete".to_owned()),
            false => {
                let message = format!("other authorities are to be trusted: {waiting} did not load them yet");
                condition(ConditionStatus::True, "Loading", message)
            }
        };
    }
    let rotation = rotation(view, seen)?;
    let (status, reason, message) = progress(view, seen, &rotation);
    condition(status, reason, message)
}

/// How far the authority is, for people.
fn progress(
    view: &View<'_>,
    seen: &TlsSeen,
    rotation: &Rotation<'_>,
) -> (ConditionStatus, &'static str, String) {
    let do_not_trust = names(with_pods(view).filter(|member| !trusts(seen, member)));
    let do_not_show = names(with_pods(view).filter(|member| !shows(seen, member)));
    let stuck = match can_lose_a_pod(view) {
        true => "",
        false => ", and none is restarted, because its data is in its pod",
    };
    let until = rotation.authority.and_then(|authority| Some(authority.signing.as_ref()?.until));
    let until = until.map(|until| until.to_string()).unwrap_or_default();
    match rotation.stage() {
        Stage::Making => (ConditionStatus::False, "Making", "the certificates are being made".to_owned()),
        Stage::Announced if !do_not_trust.is_empty() => {
            let message = format!("a new authority is made known: {do_not_trust} did not load it yet{stuck}");
            (ConditionStatus::True, "Rotating", message)
        }
        Stage::Announced => {
            let message =
                "a new authority is made known: clients have time to read the Secret again".to_owned();
            (ConditionStatus::True, "Rotating", message)
        }
        Stage::HandedOver if !do_not_show.is_empty() => {
            let message = format!("the new authority signs: {do_not_show} did not get its certificate yet");
            (ConditionStatus::True, "Rotating", message)
        }
        Stage::HandedOver => {
            let message = "the new authority signs: clients have time to read the Secret again".to_owned();
            (ConditionStatus::True, "Rotating", message)
        }
        Stage::Settling if !do_not_trust.is_empty() => {
            let message =
                format!("the authority is good until {until}: {do_not_trust} did not load it yet{stuck}");
            (ConditionStatus::True, "Settling", message)
        }
        Stage::Settling | Stage::Steady => {
            let message = format!("the authority is good until {until}, and replaced before");
            (ConditionStatus::True, "Ready", message)
        }
    }
}

fn names<'a>(members: impl Iterator<Item = &'a Member<'a>>) -> String {
    members.map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ")
}
