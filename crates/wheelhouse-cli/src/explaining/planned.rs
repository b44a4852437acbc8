//! A plan as people read it: the steps that would change something, each beside what is there; how many would not; and what
//! becomes of the status.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Map, Value, json};

use super::{
    fields,
    lines::{Line, Sign, in_short},
    list, text,
};

/// How the SDK says that the status would be written.
const WRITE_THE_STATUS: &str = "write the status";
/// The condition that the SDK itself writes, beside those of a plan.
const MODE_CONDITION: &str = "wheelhouse.dev/Mode";

/// What an operator would do about a resource, as that operator answered.
pub(super) async fn shown(client: &Client, operator: &str, looked: &Value) -> Result<Vec<Line>> {
    let namespace = text(looked, "/key").split_once('/').map(|(namespace, _)| namespace);
    let steps = steps(looked);
    let mut found = Vec::new();
    for step in &steps {
        found.push(match step.place(namespace).filter(|_| step.fate == Fate::Changes) {
            Some(place) => place.look(client).await?,
            None => Found::Nothing,
        });
    }
    Ok(told(looked, operator, &steps, &found))
}

/// What the operator says becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate<'a> {
    /// It would change something.
    Changes,
    /// It is so already.
    IsSo,
    /// It would fail, in these words.
    Fails(&'a str),
    /// Another one before it would fail.
    IsNotReached,
}

/// A step of a plan.
struct Step<'a> {
    what: &'a str,
    content: &'a Value,
    because: &'a str,
    words: Option<&'a str>,
    fate: Fate<'a>,
}

fn steps(looked: &Value) -> Vec<Step<'_>> {
    let would: Vec<_> = list(looked, "/would").iter().filter_map(Value::as_str).collect();
    let words = list(looked, "/words");
    let mut has_failed = false;
    let mut steps = Vec::new();
    for (number, planned) in list(looked, "/plan/steps").iter().enumerate() {
        let step = planned.get("step").and_then(Value::as_object).and_then(|step| step.iter().next());
        let Some((what, content)) = step else { continue };
        let words = words.get(number).and_then(Value::as_str);
        let fails = words.and_then(|words| {
            let failure = format!("fail to {words}: ");
            would.iter().find(|would| would.starts_with(&failure))
        });
        let fate = match (words, fails) {
            _ if has_failed => Fate::IsNotReached,
            (_, Some(failure)) => Fate::Fails(failure),
            (Some(words), None) if !would.contains(&words) => Fate::IsSo,
            _ => Fate::Changes,
        };
        has_failed |= matches!(fate, Fate::Fails(_));
        steps.push(Step { what, content, because: text(planned, "/because"), words, fate });
    }
    steps
}

/// Where the object is that a step writes.
struct Place<'a> {
    kind: GroupVersionKind,
    plural: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

/// What is there, of what a step writes.
#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    /// Whoever asks may not see it.
    Unreadable,
    Object(Value),
}

impl Step<'_> {
    /// Where the object is, if the step writes one field by field.
    fn place<'a>(&'a self, default: Option<&'a str>) -> Option<Place<'a>> {
        let (kind, name, namespace) = match self.what {
            "apply" | "applyForeign" | "create" => {
                ("/kind", "/content/metadata/name", "/content/metadata/namespace")
            }
            "update" => ("/target/kind", "/target/name", "/target/namespace"),
            _ => return None,
        };
        let kind = self.content.pointer(kind)?;
        Some(Place {
            kind: GroupVersionKind::gvk(text(kind, "/group"), text(kind, "/version"), text(kind, "/kind")),
            plural: text(kind, "/plural"),
            namespace: self.content.pointer(namespace).and_then(Value::as_str).or(default),
            name: text(self.content, name),
        })
    }
}

impl Place<'_> {
    async fn look(&self, client: &Client) -> Result<Found> {
        let resource = ApiResource::from_gvk_with_plural(&self.kind, self.plural);
        let api: Api<DynamicObject> = match self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        found(api.get_opt(self.name).await).with_context(|| {
            format!("cannot read {} {}, to compare it with the plan", self.kind.kind, self.name)
        })
    }
}

/// What an answer says is there. Who may not see it may know the rest of the plan; of what did not answer nobody knows anything.
fn found(answer: kube::Result<Option<DynamicObject>>) -> Result<Found> {
    match answer {
        Ok(None) => Ok(Found::Nothing),
        Ok(Some(object)) => Ok(Found::Object(serde_json::to_value(object)?)),
        // A kind that is not served is told without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::Nothing),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Found::Unreadable),
        Err(error) => Err(error.into()),
    }
}

fn told(looked: &Value, operator: &str, steps: &[Step<'_>], found: &[Found]) -> Vec<Line> {
    let manager = format!("{operator}/{}", text(looked, "/controller"));
    let would: Vec<_> = list(looked, "/would").iter().filter_map(Value::as_str).collect();
    let (mut lines, mut others, mut not_reached) = (Vec::new(), 0, 0);
    for (step, found) in steps.iter().zip(found) {
        match step.fate {
            Fate::Changes => lines.extend(step.changes(found, &manager)),
            Fate::Fails(failure) => lines.push(Line::object(Sign::Action, failure)),
            Fate::IsSo => {
                others += 1;
                continue;
            }
            Fate::IsNotReached => {
                not_reached += 1;
                continue;
            }
        }
        lines.push(Line::words(2, format!("because {}", step.because)));
    }
    if let Some(status) = looked.pointer("/plan/status").filter(|_| would.contains(&WRITE_THE_STATUS)) {
        let changed = fields::replaced(status, &status_before(looked));
        if !changed.is_empty() {
            lines.push(Line::words(1, "status"));
            lines.extend(changed);
        }
    }
    for event in list(looked, "/plan/events") {
        let [kind, reason, note] = ["/kind", "/reason", "/note"].map(|field| text(event, field));
        lines.push(Line::words(0, format!("event {kind} {reason}: {note}")));
    }
    if others > 0 {
        lines.push(Line::words(0, format!("and {others} more that are as they are to be")));
    }
    if not_reached > 0 {
        lines.push(Line::words(0, format!("and {not_reached} more that come only after what would fail")));
    }
    lines.push(match would.is_empty() {
        true => Line::words(0, "nothing would change"),
        false => Line::words(0, format!("would {}", would.join(", "))),
    });
    lines
}

impl Step<'_> {
    /// What it would change: always a line for the step itself, also where no field of it can be shown.
    fn changes(&self, found: &Found, manager: &str) -> Vec<Line> {
        let target =
            || format!("{} {}", text(self.content, "/target/kind/kind"), text(self.content, "/target/name"));
        match self.what {
            "apply" | "applyForeign" | "create" | "update" => self.compared(found, manager),
            "delete" | "evict" => vec![Line::object(Sign::Removed, &target())],
            other => vec![match self.words {
                Some(words) => Line::object(Sign::Action, words),
                None => Line::action(other, self.content),
            }],
        }
    }

    fn compared(&self, found: &Found, manager: &str) -> Vec<Line> {
        let Some(place) = self.place(None) else { return Vec::new() };
        let title = format!("{} {}", place.kind.kind, place.name);
        let is_secret = place.kind.kind == "Secret" && place.kind.group.is_empty();
        let field = if self.what == "update" { "fields" } else { "content" };
        let mut wanted = self.content.get(field).cloned().unwrap_or_default();
        let mut there = match found {
            Found::Unreadable => {
                let title = format!("{title}: cannot be read, so not compared");
                return vec![Line::object(Sign::Unknown, &title)];
            }
            Found::Object(_) if self.what == "create" => {
                let title = format!("{title}: there is one of that name by now");
                return vec![Line::object(Sign::Action, &title)];
            }
            Found::Nothing if self.what == "update" => {
                let title = format!("{title}: it is gone by now");
                return vec![Line::object(Sign::Action, &title)];
            }
            Found::Nothing => {
                let mut lines = vec![Line::object(Sign::Added, &title)];
                lines.extend(in_short(fields::mentioned(&wanted)));
                return lines;
            }
            Found::Object(there) => there.clone(),
        };
        if is_secret {
            hide(&mut wanted, &mut there);
        }
        let changed = match self.what {
            "update" => fields::merged(&wanted, &there),
            _ => fields::applied(&wanted, &there, manager),
        };
        let title = match is_secret {
            true => format!("{title}, whose values are not shown"),
            false => title,
        };
        let mut lines = vec![Line::object(Sign::Changed, &title)];
        lines.extend(changed);
        lines
    }
}

/// Of what a Secret holds the plan has digests, and the cluster has the secrets: only which values there are is shown.
fn hide(wanted: &mut Value, there: &mut Value) {
    for secret in [wanted, there] {
        let Some(fields) = secret.as_object_mut() else { continue };
        let texts = fields.remove("stringData");
        let mut values: Map<String, Value> = Map::new();
        for held in [fields.remove("data"), texts].into_iter().flatten() {
            values.extend(held.as_object().into_iter().flatten().map(|(name, value)| {
                (name.clone(), if value.is_null() { Value::Null } else { json!("...") })
            }));
        }
        if !values.is_empty() {
            fields.insert("data".to_owned(), Value::Object(values));
        }
    }
}

/// The status of the resource that was looked at, but for what the SDK says there itself: whatever its observation calls it, it is
/// of that name and of a kind.
fn status_before(looked: &Value) -> Value {
    let name = text(looked, "/key").rsplit('/').next().unwrap_or_default();
    let fields = looked.get("observation").and_then(Value::as_object);
    let resource = fields.into_iter().flatten().map(|(_, value)| value).find(|value| {
        value.get("apiVersion").is_some()
            && value.get("kind").is_some()
            && text(value, "/metadata/name") == name
    });
    let mut status = resource.and_then(|resource| resource.get("status")).cloned().unwrap_or_default();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| text(condition, "/type") != MODE_CONDITION);
    }
    status
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const APPLY: &str = "apply Deployment one";

    fn object(kind: &str, metadata: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata})
    }

    fn write(what: &str, kind: &str, content: Value) -> Value {
        let group = if kind == "Deployment" { "apps" } else { "" };
        let kind = json!({"group": group, "version": "v1", "kind": kind, "plural": "things"});
        json!({"step": {what: {"kind": kind, "content": content}}, "because": "it is wanted"})
    }

    fn apply_one() -> Value {
        write("apply", "Deployment", object("Deployment", json!({"name": "one", "labels": {"app": "one"}})))
    }

    fn looked(steps: Value, words: &[&str], would: &[&str]) -> Value {
        json!({"controller": "page", "key": "default/one", "plan": {"steps": steps}, "words": words, "would": would})
    }

    /// What is printed, where each step finds this.
    fn printed(looked: &Value, found: impl Fn() -> Found) -> String {
        let steps = steps(looked);
        let found: Vec<_> = steps.iter().map(|_| found()).collect();
        let lines = told(looked, "shop-operator", &steps, &found);
        lines.iter().map(|line| format!("{}\n", line.text())).collect()
    }

    fn there(labels: Value, ours: Value) -> Found {
        let mut there = object("Deployment", json!({"name": "one", "labels": labels}));
        there["metadata"]["managedFields"] = json!([{"manager": "shop-operator/page", "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:labels": ours}}}]);
        Found::Object(there)
    }

    #[test]
    fn a_field_that_an_apply_takes_away_is_shown_and_not_counted_as_fine() {
        let looked = looked(json!([apply_one()]), &[APPLY], &[APPLY]);
        let there = || there(json!({"app": "one", "old": "x"}), json!({"f:app": {}, "f:old": {}}));
        insta::assert_snapshot!(printed(&looked, there), @r#"
        ~ Deployment one
          - metadata.labels.old: "x"
            because it is wanted
        would apply Deployment one
        "#);
    }

    #[test]
    fn what_would_change_is_shown_also_where_no_field_of_it_is() {
        let looked = looked(json!([apply_one()]), &[APPLY], &[APPLY]);
        insta::assert_snapshot!(printed(&looked, || there(json!({"app": "one"}), json!({"f:app": {}}))), @"
        ~ Deployment one
            because it is wanted
        would apply Deployment one
        ");
    }

    #[test]
    fn what_is_so_already_is_counted_whatever_it_looks_like() {
        let looked = looked(json!([apply_one(), apply_one()]), &[APPLY, APPLY], &[]);
        insta::assert_snapshot!(printed(&looked, || Found::Nothing), @"
        and 2 more that are as they are to be
        nothing would change
        ");
    }

    #[test]
    fn what_cannot_be_read_is_not_shown_as_new() {
        let looked = looked(json!([apply_one()]), &[APPLY], &[APPLY]);
        insta::assert_snapshot!(printed(&looked, || Found::Unreadable), @"
        ? Deployment one: cannot be read, so not compared
            because it is wanted
        would apply Deployment one
        ");
    }

    #[test]
    fn what_comes_after_a_step_that_would_fail_is_not_said_to_be_fine() {
        let failure = format!("fail to {APPLY}: there is a Deployment one already");
        let looked = looked(json!([apply_one(), apply_one()]), &[APPLY, "apply Service one"], &[&failure]);
        insta::assert_snapshot!(printed(&looked, || Found::Nothing), @"
        ! fail to apply Deployment one: there is a Deployment one already
            because it is wanted
        and 1 more that come only after what would fail
        would fail to apply Deployment one: there is a Deployment one already
        ");
    }

    #[test]
    fn an_update_is_compared_too() {
        let target = json!({"kind": {"kind": "Deployment"}, "name": "one"});
        let update = json!({"step": {"update": {"target": target, "fields": {"metadata": {"labels": {"app": null}}}}}});
        let words = "update Deployment one";
        let looked = looked(json!([update]), &[words], &[words]);
        let shown = printed(&looked, || there(json!({"app": "one"}), json!({})));
        assert!(shown.contains("~ Deployment one\n    - metadata.labels.app: \"one\"\n"), "{shown}");
        let shown = printed(&looked, || Found::Nothing);
        assert!(shown.contains("! Deployment one: it is gone by now\n"), "{shown}");
    }

    #[test]
    fn what_a_secret_holds_in_the_cluster_is_not_printed() {
        let content =
            json!({"metadata": {"name": "one"}, "data": {"a": "sha256:1"}, "stringData": {"b": "sha256:2"}});
        let looked = looked(json!([write("apply", "Secret", content)]), &[APPLY], &[APPLY]);
        let there = json!({"metadata": {"name": "one", "managedFields": [{"manager": "shop-operator/page",
            "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}, "f:c": {}}}}]}, "data": {"a": "aHVudGVyMg==", "c": "aHVudGVyMw=="}});
        insta::assert_snapshot!(printed(&looked, || Found::Object(there.clone())), @r#"
        ~ Secret one, whose values are not shown
          + data.b: "..."
          - data.c: "..."
            because it is wanted
        would apply Deployment one
        "#);
    }

    #[test]
    fn what_the_status_says_no_more_is_shown_and_what_the_sdk_says_is_not() {
        let status = json!({"ready": true, "conditions": [{"type": "Ready", "status": "True"}]});
        let before = json!({"ready": false, "problem": "no disk", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": MODE_CONDITION, "status": "True"}]});
        let mut resource = object("Page", json!({"name": "one"}));
        resource["status"] = before;
        let mut looked = looked(json!([]), &[], &[WRITE_THE_STATUS]);
        looked["plan"]["status"] = status;
        looked["observation"] = json!({"page": resource});
        insta::assert_snapshot!(printed(&looked, || Found::Nothing), @r#"
          status
          ~ ready: false -> true
          - problem: "no disk"
        would write the status
        "#);
    }

    #[rstest]
    #[case::not_to_be_seen(403, "Forbidden", Some(Found::Unreadable))]
    #[case::not_to_be_seen_says_a_proxy(403, "Failed to parse error data", Some(Found::Unreadable))]
    #[case::of_a_kind_that_is_not_served(404, "Failed to parse error data", Some(Found::Nothing))]
    #[case::not_known_to_anybody(401, "Unauthorized", None)]
    #[case::in_trouble(500, "InternalError", None)]
    fn only_what_is_known_not_to_be_there_is_new(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] expected: Option<Found>,
    ) {
        let refused = kube::core::Status::failure("no", reason).with_code(code).boxed();
        assert_eq!(found(Err(kube::Error::Api(refused))).ok(), expected);
        assert_eq!(found(Ok(None)).unwrap(), Found::Nothing);
    }
}
