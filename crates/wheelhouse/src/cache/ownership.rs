//! [`Ownership`]: which fields of an object we applied and still own.
//!
//! The API server keeps that for every field manager, and takes a field away
//! from its manager as soon as somebody else changes it. So "the fields that we
//! own still have the values that our apply gave them" is the question whether
//! our field set still covers what we intend. No value has to be compared, and
//! what the server makes of a value (quantities, defaults, webhooks) does not
//! matter.
//!
//! Thousands of children have the same field set: each is held once.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Weak},
};

use serde_json::{Map, Value};

use super::wire::Managed;

/// Stands for the UID in an owner reference's key: it differs in every object
/// and would keep their field sets from being one.
const ANY_UID: &str = "*";

/// What managers of this process own of an object.
#[derive(Debug, PartialEq)]
pub(crate) struct Ownership {
    fields: Vec<(String, FieldSet)>,
    /// Who changed the object last, of all the others.
    last_other_writer: Option<String>,
}

impl Ownership {
    /// Whether this manager owns every field that the object mentions.
    pub(crate) fn covers(&self, manager: &str, intended: &Value) -> bool {
        let set = self.fields.iter().find(|(name, _)| name == manager).map(|(_, set)| set);
        set.is_some_and(|set| set.covers_object(intended))
    }

    /// Who else wrote to the object last.
    pub(crate) fn last_other_writer(&self) -> Option<&str> {
        self.last_other_writer.as_deref()
    }
}

/// Makes [`Ownership`]s, and each of them once.
#[derive(Debug, Default)]
pub(crate) struct Ownerships {
    known: HashMap<u64, Weak<Ownership>>,
}

impl Ownerships {
    /// What is left to remember of an object's managed fields, if anything.
    pub(crate) fn intern(&mut self, managed: &Managed, ours: &[String]) -> Option<Arc<Ownership>> {
        let applied: Vec<_> = managed.applied.iter().filter(|by| ours.contains(&by.manager)).collect();
        if applied.is_empty() {
            return None;
        }
        let last_other_writer = managed
            .writers
            .iter()
            .filter(|(manager, _)| !ours.contains(manager))
            .max_by(|(_, one), (_, other)| one.cmp(other))
            .map(|(manager, _)| manager.as_str());
        let mut hasher = DefaultHasher::new();
        last_other_writer.hash(&mut hasher);
        let texts: Vec<_> =
            applied.iter().map(|by| (by.manager.as_str(), without_owner_uid(by.fields.get()))).collect();
        texts.hash(&mut hasher);
        let hash = hasher.finish();

        if let Some(known) = self.known.get(&hash).and_then(Weak::upgrade) {
            return Some(known);
        }
        let ownership = Arc::new(Ownership {
            fields: texts
                .iter()
                .map(|(manager, text)| ((*manager).to_owned(), FieldSet::parse(text)))
                .collect(),
            last_other_writer: last_other_writer.map(str::to_owned),
        });
        if self.known.len() == self.known.capacity() {
            self.known.retain(|_, known| known.strong_count() > 0);
        }
        self.known.insert(hash, Arc::downgrade(&ownership));
        Some(ownership)
    }
}

fn without_owner_uid(fields: &str) -> String {
    const KEY: &str = r#""k:{\"uid\":\""#;
    let mut text = String::with_capacity(fields.len());
    let mut rest = fields;
    while let Some((before, after)) = rest.split_once(KEY) {
        text.push_str(before);
        text.push_str(KEY);
        text.push_str(ANY_UID);
        rest = after.find('\\').and_then(|end| after.get(end..)).unwrap_or(after);
    }
    text.push_str(rest);
    text
}

/// A set of fields, as a tree. A node without anything below it owns all that
/// is there: a value, or an atomic map or list.
#[derive(Debug, Default, PartialEq)]
struct FieldSet {
    fields: BTreeMap<String, FieldSet>,
    /// Items of lists with keys, by what their keys are.
    items: Vec<(Map<String, Value>, FieldSet)>,
    /// Members of sets.
    values: Vec<Value>,
}

impl FieldSet {
    fn parse(fields_v1: &str) -> Self {
        serde_json::from_str::<Value>(fields_v1).map(|value| Self::from_value(&value)).unwrap_or_default()
    }

    fn from_value(value: &Value) -> Self {
        let mut set = Self::default();
        for (element, below) in value.as_object().into_iter().flatten() {
            let below = Self::from_value(below);
            if let Some(field) = element.strip_prefix("f:") {
                set.fields.insert(field.to_owned(), below);
            } else if let Some(Ok(keys)) = element.strip_prefix("k:").map(serde_json::from_str) {
                set.items.push((keys, below));
            } else if let Some(Ok(value)) = element.strip_prefix("v:").map(serde_json::from_str) {
                set.values.push(value);
            }
        }
        set
    }

    fn covers_object(&self, object: &Value) -> bool {
        object.as_object().into_iter().flatten().all(|(field, value)| match field.as_str() {
            // What identifies an object belongs to nobody.
            "apiVersion" | "kind" => true,
            "metadata" => value.as_object().into_iter().flatten().all(|(field, value)| {
                matches!(field.as_str(), "name" | "namespace")
                    || self.fields.get("metadata").is_some_and(|set| set.covers_field(field, value))
            }),
            field => self.covers_field(field, value),
        })
    }

    fn covers_field(&self, field: &str, value: &Value) -> bool {
        value.is_null() || self.fields.get(field).is_some_and(|set| set.covers(value))
    }

    fn covers(&self, value: &Value) -> bool {
        let owns_all_below = self.fields.is_empty() && self.items.is_empty() && self.values.is_empty();
        owns_all_below
            || match value {
                Value::Object(fields) => fields.iter().all(|(field, value)| self.covers_field(field, value)),
                Value::Array(items) => items.iter().all(|item| self.covers_item(item)),
                _ => true,
            }
    }

    fn covers_item(&self, item: &Value) -> bool {
        self.values.contains(item)
            || self.items.iter().any(|(keys, set)| is_identified_by(item, keys) && set.covers(item))
    }
}

/// Whether these keys are those of the item. A key that it does not mention was
/// defaulted by the server.
fn is_identified_by(item: &Value, keys: &Map<String, Value>) -> bool {
    item.is_object()
        && keys.iter().all(|(key, value)| {
            item.get(key).is_none_or(|given| given == value || (key == "uid" && value == ANY_UID))
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{json, value::to_raw_value};

    use super::{super::wire::Applied, *};

    fn managed(fields: &Value) -> Managed {
        Managed {
            applied: vec![Applied { manager: "mine".into(), fields: to_raw_value(fields).unwrap() }],
            writers: vec![
                ("mine".into(), Some("2026-01-01T00:00:03Z".into())),
                ("early".into(), Some("2026-01-01T00:00:01Z".into())),
                ("late".into(), Some("2026-01-01T00:00:02Z".into())),
            ],
        }
    }

    fn ownership(fields: &Value) -> Arc<Ownership> {
        Ownerships::default().intern(&managed(fields), &["mine".to_owned()]).unwrap()
    }

    #[rstest]
    #[case::a_field(json!({"f:data": {"f:x": {}}}), json!({"data": {"x": "1"}}), true)]
    #[case::a_field_that_was_taken(json!({"f:data": {"f:x": {}}}), json!({"data": {"x": "1", "y": "2"}}), false)]
    #[case::identity(json!({"f:data": {}}), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}), true)]
    #[case::a_label(json!({"f:metadata": {"f:labels": {"f:a": {}}}}), json!({"metadata": {"labels": {"b": "1"}}}), false)]
    #[case::null_is_nothing(json!({"f:data": {}}), json!({"spec": null}), true)]
    #[case::an_atomic_map(json!({"f:spec": {"f:selector": {}}}), json!({"spec": {"selector": {"a": "b"}}}), true)]
    #[case::an_item_with_a_defaulted_key(
        json!({"f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}),
        json!({"spec": {"ports": [{"containerPort": 80}]}}), true)]
    #[case::another_item(
        json!({"f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}),
        json!({"spec": {"ports": [{"containerPort": 81}]}}), false)]
    #[case::a_field_of_an_item_that_was_taken(
        json!({"f:c": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}),
        json!({"c": [{"name": "a", "image": "b"}]}), false)]
    #[case::a_member_of_a_set(json!({"f:finalizers": {"v:\"a\"": {}}}), json!({"finalizers": ["a"]}), true)]
    #[case::no_member_of_a_set(json!({"f:finalizers": {"v:\"a\"": {}}}), json!({"finalizers": ["b"]}), false)]
    fn a_field_set_covers(#[case] fields: Value, #[case] intended: Value, #[case] covered: bool) {
        assert_eq!(ownership(&fields).covers("mine", &intended), covered);
    }

    #[test]
    fn objects_that_differ_in_their_owner_share_a_field_set() {
        let fields = |uid: &str| {
            let owner = format!(r#"k:{{"uid":"{uid}"}}"#);
            json!({"f:metadata": {"f:ownerReferences": {owner: {}}}})
        };
        let mut ownerships = Ownerships::default();
        let ours = ["mine".to_owned()];
        let one = ownerships.intern(&managed(&fields("123-a")), &ours).unwrap();
        let other = ownerships.intern(&managed(&fields("456-b")), &ours).unwrap();
        assert!(Arc::ptr_eq(&one, &other));
        assert!(one.covers("mine", &json!({"metadata": {"ownerReferences": [{"uid": "456-b"}]}})));
    }

    #[test]
    fn the_last_of_the_others_is_named() {
        assert_eq!(ownership(&json!({})).last_other_writer(), Some("late"));
    }

    #[test]
    fn what_others_applied_is_not_remembered() {
        assert_eq!(Ownerships::default().intern(&managed(&json!({})), &["other".to_owned()]), None);
    }
}
