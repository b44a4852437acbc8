//! The last decisions about a resource as a story: each with what had changed since the one before, what was done, and
//! why. Pure.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{lines::short, list, text};

/// More of what was seen helps nobody; all of it is in the JSON.
const SEEN_AT_MOST: usize = 8;
/// How an object is found, and what changes with everything else.
const NOISE: [&str; 7] =
    ["uid", "resourceVersion", "managedFields", "generation", "observedGeneration", "kind", "now"];

/// The decisions, oldest first.
pub(super) fn told(decisions: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut before: Option<&Value> = None;
    for decision in decisions {
        let took = decision.pointer("/tookMilliseconds").and_then(Value::as_f64).unwrap_or_default();
        lines.push(format!("{} ({took:.1} ms)", to_the_second(text(decision, "/at"))));
        if let Some(now) = decision.get("observation") {
            lines.extend(seen(before, now));
            before = Some(now);
        }
        lines.extend(done(decision));
    }
    lines
}

/// What was seen: at first in short, then what had changed.
fn seen(before: Option<&Value>, now: &Value) -> Vec<String> {
    let mut all = match before {
        None => overview(now),
        Some(before) => {
            let mut changes = Vec::new();
            compare(&mut changes, "", before, now);
            changes
        }
    };
    if all.len() > SEEN_AT_MOST {
        let more = all.len() + 1 - SEEN_AT_MOST;
        all.truncate(SEEN_AT_MOST - 1);
        all.push(format!("... and {more} more, with --output json"));
    }
    all.into_iter().map(|line| format!("  saw      {line}")).collect()
}

fn overview(seen: &Value) -> Vec<String> {
    let fields = seen.as_object().into_iter().flatten();
    let told = fields.filter(|(name, value)| !NOISE.contains(&name.as_str()) && !is_resource(value));
    told.filter_map(|(name, value)| {
        let words = match value {
            Value::Null | Value::Bool(false) => return None,
            Value::Array(items) if items.is_empty() => "none".to_owned(),
            Value::Array(items) if items.iter().all(|item| name_of(item).is_some()) => {
                items.iter().filter_map(name_of).collect::<Vec<_>>().join(", ")
            }
            Value::Object(fields) if fields.is_empty() => "none".to_owned(),
            other => short(other),
        };
        Some(format!("{name}: {words}"))
    })
    .collect()
}

/// Everything of Kubernetes has these, and what an operator looks after does.
fn is_resource(value: &Value) -> bool {
    value.get("apiVersion").is_some() && value.get("kind").is_some()
}

fn name_of(item: &Value) -> Option<&str> {
    ["/name", "/metadata/name", "/reference/name"].iter().find_map(|path| item.pointer(path)?.as_str())
}

fn compare(lines: &mut Vec<String>, path: &str, before: &Value, now: &Value) {
    match (before, now) {
        _ if before == now || is_time(before) || is_time(now) => {}
        (Value::Object(_), Value::Object(_)) if path.is_empty() || !is_resource(now) => {
            for name in names(before, now) {
                let inner = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                compare(lines, &inner, field(before, name), field(now, name));
            }
        }
        // What the operator wrote into the status itself is no news.
        (Value::Object(_), Value::Object(_)) => {
            compare(lines, "spec", field(before, "spec"), field(now, "spec"));
            for name in ["annotations", "labels", "deletionTimestamp"] {
                let of = |resource: &'_ Value| resource.pointer(&format!("/metadata/{name}")).cloned();
                match (of(before), of(now)) {
                    (before, now) if before == now => {}
                    (None, Some(_)) if name == "deletionTimestamp" => {
                        lines.push("that it is to go".to_owned())
                    }
                    (before, now) => {
                        compare(lines, name, &before.unwrap_or_default(), &now.unwrap_or_default());
                    }
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if [old, new].iter().all(|all| all.iter().all(has_name)) => {
            let find =
                |all: &[Value], name: &str| all.iter().find(|item| name_of(item) == Some(name)).cloned();
            let every: BTreeSet<_> = old.iter().chain(new).filter_map(name_of).collect();
            for name in every {
                match (find(old, name), find(new, name)) {
                    (Some(old), Some(new)) => compare(lines, &format!("{path}[{name}]"), &old, &new),
                    (None, _) => lines.push(format!("{path}[{name}]: new")),
                    (_, None) => lines.push(format!("{path}[{name}]: gone")),
                }
            }
        }
        (Value::Null, now) => lines.push(format!("{path}: {}", short(now))),
        (_, Value::Null) => lines.push(format!("{path}: gone")),
        (before, now) => lines.push(format!("{path}: {} -> {}", short(before), short(now))),
    }
}

fn has_name(item: &Value) -> bool {
    name_of(item).is_some()
}

fn names<'a>(before: &'a Value, now: &'a Value) -> BTreeSet<&'a str> {
    let fields = [before, now].into_iter().filter_map(Value::as_object);
    fields.flat_map(|fields| fields.keys()).map(String::as_str).filter(|name| !NOISE.contains(name)).collect()
}

fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<Timestamp>().is_ok())
}

/// What became of a decision, with the reason of each step.
fn done(decision: &Value) -> Vec<String> {
    let steps = list(decision, "/outcome/steps").iter().filter_map(Value::as_str);
    let planned = list(decision, "/plan/steps");
    let explained = |verb: &str, step: &str| {
        let reason = planned.iter().find(|planned| is_about(planned, step));
        match reason.map(|planned| text(planned, "/because")) {
            Some(because) => format!("  {verb:<8} {step}, because {because}"),
            None => format!("  {verb:<8} {step}"),
        }
    };
    match text(decision, "/outcome/result") {
        "unchanged" => vec!["  did      nothing: all was as it should be".to_owned()],
        "planned" => steps.map(|step| explained("would", step)).collect(),
        "done" => steps.map(|step| explained("did", step)).collect(),
        _ => {
            let mut lines: Vec<_> = steps.map(|step| explained("did", step)).collect();
            lines.push(format!("  failed   {}", text(decision, "/outcome/message")));
            lines
        }
    }
}

/// Whether a step of a plan is the one that is told in these words.
fn is_about(planned: &Value, words: &str) -> bool {
    let step = planned.get("step").and_then(Value::as_object).and_then(|step| step.values().next());
    let Some(step) = step else { return false };
    let kind = |place: &str| text(step, &format!("{place}/kind/kind")).to_owned();
    let objects = [
        (kind(""), text(step, "/content/metadata/name")),
        (kind("/target"), text(step, "/target/name")),
        ("Secret".to_owned(), text(step, "/name")),
    ];
    objects.iter().any(|(kind, name)| !name.is_empty() && words.ends_with(&format!("{kind} {name}")))
}

/// What it waits for, as its conditions tell it, and since when.
pub(super) fn waiting(object: &Value, now: Timestamp) -> Vec<String> {
    let conditions = list(object, "/status/conditions");
    if conditions.is_empty() {
        return vec!["it has no conditions, so nobody says whether it waits for something".to_owned()];
    }
    let unmet = conditions.iter().filter(|condition| !is_well(condition));
    let mut lines: Vec<_> = unmet
        .map(|condition| {
            let since = text(condition, "/lastTransitionTime");
            let already = since.parse::<Timestamp>().map(|since| lasts(now.duration_since(since).as_secs()));
            format!(
                "{} is {}, for {} already: {} ({})",
                text(condition, "/type"),
                text(condition, "/status"),
                already.unwrap_or_else(|_| "who knows how long".to_owned()),
                text(condition, "/message"),
                text(condition, "/reason"),
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push("it waits for nothing".to_owned());
    }
    lines
}

/// What conditions are called that are well when they are not so, by the last of their words: `Degraded`, `BackupFailed`,
/// `DiskPressure`. There is nothing in a condition that says it.
const BAD_NEWS: [&str; 14] = [
    "Blocked",
    "Conflict",
    "Degraded",
    "Error",
    "Errors",
    "Failed",
    "Failing",
    "Failure",
    "Invalid",
    "Lost",
    "Pressure",
    "Stalled",
    "Unavailable",
    "Unreachable",
];

/// Whether a condition is as one wants it. What is unknown is not.
fn is_well(condition: &Value) -> bool {
    let is_bad_news = BAD_NEWS.iter().any(|word| text(condition, "/type").ends_with(word));
    text(condition, "/status") == if is_bad_news { "False" } else { "True" }
}

/// A time as people say it.
fn lasts(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, hours, ..) => format!("{days}d{hours}h"),
    }
}

/// A time without the fractions that nobody reads.
fn to_the_second(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decision(observation: Value, steps: Value, outcome: Value) -> Value {
        json!({
            "at": "2026-01-02T03:04:05.678Z", "tookMilliseconds": 1.25,
            "observation": observation, "plan": {"steps": steps}, "outcome": outcome,
        })
    }

    fn seen(replicas: i32, pods: Value) -> Value {
        let resource = json!({"apiVersion": "a/v1", "kind": "Gordon", "metadata": {"name": "g", "generation": replicas},
            "spec": {"replicas": replicas}, "status": {"replicas": replicas}});
        json!({"gordon": resource, "image": "g:1", "pods": pods, "lastFailure": null, "now": "2026-01-02T03:04:05Z"})
    }

    fn pod(name: &str, phase: &str) -> Value {
        json!({"reference": {"name": name, "uid": phase, "kind": {"kind": "Pod"}}, "phase": phase, "created": format!("2026-01-02T03:04:0{}Z", phase.len())})
    }

    #[test]
    fn decisions_are_a_story_of_what_changed_and_what_was_done_about_it() {
        let create = |name: &str| json!({"step": {"create": {"kind": {"kind": "Pod"}, "content": {"metadata": {"name": name}}}}, "because": "one is wanted"});
        let delete = json!({"step": {"delete": {"target": {"kind": {"kind": "Pod"}, "name": "g-1"}}}, "because": "it is one too many"});
        let decisions = [
            decision(
                seen(2, json!([])),
                json!([create("g-0"), create("g-1")]),
                json!({"result": "done", "steps": ["create Pod g-0", "create Pod g-1", "write the status"]}),
            ),
            decision(
                seen(1, json!([pod("g-0", "Running"), pod("g-1", "Pending")])),
                json!([delete]),
                json!({"result": "failed", "steps": ["delete Pod g-1"], "message": "no answer"}),
            ),
            decision(
                seen(1, json!([pod("g-0", "Failed"), pod("g-2", "Running")])),
                json!([create("g-0")]),
                json!({"result": "planned", "steps": ["create Pod g-0"]}),
            ),
            decision(
                seen(1, json!([pod("g-0", "Running"), pod("g-2", "Running")])),
                json!([create("g-0")]),
                json!({"result": "unchanged"}),
            ),
        ];
        insta::assert_snapshot!(told(&decisions).join("\n"), @r#"
        2026-01-02T03:04:05Z (1.2 ms)
          saw      image: "g:1"
          saw      pods: none
          did      create Pod g-0, because one is wanted
          did      create Pod g-1, because one is wanted
          did      write the status
        2026-01-02T03:04:05Z (1.2 ms)
          saw      spec.replicas: 2 -> 1
          saw      pods[g-0]: new
          saw      pods[g-1]: new
          did      delete Pod g-1, because it is one too many
          failed   no answer
        2026-01-02T03:04:05Z (1.2 ms)
          saw      pods[g-0].phase: "Running" -> "Failed"
          saw      pods[g-1]: gone
          saw      pods[g-2]: new
          would    create Pod g-0, because one is wanted
        2026-01-02T03:04:05Z (1.2 ms)
          saw      pods[g-0].phase: "Failed" -> "Running"
          did      nothing: all was as it should be
        "#);
    }

    #[test]
    fn of_what_changed_only_so_much_is_told() {
        let many =
            |value: i32| Value::from_iter((0..20).map(|number| (format!("f{number:02}"), json!(value))));
        let lines = super::seen(Some(&many(1)), &many(2));
        assert_eq!(lines.len(), SEEN_AT_MOST);
        assert_eq!(lines[0], "  saw      f00: 1 -> 2");
        assert_eq!(lines[7], "  saw      ... and 13 more, with --output json");
    }

    fn with_conditions(all: &[(&str, &str)]) -> Vec<String> {
        let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status, "reason": "R", "lastTransitionTime": "2026-01-02T03:04:05Z", "message": "M"});
        let conditions: Vec<_> = all.iter().map(condition).collect();
        let now = "2026-01-02T04:05:06Z".parse().unwrap();
        waiting(&json!({"status": {"conditions": conditions}}), now)
    }

    #[test]
    fn what_is_not_so_is_waited_for_since_it_is_not() {
        assert_eq!(
            with_conditions(&[("Ready", "False"), ("Fine", "True"), ("Known", "Unknown")]),
            ["Ready is False, for 1h1m already: M (R)", "Known is Unknown, for 1h1m already: M (R)"]
        );
        assert_eq!(with_conditions(&[("Ready", "True")]), ["it waits for nothing"]);
    }

    #[test]
    fn bad_news_are_waited_for_while_they_are_so() {
        assert_eq!(
            with_conditions(&[("Degraded", "False"), ("BackupFailed", "False")]),
            ["it waits for nothing"]
        );
        assert_eq!(
            with_conditions(&[("Degraded", "True"), ("DiskPressure", "Unknown")]),
            ["Degraded is True, for 1h1m already: M (R)", "DiskPressure is Unknown, for 1h1m already: M (R)"]
        );
    }

    #[test]
    fn a_kind_without_conditions_says_nothing_about_what_it_waits_for() {
        for object in [json!({}), json!({"status": {"conditions": []}})] {
            let now = Timestamp::UNIX_EPOCH;
            assert_eq!(
                waiting(&object, now),
                ["it has no conditions, so nobody says whether it waits for something"]
            );
        }
    }

    #[test]
    fn a_time_is_told_by_its_two_largest_parts() {
        assert_eq!([9, 61, 3600, 90_000].map(lasts), ["9s", "1m1s", "1h0m", "1d1h"]);
    }
}
