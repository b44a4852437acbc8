//! Who owns which fields of an object, as its `managedFields` say. Pure.
//!
//! An apply takes away what its manager had applied before, does not apply any more, and nobody else owns.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of fields, as a tree. One without anything below it is a value, or a map or list that is written as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
struct FieldSet {
    /// Whether the thing itself is in it, and not only some of what is in the thing.
    itself: bool,
    fields: BTreeMap<String, FieldSet>,
    /// Items of lists with keys, by what their keys are.
    items: Vec<(Map<String, Value>, FieldSet)>,
    /// Members of sets.
    values: Vec<Value>,
}

impl FieldSet {
    fn of(fields_v1: &Value) -> Self {
        let elements = fields_v1.as_object().into_iter().flatten();
        let mut set = Self { itself: elements.clone().next().is_none(), ..Self::default() };
        for (element, below) in elements {
            if element == "." {
                set.itself = true;
            } else if let Some(field) = element.strip_prefix("f:") {
                set.fields.insert(field.to_owned(), Self::of(below));
            } else if let Some(Ok(keys)) = element.strip_prefix("k:").map(serde_json::from_str) {
                set.items.push((keys, Self::of(below)));
            } else if let Some(Ok(value)) = element.strip_prefix("v:").map(serde_json::from_str) {
                set.values.push(value);
            }
        }
        set
    }

    fn with(mut self, other: Self) -> Self {
        self.itself |= other.itself;
        for (name, theirs) in other.fields {
            let both = match self.fields.remove(&name) {
                Some(ours) => ours.with(theirs),
                None => theirs,
            };
            self.fields.insert(name, both);
        }
        for (keys, theirs) in other.items {
            match self.items.iter_mut().find(|(known, _)| *known == keys) {
                Some((_, ours)) => *ours = std::mem::take(ours).with(theirs),
                None => self.items.push((keys, theirs)),
            }
        }
        self.values.extend(other.values);
        self
    }

    fn is_whole(&self) -> bool {
        self.fields.is_empty() && self.items.is_empty() && self.values.is_empty()
    }

    /// That of the item of a list.
    fn item(&self, item: &Value) -> Option<&Self> {
        let is_it = |keys: &Map<String, Value>| keys.iter().all(|(key, value)| item.get(key) == Some(value));
        self.items.iter().find(|(keys, _)| is_it(keys)).map(|(_, set)| set)
    }
}

/// Who owns the fields of an object: whoever applies it, and all others.
#[derive(Debug, Default)]
pub(super) struct Owners {
    ours: Option<FieldSet>,
    others: Option<FieldSet>,
}

impl Owners {
    /// Those of an object that is applied by this manager.
    pub(super) fn of(object: &Value, manager: &str) -> Self {
        let mut owners = Self::default();
        let managed = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        for entry in managed.into_iter().flatten() {
            let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            // What a manager updated is, to its apply, somebody else's. So is what is below a subresource.
            let is_ours =
                text("manager") == manager && text("operation") == "Apply" && text("subresource").is_empty();
            let set = entry.get("fieldsV1").map(FieldSet::of).unwrap_or_default();
            let whose = if is_ours { &mut owners.ours } else { &mut owners.others };
            *whose = Some(match whose.take() {
                Some(known) => known.with(set),
                None => set,
            });
        }
        owners
    }

    /// Of the whole object.
    pub(super) fn all(&self) -> Owned<'_> {
        Owned { ours: self.ours.as_ref(), others: self.others.as_ref() }
    }
}

/// What is owned at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned<'a> {
    ours: Option<&'a FieldSet>,
    others: Option<&'a FieldSet>,
}

/// What an apply does to something that it does not mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Goes,
    /// It is for what is below to say.
    Below,
}

impl<'a> Owned<'a> {
    fn each(self) -> impl Iterator<Item = &'a FieldSet> {
        self.ours.into_iter().chain(self.others)
    }

    pub(super) fn field(self, name: &str) -> Self {
        let of = |set: &'a FieldSet| set.fields.get(name);
        Self { ours: self.ours.and_then(of), others: self.others.and_then(of) }
    }

    pub(super) fn item(self, item: &Value) -> Self {
        let of = |set: &'a FieldSet| set.item(item);
        Self { ours: self.ours.and_then(of), others: self.others.and_then(of) }
    }

    /// Whether it is written as a whole, whoever wrote what is there.
    pub(super) fn is_atomic(self) -> bool {
        self.each().next().is_some() && self.each().all(FieldSet::is_whole)
    }

    /// Whether it is a list whose members are owned one by one.
    pub(super) fn is_set(self) -> bool {
        self.each().any(|set| !set.values.is_empty())
    }

    /// The fields by which the items of a list are told apart.
    pub(super) fn keys(self) -> Vec<&'a str> {
        let first = self.each().find_map(|set| set.items.first());
        first.map(|(keys, _)| keys.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// What becomes of it if it is not mentioned any more.
    pub(super) fn fate(self) -> Fate {
        match (self.ours, self.others) {
            (None, _) => Fate::Stays,
            (Some(ours), None) if ours.itself => Fate::Goes,
            (Some(ours), Some(_)) if ours.is_whole() => Fate::Stays,
            _ => Fate::Below,
        }
    }

    /// Whether a member of a set goes if it is not mentioned any more.
    pub(super) fn loses(self, member: &Value) -> bool {
        let has = |set: Option<&FieldSet>| set.is_some_and(|set| set.values.contains(member));
        has(self.ours) && !has(self.others)
    }
}
