//! What differs between an object as it is to be and as it is, field by field, and what is there that will not be any
//! more. Pure.

use serde_json::{Map, Value, json};

use super::{
    lines::{Line, Sign, short},
    owned::{Fate, Owned, Owners},
};

/// The labels and annotations that the SDK adds to what it applies: a plan does not mention them, and they stay.
const THE_SDKS: [&str; 2] = ["wheelhouse.dev/applied", "wheelhouse.dev/owner"];

/// All fields that are mentioned, for something that is not there yet.
pub(super) fn mentioned(wanted: &Value) -> Vec<Line> {
    replaced(wanted, &Value::Null)
}

/// What an apply by this manager changes: the fields that it mentions and that are not so, and those that are its own
/// and that it mentions no more. What else is there is nobody's business.
pub(super) fn applied(content: &Value, there: &Value, manager: &str) -> Vec<Line> {
    let owners = Owners::of(there, manager);
    differences(&as_sent(content, there), there, Written::Applied(owners.all()))
}

/// What a merge patch changes.
pub(super) fn merged(fields: &Value, there: &Value) -> Vec<Line> {
    differences(fields, there, Written::Merged)
}

/// What changes if this takes the place of what is there.
pub(super) fn replaced(wanted: &Value, there: &Value) -> Vec<Line> {
    differences(wanted, there, Written::Replaced)
}

/// What the SDK makes of what a plan says: it adds whose the object is and what was applied, and never sends a status.
fn as_sent(content: &Value, there: &Value) -> Value {
    let mut sent = content.clone();
    let Some(fields) = sent.as_object_mut() else { return sent };
    fields.remove("status");
    let Some(metadata) = entries(fields, "metadata") else { return sent };
    metadata.remove("creationTimestamp");
    if let Some(owners) = there.pointer("/metadata/ownerReferences") {
        metadata.entry("ownerReferences").or_insert_with(|| owners.clone());
    }
    for map in ["labels", "annotations"] {
        let known = there.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
        let is_the_sdks = |name: &str| THE_SDKS.iter().any(|prefix| name.starts_with(prefix));
        for (name, value) in known.into_iter().flatten().filter(|(name, _)| is_the_sdks(name)) {
            if let Some(entries) = entries(metadata, map) {
                entries.entry(name).or_insert_with(|| value.clone());
            }
        }
    }
    sent
}

fn entries<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    let value = fields.entry(name).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// How something is written, which says what becomes of what is there and is not mentioned.
#[derive(Clone, Copy)]
enum Written<'a> {
    /// By server-side apply: what is only its manager's goes.
    Applied(Owned<'a>),
    /// By a merge patch: everything stays, but for what is told to go.
    Merged,
    /// In place of what is there.
    Replaced,
    /// The same, where the API server fills in what is left out: a field that is not mentioned may be its own.
    Whole,
}

impl<'a> Written<'a> {
    fn field(self, name: &str) -> Self {
        match self {
            Self::Applied(owned) => Self::Applied(owned.field(name)),
            other => other,
        }
    }

    fn item(self, item: &Value) -> Self {
        match self {
            Self::Applied(owned) => Self::Applied(owned.item(item)),
            other => other,
        }
    }

    /// How a map or list is written that may be atomic.
    fn of_many(self) -> Self {
        match self {
            Self::Applied(owned) if owned.is_atomic() => Self::Whole,
            other => other,
        }
    }

    fn keys(self) -> Vec<&'a str> {
        match self {
            Self::Applied(owned) => owned.keys(),
            _ => Vec::new(),
        }
    }
}

fn differences(wanted: &Value, there: &Value, written: Written<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&mut lines, "", wanted, there, written);
    lines
}

fn compare(lines: &mut Vec<Line>, path: &str, wanted: &Value, there: &Value, written: Written<'_>) {
    match (wanted, there) {
        (Value::Object(fields), _) if !fields.is_empty() || there.is_object() => {
            compare_fields(lines, path, fields, there, written.of_many());
        }
        (Value::Array(wanted), Value::Array(there)) if is_set(written) => {
            compare_members(lines, path, wanted, there, written);
        }
        (Value::Array(items), _) if items.iter().chain(items_of(there)).any(Value::is_object) => {
            compare_items(lines, path, items, items_of(there), written.of_many());
        }
        _ if wanted == there || wanted.is_null() => {}
        (wanted, Value::Null) => lines.push(Line::field(Sign::Added, path, &short(wanted))),
        (wanted, there) => {
            lines.push(Line::field(Sign::Changed, path, &format!("{} -> {}", short(there), short(wanted))));
        }
    }
}

fn compare_fields(
    lines: &mut Vec<Line>,
    path: &str,
    wanted: &Map<String, Value>,
    there: &Value,
    written: Written<'_>,
) {
    for (name, wanted) in wanted.iter().filter(|(name, wanted)| !finds(path, name, wanted)) {
        let there = there.get(name).unwrap_or(&Value::Null);
        compare(lines, &inside(path, name), wanted, there, written.field(name));
    }
    let is_mentioned = |name: &str| wanted.get(name).is_some_and(|value| !value.is_null());
    let known = there.as_object().into_iter().flatten();
    for (name, value) in known.filter(|(name, value)| !is_mentioned(name) && !finds(path, name, value)) {
        let inner = inside(path, name);
        let goes = match written {
            Written::Applied(owned) => {
                take_away(lines, &inner, owned.field(name), value, &[]);
                false
            }
            Written::Merged => wanted.contains_key(name),
            Written::Replaced => true,
            // In what refers to a field of a pod the API server fills in a version.
            Written::Whole => is_map(there) && !path.ends_with("Ref"),
        };
        if goes && !value.is_null() {
            lines.push(Line::gone(&inner, value));
        }
    }
}

/// Whether this is a map of people's own keys, such as labels, and nothing that has a schema and defaults.
fn is_map(there: &Value) -> bool {
    there.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
}

fn compare_items(lines: &mut Vec<Line>, path: &str, wanted: &[Value], there: &[Value], written: Written<'_>) {
    let keys = written.keys();
    let mut left: Vec<Option<&Value>> = there.iter().map(Some).collect();
    for (index, wanted) in wanted.iter().enumerate() {
        let found = same(wanted, index, &left, &keys).and_then(|place| left.get_mut(place)?.take());
        let path = format!("{path}[{}]", called(found.unwrap_or(wanted), index, &keys));
        let written = written.item(found.unwrap_or(wanted));
        compare(lines, &path, wanted, found.unwrap_or(&Value::Null), written);
    }
    for (index, item) in left.into_iter().enumerate() {
        let Some(item) = item else { continue };
        let path = format!("{path}[{}]", called(item, index, &keys));
        match written {
            Written::Applied(owned) => take_away(lines, &path, owned.item(item), item, &keys),
            Written::Merged | Written::Replaced | Written::Whole => lines.push(Line::gone(&path, item)),
        }
    }
}

/// Where the item is that is to be so: by the list's keys, by its name, or by its place.
fn same(wanted: &Value, index: usize, left: &[Option<&Value>], keys: &[&str]) -> Option<usize> {
    // A key that is not mentioned is filled in by the API server.
    let has_its_keys = |item: &Value| {
        keys.iter().all(|key| wanted.get(key).is_none_or(|value| item.get(key) == Some(value)))
    };
    let find = |is_it: &dyn Fn(&Value) -> bool| left.iter().position(|item| item.is_some_and(is_it));
    let has_its_name = |item: &Value| label(item) == label(wanted);
    match label(wanted) {
        _ if !keys.is_empty() => {
            find(&|item| has_its_keys(item) && has_its_name(item)).or_else(|| find(&has_its_keys))
        }
        Some(_) => find(&has_its_name),
        None => Some(index),
    }
}

/// What an item of a list is called.
fn label(item: &Value) -> Option<&str> {
    ["name", "type"].iter().find_map(|field| item.get(field)?.as_str())
}

/// The same for people: with the list's keys where it has no name, or else by its place.
fn called(item: &Value, index: usize, keys: &[&str]) -> String {
    let keys = || {
        keys.iter().filter_map(|key| item.get(key)).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    match label(item) {
        Some(label) => label.to_owned(),
        None if keys().next().is_some() => keys().collect::<Vec<_>>().join("/"),
        None => index.to_string(),
    }
}

fn is_set(written: Written<'_>) -> bool {
    matches!(written, Written::Applied(owned) if owned.is_set())
}

fn compare_members(
    lines: &mut Vec<Line>,
    path: &str,
    wanted: &[Value],
    there: &[Value],
    written: Written<'_>,
) {
    for member in wanted.iter().filter(|member| !there.contains(member)) {
        lines.push(Line::field(Sign::Added, path, &short(member)));
    }
    let Written::Applied(owned) = written else { return };
    for member in there.iter().filter(|member| !wanted.contains(member) && owned.loses(member)) {
        lines.push(Line::field(Sign::Removed, path, &short(member)));
    }
}

/// What is not mentioned any more: it goes as far as whoever applies is the only one who owns it.
fn take_away(lines: &mut Vec<Line>, path: &str, owned: Owned<'_>, there: &Value, keys: &[&str]) {
    match owned.fate() {
        Fate::Stays => return,
        Fate::Goes => return lines.push(Line::gone(path, there)),
        Fate::Below => {}
    }
    // An item that stays keeps what it is found by.
    let fields = there.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| !keys.contains(&name.as_str())) {
        take_away(lines, &inside(path, name), owned.field(name), value, &[]);
    }
    if owned.is_set() {
        return compare_members(lines, path, &[], items_of(there), Written::Applied(owned));
    }
    let keys = owned.keys();
    for (index, item) in items_of(there).iter().enumerate() {
        let path = format!("{path}[{}]", called(item, index, &keys));
        take_away(lines, &path, owned.item(item), item, &keys);
    }
}

fn items_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn inside(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a field is how something is found, and not what it is; or changes with everything else.
fn finds(path: &str, name: &str, value: &Value) -> bool {
    match name {
        "apiVersion" | "kind" => path.is_empty(),
        "name" if path == "metadata" => true,
        "name" | "type" => value.as_str().is_some_and(|value| path.ends_with(&format!("[{value}]"))),
        "lastTransitionTime" | "observedGeneration" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{}\n", line.text())).collect()
    }

    /// What is there, with what these managers own of it.
    fn owned(mut there: Value, managers: Value) -> Value {
        there["metadata"]["managedFields"] = managers;
        there
    }

    fn by(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    const OURS: &str = "shop-operator/page";

    #[test]
    fn only_what_is_mentioned_and_differs_is_shown() {
        let there = json!({"spec": {"replicas": 2, "paused": false, "containers": [
            {"name": "side", "image": "s:1"}, {"name": "main", "image": "m:1", "ports": [80]},
        ]}, "conditions": [{"type": "Ready", "status": "False"}]});
        let wanted = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "containers": [{"name": "main", "type": "x", "image": "m:2", "ports": [80]}]},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "now"}]});
        insta::assert_snapshot!(shown(&applied(&wanted, &there, OURS)), @r#"
        + metadata.labels.x: "y"
        ~ spec.replicas: 2 -> 3
        + spec.containers[main].type: "x"
        ~ spec.containers[main].image: "m:1" -> "m:2"
        ~ conditions[Ready].status: "False" -> "True"
        "#);
    }

    /// A Deployment with two containers and a label, applied by the operator; one more label and the replicas are of others.
    fn deployment() -> Value {
        let there = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "one", "uid": "u", "resourceVersion": "7",
                "labels": {"app": "one", "old": "x", "theirs": "y", "both": "z"},
                "annotations": {"wheelhouse.dev/applied": "abc", "wheelhouse.dev/owner-kind": "Page.app.example.com"},
                "ownerReferences": [{"kind": "Page", "name": "one", "uid": "o"}],
                "finalizers": ["ours/f", "theirs/f"],
            },
            "spec": {"replicas": 3, "paused": false, "template": {"spec": {"restartPolicy": "Always", "containers": [
                {"name": "main", "image": "m:1", "args": ["--fast"], "imagePullPolicy": "Always",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 90, "protocol": "TCP"}]},
                {"name": "side", "image": "s:1", "imagePullPolicy": "Always"},
                {"name": "mesh", "image": "e:1"},
            ]}}},
        });
        let ours = json!({
            "f:metadata": {
                "f:labels": {"f:app": {}, "f:old": {}, "f:both": {}},
                "f:annotations": {"f:wheelhouse.dev/applied": {}, "f:wheelhouse.dev/owner-kind": {}},
                "f:ownerReferences": {r#"k:{"uid":"o"}"#: {}},
                "f:finalizers": {r#"v:"ours/f""#: {}},
            },
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                r#"k:{"name":"main"}"#: {".": {}, "f:name": {}, "f:image": {}, "f:args": {}, "f:ports": {
                    r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}},
                    r#"k:{"containerPort":90,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}},
                }},
                r#"k:{"name":"side"}"#: {".": {}, "f:name": {}, "f:image": {}},
            }}}},
        });
        let theirs = json!({
            "f:metadata": {"f:labels": {"f:theirs": {}, "f:both": {}}, "f:finalizers": {r#"v:"theirs/f""#: {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                r#"k:{"name":"mesh"}"#: {".": {}, "f:name": {}, "f:image": {}},
            }}}},
        });
        owned(there, json!([by(OURS, "Apply", ours), by("kubectl", "Update", theirs)]))
    }

    fn wanted(metadata: Value, spec: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    }

    #[test]
    fn what_the_operator_owns_and_mentions_no_more_is_shown_to_go() {
        let main = json!({"name": "main", "image": "m:1", "ports": [{"containerPort": 90}]});
        let wanted = wanted(
            json!({"name": "one", "labels": {"app": "one"}}),
            json!({"template": {"spec": {"containers": [main]}}}),
        );
        insta::assert_snapshot!(shown(&applied(&wanted, &deployment(), OURS)), @r#"
        - metadata.labels.old: "x"
        - metadata.finalizers: "ours/f"
        - spec.template.spec.containers[main].ports[80/TCP]
        - spec.template.spec.containers[main].args: ["--fast"]
        - spec.template.spec.containers[side]
        "#);
    }

    #[test]
    fn what_is_mentioned_no_more_at_all_goes_as_far_as_nobody_else_owns_it() {
        insta::assert_snapshot!(shown(&applied(&wanted(json!({"name": "one"}), json!({})), &deployment(), OURS)), @r#"
        - metadata.labels.app: "one"
        - metadata.labels.old: "x"
        - metadata.finalizers: "ours/f"
        - spec.template.spec.containers[main]
        - spec.template.spec.containers[side]
        "#);
    }

    #[test]
    fn what_others_own_or_only_updated_stays() {
        let nothing = wanted(json!({"name": "one"}), json!({}));
        assert_eq!(applied(&nothing, &deployment(), "shop-operator/other"), []);
        let updated = owned(
            json!({"metadata": {"labels": {"old": "x"}}, "spec": {}}),
            json!([by(OURS, "Update", json!({"f:metadata": {"f:labels": {"f:old": {}}}}))]),
        );
        assert_eq!(applied(&nothing, &updated, OURS), []);
    }

    #[test]
    fn an_item_of_which_others_own_a_field_stays_without_ours() {
        let item = r#"k:{"name":"main"}"#;
        let there = owned(
            json!({"metadata": {}, "spec": {"containers": [{"name": "main", "image": "m:1", "tty": true}]}}),
            json!([
                by(
                    OURS,
                    "Apply",
                    json!({"f:spec": {"f:containers": {item: {".": {}, "f:name": {}, "f:tty": {}}}}})
                ),
                by("kubectl", "Update", json!({"f:spec": {"f:containers": {item: {"f:image": {}}}}})),
            ]),
        );
        let lines = applied(&json!({"spec": {}}), &there, OURS);
        assert_eq!(shown(&lines), "    - spec.containers[main].tty: true\n");
    }

    #[test]
    fn of_what_is_written_as_a_whole_the_rest_goes_but_not_what_the_api_server_filled_in() {
        let reference = json!({"fieldPath": "metadata.name", "apiVersion": "v1"});
        let there = owned(
            json!({"metadata": {}, "spec": {"selector": {"app": "a", "tier": "b"}, "ref": {"fieldRef": reference}},
                "rules": [{"verbs": ["get"], "filled": "in"}, {"verbs": ["list"]}]}),
            json!([by(
                OURS,
                "Apply",
                json!({
                    "f:spec": {"f:selector": {}, "f:ref": {"f:fieldRef": {}}},
                    "f:rules": {},
                })
            )]),
        );
        let wanted = json!({"spec": {"selector": {"app": "a"}, "ref": {"fieldRef": {"fieldPath": "metadata.name"}}},
            "rules": [{"verbs": ["get"]}]});
        insta::assert_snapshot!(shown(&applied(&wanted, &there, OURS)), @r#"
        - spec.selector.tier: "b"
        - rules[1]
        "#);
        let lines = applied(&json!({"rules": []}), &there, OURS);
        assert!(shown(&lines).contains("- rules[0]\n    - rules[1]\n"), "{}", shown(&lines));
    }

    #[test]
    fn what_the_sdk_adds_to_a_plan_is_not_shown_to_go() {
        for name in [
            wheelhouse::labels::APPLIED,
            wheelhouse::labels::OWNER,
            wheelhouse::labels::OWNER_KIND,
            wheelhouse::labels::OWNER_UID,
        ] {
            assert!(THE_SDKS.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
        let lines = shown(&applied(&wanted(json!({"name": "one"}), json!({})), &deployment(), OURS));
        assert!(!lines.contains("wheelhouse.dev") && !lines.contains("ownerReferences"), "{lines}");
    }

    #[test]
    fn what_takes_the_place_of_something_takes_the_rest_of_it_away() {
        let there = json!({"observedGeneration": 1, "problem": "no disk", "none": null, "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Upgrading", "status": "True"}]});
        let wanted = json!({"observedGeneration": 2, "problem": null, "conditions": [{"type": "Ready", "status": "True"}]});
        insta::assert_snapshot!(shown(&replaced(&wanted, &there)), @r#"
        - conditions[Upgrading]
        - problem: "no disk"
        "#);
    }

    #[test]
    fn a_merge_patch_takes_away_what_it_says_is_null() {
        let there = json!({"metadata": {"annotations": {"a": "1", "b": "2", "c": "3"}}, "spec": {"names": ["x", "y"]}});
        let patch =
            json!({"metadata": {"annotations": {"a": null, "b": "4", "d": null}}, "spec": {"names": ["x"]}});
        insta::assert_snapshot!(shown(&merged(&patch, &there)), @r#"
        ~ metadata.annotations.b: "2" -> "4"
        - metadata.annotations.a: "1"
        ~ spec.names: ["x","y"] -> ["x"]
        "#);
    }

    #[test]
    fn of_something_new_every_field_is_shown_and_long_values_are_cut() {
        let wanted =
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"index.html": "x".repeat(300)}});
        let lines = mentioned(&wanted);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].text().ends_with("... (302 characters)"), "{}", lines[0].text());
    }
}
