//! [`Store`]: what is known of the objects of one kind. Plain and synchronous.
//!
//! Two sources feed it: the watch, and the answers to our own writes. They race,
//! and the rules that keep it right are these:
//!
//! - An object never goes back to an older resourceVersion.
//! - What we deleted does not come back through an event from before.
//! - What the watch said is gone does not come back through an answer from
//!   before: answers take their time, but not longer than [`ANSWERS_TAKE`].
//! - After a relist, what the list did not hold has vanished, and is reported
//!   with the last known object; unless we wrote it while the list was under way:
//!   then nobody can tell, and it is asked for.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::Resource;

use super::ownership::Ownership;
use crate::key::Key;

/// Longer than any call to the API server may take.
const ANSWERS_TAKE: Duration = Duration::from_secs(90);

/// A function from an object to the terms under which it is found.
pub(crate) type Terms<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A list that is under way, of this part of what is watched.
    List,
    /// The watch.
    Watch,
    /// The answer to a write or to a live read of this process.
    Answer,
}

/// What became of an object that was put into the store.
#[derive(Debug)]
pub(crate) enum Put<K> {
    /// It is there now, in place of that one.
    Stored { old: Option<Arc<K>> },
    /// The store knows better: this was the same version, an older one, or one
    /// that we deleted.
    Refused,
}

/// An object, and what is known of it beyond its fields.
#[derive(Debug)]
pub(crate) struct Stored<K> {
    pub(crate) object: Arc<K>,
    pub(crate) ownership: Option<Arc<Ownership>>,
    version: Option<u64>,
}

/// The objects of one kind, slimmed, with indexes.
pub(crate) struct Store<K> {
    objects: BTreeMap<Key, Stored<K>>,
    indexes: Vec<Index<K>>,
    /// Objects whose deletion was answered, until the watch says so too.
    deleted: HashMap<Key, Deleted>,
    /// The UIDs of what went lately, as hashes, with the time.
    gone: VecDeque<(Instant, u64)>,
    gone_set: HashSet<u64>,
    relists: HashMap<Option<Arc<str>>, Relist>,
}

struct Index<K> {
    name: &'static str,
    terms: Terms<K>,
    /// By the hash of a term. A collision costs a look at one more object.
    keys: HashMap<u64, Vec<Key>>,
}

struct Deleted {
    uid: Option<String>,
    /// Relists that began later know of the deletion.
    during: HashSet<Option<Arc<str>>>,
}

/// A list under way.
#[derive(Default)]
struct Relist {
    /// What was there before it and has not been listed yet.
    unseen: HashSet<Key>,
    /// What we wrote since it began and it has not listed.
    written: HashSet<Key>,
}

/// What a finished list tells beyond the objects that it held.
#[derive(Debug)]
pub(crate) struct Listed<K> {
    /// Gone, with the last known object.
    pub(crate) vanished: Vec<Arc<K>>,
    /// Written by us meanwhile: only a live read can tell.
    pub(crate) doubtful: Vec<Key>,
}

impl<K: Resource> Store<K> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            indexes: Vec::new(),
            deleted: HashMap::new(),
            gone: VecDeque::new(),
            gone_set: HashSet::new(),
            relists: HashMap::new(),
        }
    }

    /// Adds an index, unless there is one by that name.
    pub(crate) fn add_index(&mut self, name: &'static str, terms: Terms<K>) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, terms, keys: HashMap::new() };
        for (key, stored) in &self.objects {
            index.add(key, &stored.object);
        }
        self.indexes.push(index);
    }

    /// Puts an object in, unless what is there is as new.
    pub(crate) fn put(
        &mut self,
        origin: Origin,
        object: K,
        ownership: Option<Arc<Ownership>>,
    ) -> (Key, Put<K>) {
        let key = Key::of(&object);
        let version = version_of(&object);
        let known = self.objects.get(&key).map(|stored| stored.version);
        match origin {
            Origin::List => self.note_listed(&key, known.flatten() <= version),
            Origin::Answer => self.note_written(&key),
            Origin::Watch => {}
        }
        if origin == Origin::Answer
            && object.meta().uid.as_deref().is_some_and(|uid| self.gone_set.contains(&hash(uid)))
        {
            return (key, Put::Refused);
        }
        if let Some(deleted) = self.deleted.get(&key) {
            if deleted.uid.is_none() || deleted.uid == object.meta().uid {
                return (key, Put::Refused);
            }
            self.deleted.remove(&key);
        }
        // Versions that are no numbers cannot be compared: then the order in
        // which they arrive counts.
        if let (Some(Some(known)), Some(version)) = (known, version)
            && known >= version
        {
            return (key, Put::Refused);
        }
        let object = Arc::new(object);
        let old = self.objects.insert(key.clone(), Stored { object: object.clone(), ownership, version });
        for index in &mut self.indexes {
            match &old {
                Some(old) => index.replace(&key, &old.object, &object),
                None => index.add(&key, &object),
            }
        }
        (key, Put::Stored { old: old.map(|stored| stored.object) })
    }

    /// The watch says that this object is gone.
    pub(crate) fn remove_watched(&mut self, object: &K) -> Option<Arc<K>> {
        let key = Key::of(object);
        if self
            .deleted
            .get(&key)
            .is_some_and(|deleted| deleted.uid.is_none() || deleted.uid == object.meta().uid)
        {
            self.deleted.remove(&key);
        }
        // Also if we never saw it: the answer to our create may still be on its way.
        self.note_gone(object.meta().uid.as_deref().unwrap_or_default());
        let known = self.objects.get(&key)?;
        // A successor of that name may have been written by us meanwhile.
        if known.object.meta().uid != object.meta().uid {
            return None;
        }
        self.remove(&key)
    }

    /// The API server answered that this object is deleted for good.
    pub(crate) fn remove_answered(&mut self, key: &Key, uid: Option<&str>) -> Option<Arc<K>> {
        let known_uid = self.objects.get(key).and_then(|stored| stored.object.meta().uid.as_deref());
        if uid.is_some() && known_uid.is_some() && known_uid != uid {
            return None;
        }
        let uid = uid.or(known_uid).map(str::to_owned);
        let during = self.relists.keys().cloned().collect();
        self.deleted.insert(key.clone(), Deleted { uid, during });
        self.remove(key)
    }

    /// A list of this part (a namespace, or everything) begins.
    pub(crate) fn begin_list(&mut self, part: Option<Arc<str>>) {
        let unseen = self.range(part.as_deref()).map(|(key, _)| key.clone()).collect();
        self.relists.insert(part, Relist { unseen, written: HashSet::new() });
    }

    /// The list of this part is complete.
    pub(crate) fn end_list(&mut self, part: &Option<Arc<str>>) -> Listed<K> {
        let relist = self.relists.remove(part).unwrap_or_default();
        self.deleted.retain(|key, deleted| {
            let covered = part.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
            // Made during this list: its events may still be on their way.
            !covered || deleted.during.remove(part)
        });
        let vanished = relist.unseen.iter().filter_map(|key| self.remove(key)).collect();
        Listed { vanished, doubtful: relist.written.into_iter().collect() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Stored<K>> {
        self.objects.get(key)
    }

    /// The objects of a namespace, or all of them, sorted by key.
    pub(crate) fn list(&self, namespace: Option<&str>) -> impl Iterator<Item = &Arc<K>> {
        self.range(namespace).map(|(_, stored)| &stored.object)
    }

    /// The objects that an index holds under a term, sorted by key.
    pub(crate) fn find(&self, index: &str, term: &str) -> Vec<Arc<K>> {
        let Some(index) = self.indexes.iter().find(|known| known.name == index) else { return Vec::new() };
        let keys = index.keys.get(&hash(term)).into_iter().flatten();
        let mut found: Vec<_> = keys
            .filter_map(|key| self.objects.get_key_value(key))
            .filter(|(_, stored)| (index.terms)(&stored.object).iter().any(|known| known == term))
            .collect();
        found.sort_by_key(|(key, _)| *key);
        found.into_iter().map(|(_, stored)| stored.object.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    fn range(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Stored<K>)> {
        let bounds = match namespace {
            // "/" is followed by "0".
            Some(namespace) => (
                Bound::Included(Key::namespaced(namespace, "")),
                Bound::Excluded(Key::new(None, &format!("{namespace}0"))),
            ),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        self.objects.range(bounds)
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let removed = self.objects.remove(key)?.object;
        self.note_gone(removed.meta().uid.as_deref().unwrap_or_default());
        for index in &mut self.indexes {
            index.remove(key, &removed);
        }
        Some(removed)
    }

    fn note_gone(&mut self, uid: &str) {
        let now = Instant::now();
        while self.gone.front().is_some_and(|(since, _)| now - *since > ANSWERS_TAKE) {
            if let Some((_, uid)) = self.gone.pop_front() {
                self.gone_set.remove(&uid);
            }
        }
        if self.gone_set.insert(hash(uid)) {
            self.gone.push_back((now, hash(uid)));
        }
    }

    fn note_listed(&mut self, key: &Key, as_new_as_known: bool) {
        for relist in self.relists.values_mut() {
            relist.unseen.remove(key);
            if as_new_as_known {
                relist.written.remove(key);
            }
        }
    }

    fn note_written(&mut self, key: &Key) {
        for (part, relist) in &mut self.relists {
            if part.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace)) {
                relist.unseen.remove(key);
                relist.written.insert(key.clone());
            }
        }
    }
}

impl<K> Index<K> {
    fn add(&mut self, key: &Key, object: &K) {
        for term in (self.terms)(object) {
            let keys = self.keys.entry(hash(&term)).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for term in (self.terms)(object) {
            if let Some(keys) = self.keys.get_mut(&hash(&term)) {
                keys.retain(|known| known != key);
                if keys.is_empty() {
                    self.keys.remove(&hash(&term));
                }
            }
        }
    }

    fn replace(&mut self, key: &Key, old: &K, new: &K) {
        if (self.terms)(old) != (self.terms)(new) {
            self.remove(key, old);
            self.add(key, new);
        }
    }
}

fn hash(term: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    hasher.finish()
}

/// The resourceVersion as a number, which Kubernetes guarantees since 1.35.
pub(crate) fn version_of<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
