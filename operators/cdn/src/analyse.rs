//! Analyse: from what was seen of a CdnCluster to what is to be done. Pure.
//!
//! Invariants:
//! - What cannot be is told, and changes nothing of what is there.
//! - A cluster is not begun before its sources serve; once it was begun it is
//!   looked after whether they do or not.
//! - Pods are replaced only if what people want of them changed, or something
//!   changed them; not because this operator is another version.

use std::time::Duration;

use kube::ResourceExt as _;
use wheelhouse::{
    Event, Known, Plan,
    plan::{Condition, Conditions},
};

use crate::{
    api::{CdnCluster, CdnClusterStatus, PodStatus, State},
    children::{self, Images, Template},
    configuration::{Configuration, Purges},
    observe::{PodSeen, Seen},
    validity::{check_sources, check_spec, source_clusters},
};

/// How often agents are asked when all is well.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// And when it is not.
const ASK_OFTEN: Duration = Duration::from_secs(2);

/// What is to be done about one cluster.
pub fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.cluster.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let waiting_for = missing_sources(seen);
    let verdict = match judge(seen) {
        Err(why) => {
            plan.tell(Event::warning("Invalid", &why));
            Verdict::Invalid(why)
        }
        Ok(_) if !waiting_for.is_empty() && seen.deployment.is_none() => {
            for missing in &waiting_for {
                plan.tell(missing.event());
            }
            Verdict::Waiting
        }
        Ok(deployment) => {
            let is_held_back = is_held_back(seen, &waiting_for);
            apply_children(&mut plan, seen, is_held_back);
            plan.apply(&deployment, "the pods are to be so");
            Verdict::Deployed { is_held_back }
        }
    };
    let status = status(seen, &verdict, &waiting_for);
    if !seen.pods.is_empty() {
        let is_well = status.state == Some(State::Ready);
        plan.look_again_after(if is_well { ASK_EVERY } else { ASK_OFTEN });
    }
    plan.set_status(&status);
    plan
}

enum Verdict {
    Invalid(String),
    Waiting,
    Deployed {
        /// What is wanted now would take from a source that is not there yet.
        is_held_back: bool,
    },
}

/// Whether what is served would get worse: by a source that does not serve, and that it does not
/// take from yet.
fn is_held_back(seen: &Seen, waiting_for: &[MissingSource]) -> bool {
    let Some(served) = &seen.configuration else { return false };
    waiting_for.iter().any(|missing| !served.takes_from(&missing.name))
}

/// A source that cannot be taken from.
struct MissingSource {
    name: String,
    is_there: bool,
}

impl MissingSource {
    fn words(&self) -> String {
        match self.is_there {
            true => format!("Source {} not ready, will retry later", self.name),
            false => format!("Source {} not found, will retry later", self.name),
        }
    }

    fn event(&self) -> Event {
        Event::normal(if self.is_there { "SourceNotReady" } else { "SourceNotFound" }, self.words())
    }
}

fn missing_sources(seen: &Seen) -> Vec<MissingSource> {
    let mut missing: Vec<MissingSource> = Vec::new();
    for name in source_clusters(&seen.cluster.spec) {
        let other = seen.others.get(name);
        let is_new = !missing.iter().any(|known| known.name == name);
        if is_new && other.is_none_or(|other| !other.ready) {
            missing.push(MissingSource { name: name.to_owned(), is_there: other.is_some() });
        }
    }
    missing
}

/// The Deployment, if what is wanted can be.
fn judge(seen: &Seen) -> Result<k8s_openapi::api::apps::v1::Deployment, String> {
    let spec = &seen.cluster.spec;
    check_spec(spec)?;
    check_sources(&seen.cluster.name_any(), spec, &seen.others)?;
    children::deployment(&seen.cluster, template(seen))
}

/// What the pods are to be made from: what they are made from, if only this operator changed.
fn template(seen: &Seen) -> Template {
    let wanted = children::wanted(&seen.cluster);
    if let Some(deployment) = &seen.deployment
        && deployment.wanted.as_ref() == Some(&wanted)
        && let (Some(content), Some(rendered_by)) = (&deployment.template, &deployment.rendered_by)
    {
        return Template { content: content.clone(), rendered_by: rendered_by.clone() };
    }
    children::template(&seen.cluster, &Images { nginx: &seen.nginx_image, agent: &seen.agent_image })
}

fn apply_children(plan: &mut Plan, seen: &Seen, is_held_back: bool) {
    let cluster = &seen.cluster;
    plan.apply(&children::service_account(cluster), "the agents are somebody of their own");
    plan.apply(&children::role(cluster), "the agents may follow their configuration");
    plan.apply(&children::role_binding(cluster), "the agents may follow their configuration");
    let configuration = Configuration::of(cluster);
    if !is_held_back {
        plan.apply(&children::configuration(cluster, &configuration), "this is to be served");
    }
    if !seen.has_purges {
        // If there was a list before, what it said is lost: what began later has nothing cached.
        let purges = Purges { began: seen.now.to_string(), ..Purges::default() };
        plan.create(&children::purges(cluster, &purges), "here it says what must not be served any more");
    }
    plan.apply(&children::service(cluster), "others find the pods by it");
    plan.apply(&children::disruption_budget(cluster), "so many pods are promised");
}

fn status(seen: &Seen, verdict: &Verdict, waiting_for: &[MissingSource]) -> CdnClusterStatus {
    let cluster = &seen.cluster;
    let name = cluster.name_any();
    let generation = cluster.metadata.generation;
    let last = cluster.status.clone().unwrap_or_default();
    let wanted = match verdict {
        Verdict::Deployed { is_held_back: false } => Configuration::of(cluster).name(),
        // What is served is still what was wanted before.
        _ => last.configuration.clone(),
    };
    let mut pods: Vec<_> = seen.pods.iter().map(|pod| pod_status(pod, cluster)).collect();
    pods.sort_by(|one, other| one.name.cmp(&other.name));
    let here = || pods.iter().filter(|pod| pod.ready);
    let configured = here().filter(|pod| pod.configuration.as_deref() == Some(wanted.as_str())).count();
    let ready = here().count();
    let (state, readiness) = readiness(seen, verdict, waiting_for, (ready, configured), &pods);
    let mut conditions = Conditions::from_last(&last.conditions, generation, seen.now);
    conditions.set(Condition {
        kind: "Available",
        status: (ready > 0).into(),
        reason: if ready > 0 { "Serving" } else { "NoPodReady" }.to_owned(),
        message: format!("{ready} of {} pods take requests", cluster.spec.replicas),
    });
    conditions.set(sources_ready(waiting_for));
    conditions.set(readiness);
    CdnClusterStatus {
        state: Some(state),
        observed_generation: generation,
        replicas: seen.deployment.as_ref().map_or(0, |deployment| deployment.replicas),
        ready_replicas: count(ready),
        configured_replicas: count(configured),
        selector: children::selector(&name),
        configuration: wanted,
        endpoints: endpoints(seen),
        pods,
        conditions: conditions.into_vec(),
    }
}

fn endpoints(seen: &Seen) -> Vec<String> {
    if seen.deployment.is_none() {
        return Vec::new();
    }
    let host = format!("{}.{}.svc", seen.cluster.name_any(), seen.cluster.namespace().unwrap_or_default());
    let https = seen.cluster.spec.tls.as_ref().map(|_| format!("https://{host}"));
    std::iter::once(format!("http://{host}")).chain(https).collect()
}

fn sources_ready(waiting_for: &[MissingSource]) -> Condition {
    let words: Vec<_> = waiting_for.iter().map(MissingSource::words).collect();
    let (reason, message) = match waiting_for.first() {
        None => ("AllReady", "all sources are there".to_owned()),
        Some(first) if first.is_there => ("SourceNotReady", words.join("; ")),
        Some(_) => ("SourceNotFound", words.join("; ")),
    };
    Condition {
        kind: "SourcesReady",
        status: waiting_for.is_empty().into(),
        reason: reason.to_owned(),
        message,
    }
}

fn readiness(
    seen: &Seen,
    verdict: &Verdict,
    waiting_for: &[MissingSource],
    (ready, configured): (usize, usize),
    pods: &[PodStatus],
) -> (State, Condition) {
    let replicas = seen.cluster.spec.replicas;
    let not_ready = |state: State, reason: &str, message: String| {
        let condition = Condition { kind: "Ready", status: false.into(), reason: reason.to_owned(), message };
        (state, condition)
    };
    match verdict {
        Verdict::Invalid(why) => return not_ready(State::Invalid, "Invalid", why.clone()),
        Verdict::Waiting => {
            let words: Vec<_> = waiting_for.iter().map(MissingSource::words).collect();
            return not_ready(State::WaitingSource, "WaitingSource", words.join("; "));
        }
        Verdict::Deployed { .. } => {}
    }
    if let Some(failure) = &seen.last_failure {
        let state = if seen.deployment.is_some() { State::Degraded } else { State::Deploying };
        return not_ready(state, failure.category.as_str(), failure.message.clone());
    }
    let Some(deployment) = &seen.deployment else {
        return not_ready(State::Deploying, "Deploying", format!("0 of {replicas} pods are ready"));
    };
    let is_rolled_out =
        deployment.is_observed && deployment.updated == replicas && deployment.replicas == replicas;
    let problem = pods.iter().find_map(|pod| Some(format!("pod {}: {}", pod.name, pod.problem.as_ref()?)));
    if let Some(problem) = problem {
        return not_ready(State::Degraded, "PodProblem", problem);
    }
    if !waiting_for.is_empty() {
        let words: Vec<_> = waiting_for.iter().map(MissingSource::words).collect();
        return not_ready(State::Degraded, "SourceMissing", words.join("; "));
    }
    if !is_rolled_out {
        let message = format!("{} of {replicas} pods are up to date, {ready} ready", deployment.updated);
        return not_ready(State::Deploying, "Deploying", message);
    }
    if count(ready) < replicas {
        // It was complete before: then this is no deployment, but trouble.
        let was_complete = is_ready_before(seen);
        let state = if was_complete { State::Degraded } else { State::Deploying };
        return not_ready(state, "PodsNotReady", format!("{ready} of {replicas} pods are ready"));
    }
    if configured < ready {
        let message = format!("{configured} of {ready} pods serve what is wanted");
        return not_ready(State::Deploying, "Configuring", message);
    }
    let message = format!("{ready} of {replicas} pods serve what is wanted");
    (State::Ready, Condition { kind: "Ready", status: true.into(), reason: "AllReady".to_owned(), message })
}

/// Whether what is wanted had been reached.
fn is_ready_before(seen: &Seen) -> bool {
    let Some(last) = &seen.cluster.status else { return false };
    let was_well = matches!(last.state, Some(State::Ready | State::Degraded));
    was_well && last.observed_generation == seen.cluster.metadata.generation
}

fn pod_status(pod: &PodSeen, cluster: &CdnCluster) -> PodStatus {
    let agent = pod.agent.value();
    let is_going = pod.reference.terminating;
    let sources = agent.iter().flat_map(|agent| &agent.sources);
    let sources: Vec<_> = sources.map(|(name, why)| format!("source {name}: {why}")).collect();
    let problem = match (&pod.agent, agent) {
        _ if is_going => None,
        (Known::Unknown { why, .. }, _) if pod.ready => Some(format!("its agent does not answer: {why}")),
        (_, Some(agent)) => {
            let refused = agent.refused.as_ref().map(|why| format!("it refused the configuration: {why}"));
            let certificate = cluster.spec.tls.as_ref().zip(agent.tls.as_ref());
            refused
                .or_else(|| certificate.map(|(tls, why)| format!("Secret {}: {why}", tls.secret_name)))
                .or_else(|| (!sources.is_empty()).then(|| sources.join("; ")))
        }
        _ => None,
    };
    PodStatus {
        name: pod.reference.name.clone(),
        node: pod.node.clone(),
        ready: pod.ready && !is_going,
        configuration: agent.and_then(|agent| agent.configuration.clone()),
        problem,
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde_json::{Value, json};
    use wheelhouse::{Reference, Step, jiff::Timestamp, kube::core::ObjectMeta};

    use super::*;
    use crate::{
        api::{AgentState, Role},
        observe::DeploymentSeen,
        validity::Neighbour,
    };

    fn seen(spec: Value) -> Seen {
        let cluster = json!({
            "apiVersion": "cluster.anevia.com/v1",
            "kind": "CdnCluster",
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "generation": 3},
            "spec": spec,
        });
        Seen {
            cluster: serde_json::from_value(cluster).unwrap(),
            nginx_image: "nginx".to_owned(),
            agent_image: "agent".to_owned(),
            others: BTreeMap::new(),
            deployment: None,
            has_purges: true,
            configuration: None,
            pods: Vec::new(),
            last_failure: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn cache() -> Value {
        json!({"role": "cache", "sources": []})
    }

    /// With a Deployment that has its two pods, and agents that say so.
    fn deployed(mut seen: Seen, agent: &AgentState) -> Seen {
        seen.deployment = Some(DeploymentSeen {
            wanted: Some(children::wanted(&seen.cluster)),
            rendered_by: Some(children::VERSION.to_owned()),
            template: None,
            is_observed: true,
            replicas: 2,
            updated: 2,
            ready: 2,
        });
        seen.pods = ["a", "b"].map(|name| pod(name, Some(agent))).into();
        seen
    }

    fn pod(name: &str, agent: Option<&AgentState>) -> PodSeen {
        let at = Timestamp::UNIX_EPOCH;
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let object = k8s_openapi::api::core::v1::Pod { metadata, ..Default::default() };
        PodSeen {
            reference: Reference::of(&object),
            node: None,
            ready: true,
            agent: match agent {
                Some(agent) => Known::Value { value: agent.clone(), at },
                None => Known::Unknown { why: "no answer".to_owned(), since: at },
            },
        }
    }

    fn serving(seen: &Seen) -> AgentState {
        AgentState { configuration: Some(Configuration::of(&seen.cluster).name()), ..AgentState::default() }
    }

    fn state(plan: &Plan) -> (Value, Value) {
        let status = plan.status.clone().unwrap();
        let conditions = status["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
        (status["state"].clone(), ready["message"].clone())
    }

    fn applied(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(|planned| planned.step.to_string()).collect()
    }

    #[test]
    fn a_new_cache_gets_all_it_consists_of_and_is_deploying() {
        let plan = analyse(&Seen { has_purges: false, ..seen(cache()) });
        assert_eq!(
            applied(&plan),
            [
                "apply ServiceAccount c-agent",
                "apply Role c-agent",
                "apply RoleBinding c-agent",
                "apply ConfigMap c-config",
                "create ConfigMap c-purges",
                "apply Service c",
                "apply PodDisruptionBudget c",
                "apply Deployment c-deployment",
            ]
        );
        assert_eq!(state(&plan).0, "Deploying");
    }

    #[test]
    fn it_is_ready_when_every_pod_serves_what_is_wanted() {
        let seen = seen(cache());
        let agent = serving(&seen);
        assert_eq!(state(&analyse(&deployed(seen.clone(), &agent))).0, "Ready");
        let old = AgentState { configuration: Some("old".to_owned()), ..agent };
        let (state, message) = state(&analyse(&deployed(seen, &old)));
        assert_eq!((state, message), (json!("Deploying"), json!("0 of 2 pods serve what is wanted")));
    }

    #[rstest]
    #[case::refused(|agent: &mut AgentState| { agent.refused = Some("bad".to_owned()); agent.configuration = None; }, "pod a: it refused the configuration: bad")]
    #[case::a_source(|agent: &mut AgentState| { agent.sources.insert("o".to_owned(), "o.example does not resolve".to_owned()); }, "pod a: source o: o.example does not resolve")]
    #[case::the_certificate(|agent: &mut AgentState| agent.tls = Some("there is no tls.crt in it".to_owned()), "pod a: Secret s: there is no tls.crt in it")]
    fn what_agents_say_is_told(#[case] change: fn(&mut AgentState), #[case] expected: &str) {
        let seen = seen(json!({"role": "cache", "sources": [], "tls": {"secretName": "s"}}));
        let mut agent = serving(&seen);
        change(&mut agent);
        let (state, message) = state(&analyse(&deployed(seen, &agent)));
        assert_eq!((state, message), (json!("Degraded"), json!(expected)));
    }

    #[test]
    fn a_source_that_is_not_there_yet_does_not_replace_one_that_serves() {
        let balancer = |source: &str| json!({"role": "balancer", "sources": [{"name": source}]});
        let neighbour = |ready| Neighbour { role: Role::Cache, sources: Vec::new(), ready };
        let old = Configuration::of(&seen(balancer("old")).cluster);
        let mut moved = seen(balancer("new"));
        moved.configuration = Some(old.clone());
        moved.others = BTreeMap::from([("new".to_owned(), neighbour(false))]);
        let moved = deployed(moved, &AgentState { configuration: Some(old.name()), ..AgentState::default() });
        let step = "apply ConfigMap c-config".to_owned();
        let plan = analyse(&moved);
        assert!(!applied(&plan).contains(&step), "{plan}");
        assert_eq!(state(&plan), (json!("Degraded"), json!("Source new not ready, will retry later")));
        let ready = Seen { others: BTreeMap::from([("new".to_owned(), neighbour(true))]), ..moved.clone() };
        assert!(applied(&analyse(&ready)).contains(&step));
        // One that it takes from already changes nothing.
        let lost = Seen { configuration: Some(Configuration::of(&moved.cluster)), ..moved };
        assert!(applied(&analyse(&lost)).contains(&step));
    }

    #[test]
    fn an_agent_that_does_not_answer_is_told_and_not_taken_for_absent() {
        let mut seen = seen(cache());
        seen = deployed(seen.clone(), &serving(&seen));
        seen.pods[1] = pod("b", None);
        let (state, message) = state(&analyse(&seen));
        assert_eq!(
            (state, message),
            (json!("Degraded"), json!("pod b: its agent does not answer: no answer"))
        );
    }

    #[test]
    fn a_source_that_serves_no_more_stops_nobody_who_has_begun() {
        let balancer = json!({"role": "balancer", "sources": [{"name": "cache"}]});
        let neighbour = |ready| Neighbour { role: Role::Cache, sources: Vec::new(), ready };
        let with = |ready| Seen {
            others: BTreeMap::from([("cache".to_owned(), neighbour(ready))]),
            ..seen(balancer.clone())
        };
        assert_eq!(state(&analyse(&with(false))).0, "WaitingSource");
        assert!(analyse(&with(false)).steps.is_empty());
        assert_eq!(state(&analyse(&with(true))).0, "Deploying");
        let begun = deployed(with(false), &serving(&with(false)));
        let plan = analyse(&begun);
        assert_eq!(state(&plan).0, "Degraded");
        assert!(!plan.steps.is_empty());
    }

    #[test]
    fn what_cannot_be_changes_nothing() {
        let bad = json!({"role": "cache", "sources": [{"name": "a", "pathCondition": "("}]});
        let plan = analyse(&deployed(seen(bad), &AgentState::default()));
        assert!(plan.steps.is_empty());
        assert_eq!(state(&plan).0, "Invalid");
    }

    #[test]
    fn another_version_of_this_operator_restarts_nobody_until_something_is_wanted_of_pods() {
        let template_of = |seen: &Seen| {
            let plan = analyse(seen);
            let Some(Step::Apply(deployment)) = plan.steps.last().map(|planned| planned.step.clone()) else {
                panic!("{plan}")
            };
            serde_json::to_value(&deployment).unwrap().to_string()
        };
        let mut seen = seen(cache());
        seen = deployed(seen.clone(), &serving(&seen));
        let deployment = seen.deployment.as_mut().unwrap();
        deployment.rendered_by = Some("0.0.1".to_owned());
        deployment.template = Some(
            json!({"metadata": {"labels": {"deployment": "c-deployment"}}, "spec": {"containers": [{"name": "old"}]}}),
        );
        assert!(template_of(&seen).contains(r#""name":"old""#));
        seen.cluster.spec.image = Some("newer".to_owned());
        let template = template_of(&seen);
        assert!(!template.contains(r#""name":"old""#) && template.contains("newer"), "{template}");
    }

    #[test]
    fn deciding_is_pure() {
        let seen: Seen = deployed(seen(cache()), &AgentState::default());
        let again: Seen = serde_json::from_value(serde_json::to_value(&seen).unwrap()).unwrap();
        assert_eq!(analyse(&seen), analyse(&again));
        let _: CdnCluster = again.cluster;
    }
}
