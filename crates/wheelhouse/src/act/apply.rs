//! Apply: what a child is to be, and when nothing has to be sent for it.
//!
//! An apply is skipped only when what we intend is what we last applied (its
//! hash is an annotation of the child) and we still own every field of it, see
//! [`crate::cache`]'s ownership. Where the API server's field set does not
//! cover what was sent even right after an apply (a webhook, a pruned field),
//! that is learned, and counts until the field set changes.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Actor, Done, built, requests};
use crate::{
    cache::{Cause, OwnershipOf, Peek, Peeked},
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    labels::{APPLIED, OWNER, OWNER_KIND, OWNER_UID},
    plan::Object,
};

/// After that apply the field set was this one, and better it does not get.
struct AppliedAsWellAsCanBe {
    uid: String,
    hash: String,
    ownership: Option<Arc<OwnershipOf>>,
}

impl Actor<'_> {
    pub(super) async fn apply(&self, object: &Object) -> Result<Done> {
        let (mut intended, key) = self.intended(object, true)?;
        let hash = stamp(&mut intended, APPLIED);
        let doing = format!("apply {} {key}", object.kind);
        self.check_watched("applies", &object.kind, "register the kind with .owns()")?;
        let known = match self.cache.peek(&object.kind, &key) {
            Peeked::There(known) => Some(*known),
            Peeked::NotThere => None,
            // Only part of the kind is watched: one of that name may be elsewhere.
            Peeked::Unknown => {
                if self.read(&object.kind, &key).await?.is_some() {
                    let what = format!(
                        "{} {key} exists, and is not among those this operator looks at",
                        object.kind
                    );
                    return Err(Error::new(
                        Category::NotOurs,
                        format!("cannot {doing}: {what}: rename one of them"),
                    ));
                }
                None
            }
        };
        if let Some(known) = &known {
            self.check_ours(&doing, known)?;
            if known.reference.terminating {
                return Err(super::conflict(format!("cannot {doing}: the one of that name is still going")));
            }
        }
        let state =
            known.as_ref().map(|known| self.compare(object, &intended, &key, (APPLIED, &hash), known));
        if let Some(State::AsApplied) = state {
            return Ok(Done::AlreadySo);
        }
        let uid = known.as_ref().map(|known| known.reference.uid.as_str());
        self.send_apply(&doing, object, intended, &key, &hash, uid, true).await?;
        Ok(match state {
            Some(State::ChangedByOthers(by)) => Done::Restored { by },
            _ => Done::Changed,
        })
    }

    pub(super) async fn apply_foreign(&self, object: &Object) -> Result<Done> {
        let (mut intended, key) = self.intended(object, false)?;
        let hash = stamp(&mut intended, &self.foreign_stamp());
        let doing = format!("apply {} {key}", object.kind);
        let advice = "register the kind with .watches(), and the verb patch with .uses()";
        self.check_watched("applies", &object.kind, advice)?;
        if let Peeked::There(known) = self.cache.peek(&object.kind, &key)
            && let State::AsApplied =
                self.compare(object, &intended, &key, (&self.foreign_stamp(), &hash), &known)
        {
            return Ok(Done::AlreadySo);
        }
        match self.send_apply(&doing, object, intended, &key, &hash, None, false).await {
            Ok(()) => Ok(Done::Changed),
            // Another manager has one of the fields: it is told, and nothing is forced.
            Err(error) if error.category() == Category::Conflict => {
                Err(Error::new(Category::NotOurs, error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "they are one request")]
    async fn send_apply(
        &self,
        doing: &str,
        object: &Object,
        mut intended: Value,
        key: &Key,
        hash: &str,
        uid: Option<&str>,
        force: bool,
    ) -> Result<()> {
        let covered_by = intended.clone();
        // Another object of that name, made meanwhile, is not the one that was decided on.
        if let (Some(uid), Some(metadata)) =
            (uid, intended.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("uid".to_owned(), uid.into());
        }
        let params = PatchParams { force, ..PatchParams::apply(self.manager).validation_strict() };
        let request = requests(&object.kind, key.namespace())
            .patch(key.name(), &params, &Patch::Apply(&intended))
            .map_err(built(doing))?;
        let text = self.send_for_text(doing, request).await?;
        self.take_in(doing, &object.kind, &text, Cause::Answer)?;
        if let Peeked::There(now) = self.cache.peek(&object.kind, key)
            && !now.ownership.as_ref().is_some_and(|own| own.covers(self.manager, &covered_by))
        {
            let learned = AppliedAsWellAsCanBe {
                uid: now.reference.uid,
                hash: hash.to_owned(),
                ownership: now.ownership,
            };
            self.learned.insert(self.cache, &object.kind, key, learned);
        }
        Ok(())
    }

    fn compare(
        &self,
        object: &Object,
        intended: &Value,
        key: &Key,
        (stamp, hash): (&str, &str),
        known: &Peek,
    ) -> State {
        if known.stamps.get(stamp).map(String::as_str) != Some(hash) {
            return State::Different;
        }
        let Some(ownership) = &known.ownership else { return State::ChangedByOthers(None) };
        if ownership.covers(self.manager, intended) {
            return State::AsApplied;
        }
        let learned = self.learned.get::<AppliedAsWellAsCanBe>(&object.kind, key);
        match learned {
            Some(learned)
                if learned.uid == known.reference.uid
                    && learned.hash == hash
                    && learned.ownership.as_ref() == Some(ownership) =>
            {
                State::AsApplied
            }
            _ => State::ChangedByOthers(ownership.last_other_writer().map(str::to_owned)),
        }
    }

    pub(super) fn check_watched(&self, does: &str, kind: &Kind, advice: &str) -> Result<()> {
        match self.cache.watches(kind) {
            true => Ok(()),
            false => Err(Error::new(
                Category::Bug,
                format!(
                    "the plan {does} a {kind}, and the controller does not watch {}: {advice}",
                    kind.plural
                ),
            )),
        }
    }

    /// On an object that is not ours, others have stamps of their own.
    fn foreign_stamp(&self) -> String {
        let manager = hash_of(&Value::from(self.manager));
        format!("{APPLIED}-{}", manager.get(..8).unwrap_or_default())
    }

    pub(super) fn check_ours(&self, doing: &str, known: &Peek) -> Result<()> {
        if known.owners.contains(&self.owner.reference.uid) {
            return Ok(());
        }
        let whose = match &known.controller {
            Some(_) => "it belongs to another resource",
            None => "it belongs to nobody, and was not made by this resource",
        };
        let reference = &known.reference;
        Err(Error::new(
            Category::NotOurs,
            format!(
                "cannot {doing}: there is a {} {} already, and {whose}: rename or remove it",
                reference.kind, reference.name
            ),
        ))
    }

    /// What is sent: the object, and whose it is.
    pub(super) fn intended(&self, object: &Object, owned: bool) -> Result<(Value, Key)> {
        let mut content = object.content.clone();
        let owner = &self.owner.reference;
        let namespace = object.namespace().map(str::to_owned).or_else(|| owner.namespace.clone());
        let key = Key::new(namespace.as_deref(), object.name());
        let malformed = || {
            Error::new(
                Category::Bug,
                format!(
                    "the plan has a {} without a name, or only its metadata: nothing is written",
                    object.kind
                ),
            )
        };
        if object.name().is_empty() {
            return Err(malformed());
        }
        without_nulls(&mut content);
        content.as_object_mut().ok_or_else(malformed)?.remove("status");
        let metadata = content.get_mut("metadata").and_then(Value::as_object_mut).ok_or_else(malformed)?;
        metadata.remove("creationTimestamp");
        if let Some(namespace) = &namespace {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
        }
        if owned && references_reach(owner.namespace.as_deref(), namespace.as_deref()) {
            metadata.insert("ownerReferences".to_owned(), json!([self.owner_reference()]));
        } else if owned {
            self.mark_as_owned(metadata);
        }
        Ok((content, key))
    }

    /// Says whose a child is where Kubernetes' own references do not reach.
    pub(super) fn mark_as_owned(&self, metadata: &mut Map<String, Value>) {
        let owner = &self.owner.reference;
        put_into(metadata, "labels", OWNER_UID, &owner.uid);
        put_into(metadata, "annotations", OWNER, &owner.key().to_string());
        put_into(metadata, "annotations", OWNER_KIND, &owner.kind.qualified());
    }

    pub(super) fn owner_reference(&self) -> Value {
        let owner = &self.owner.reference;
        json!({
            "apiVersion": owner.kind.api_version(),
            "kind": owner.kind.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// What is known of a child, against what is intended.
enum State {
    AsApplied,
    /// We intend something else than last time.
    Different,
    /// We intend the same, and somebody took a field of it.
    ChangedByOthers(Option<String>),
}

/// Kubernetes' own references reach from a cluster-scoped owner anywhere, and
/// from a namespaced one within its namespace.
pub(super) fn references_reach(owner: Option<&str>, child: Option<&str>) -> bool {
    owner.is_none() || owner == child
}

/// Writes the hash of the content onto it, as that annotation.
fn stamp(content: &mut Value, annotation: &str) -> String {
    let hash = hash_of(content);
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        put_into(metadata, "annotations", annotation, &hash);
    }
    hash
}

/// Puts an entry into a map of the metadata, which it makes if need be.
fn put_into(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let entries = metadata.entry(map).or_insert_with(|| json!({}));
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(key.to_owned(), value.into());
    }
}

/// A null says nothing in an apply.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Of the content, whatever the order of its fields.
fn hash_of(value: &Value) -> String {
    let mut hasher = Sha256::new();
    feed(&mut hasher, value);
    hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            hasher.update(b"{");
            for (name, value) in sorted {
                hasher.update(name.len().to_le_bytes());
                hasher.update(name.as_bytes());
                feed(hasher, value);
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| feed(hasher, item));
            hasher.update(b"]");
        }
        Value::String(text) => {
            hasher.update(b"\"");
            hasher.update(text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
        other => hasher.update(other.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_content_and_not_of_its_order() {
        assert_eq!(hash_of(&json!({"a": 1, "b": [1, 2]})), hash_of(&json!({"b": [1, 2], "a": 1})));
        assert_ne!(hash_of(&json!({"a": 1, "b": [1, 2]})), hash_of(&json!({"a": 1, "b": [2, 1]})));
        assert_ne!(hash_of(&json!({"a": 1})), hash_of(&json!({})), "a removed field counts");
        assert_ne!(hash_of(&json!({"ab": "c"})), hash_of(&json!({"a": "bc"})));
    }
}
