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
//!
//! An object whose content does not fit its type has its place too: it is not read,
//! but it is not taken for absent either.
//!
//! The objects that changed last, [`WHOLE_BYTES`] of them, are held as they are;
//! those beyond are packed, and unpacked for whoever reads them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt::Debug,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroU64,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{Resource, core::ObjectMeta};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    ownership::Ownership,
    packed::{Packed, Packer},
    wire::Unreadable,
};
use crate::key::Key;

/// Longer than any call to the API server may take.
const ANSWERS_TAKE: Duration = Duration::from_secs(90);

/// How much of a kind is held unpacked, in bytes of JSON.
const WHOLE_BYTES: usize = 3 << 20;
/// One object in so many is measured.
const MEASURED: u64 = 64;

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
    /// It is there now, in place of the old one.
    Stored { old: Option<Arc<K>>, new: Arc<K> },
    /// It is there now, and cannot be read.
    SetAside { old: Option<Arc<K>> },
    /// The store knows better: this was the same version, an older one, or one
    /// that we deleted.
    Refused,
}

/// An object, and what is known of it beyond its fields.
#[derive(Debug)]
struct Stored<K> {
    form: Form<K>,
    ownership: Option<Arc<Ownership>>,
    version: Option<NonZeroU64>,
    /// The UID, as a hash.
    uid: Option<NonZeroU64>,
    /// The number of the put that brought it.
    put: u64,
}

#[derive(Debug)]
enum Form<K> {
    Whole(Arc<K>),
    Packed(Packed),
    Unreadable(Box<Unreadable>),
}

/// The objects of one kind, slimmed, with indexes.
pub(crate) struct Store<K> {
    objects: BTreeMap<Key, Stored<K>>,
    packer: Packer<K>,
    /// What was put last, oldest first, each with the number of its put.
    latest: VecDeque<(Key, u64)>,
    puts: u64,
    /// About how long the JSON of an object is.
    mean_bytes: usize,
    packed_objects: usize,
    packed_bytes: usize,
    /// Those whose content does not fit their type.
    unreadable: BTreeSet<Key>,
    indexes: Vec<Index<K>>,
    /// Objects whose deletion was answered, until the watch says so too.
    deleted: HashMap<Key, Deleted>,
    /// The UIDs of what went lately, as hashes, with the time.
    gone: VecDeque<(Instant, NonZeroU64)>,
    gone_set: HashSet<NonZeroU64>,
    relists: HashMap<Option<Arc<str>>, Relist>,
}

struct Index<K> {
    name: Arc<str>,
    terms: Terms<K>,
    /// By the hash of a term. A collision costs a look at one more object.
    keys: HashMap<NonZeroU64, Vec<Key>>,
}

struct Deleted {
    /// As a hash.
    uid: NonZeroU64,
    /// Relists that began later know of the deletion.
    during: HashSet<Option<Arc<str>>>,
}

/// A list under way.
#[derive(Default)]
struct Relist {
    /// What was there before it and has not been listed yet.
    unseen: HashSet<Key>,
    /// What we wrote since it began, and it has not listed.
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

impl<K: Debug + Resource + Serialize + DeserializeOwned> Store<K> {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            packer: Packer::new(),
            latest: VecDeque::new(),
            puts: 0,
            mean_bytes: 0,
            packed_objects: 0,
            packed_bytes: 0,
            unreadable: BTreeSet::new(),
            indexes: Vec::new(),
            deleted: HashMap::new(),
            gone: VecDeque::new(),
            gone_set: HashSet::new(),
            relists: HashMap::new(),
        }
    }

    /// Adds an index, unless there is one by that name.
    pub(crate) fn add_index(&mut self, name: Arc<str>, terms: Terms<K>) {
        if self.indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, terms, keys: HashMap::new() };
        for (key, stored) in &self.objects {
            if let Some(object) = self.whole(stored) {
                index.add(key, &object);
            }
        }
        self.indexes.push(index);
    }

    /// Puts an object in, unless what is there is as new.
    pub(crate) fn put(
        &mut self,
        origin: Origin,
        object: Result<K, Unreadable>,
        ownership: Option<Arc<Ownership>>,
    ) -> Put<K> {
        let metadata = match &object {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        };
        let key = Key::in_metadata(metadata);
        let version = version_of(metadata);
        let known = self.objects.get(&key).map(|stored| stored.version);
        match origin {
            Origin::List => self.note_listed(&key),
            Origin::Answer => self.note_written(&key),
            Origin::Watch => {}
        }
        let uid = metadata.uid.as_deref().map(hash);
        if origin == Origin::Answer && uid.is_some_and(|uid| self.gone_set.contains(&uid)) {
            return Put::Refused;
        }
        if let Some(deleted) = self.deleted.get(&key) {
            if Some(deleted.uid) == uid {
                return Put::Refused;
            }
            self.deleted.remove(&key);
        }
        // Versions that are no numbers cannot be compared: then the order in
        // which they arrive counts.
        if let (Some(Some(known)), Some(version)) = (known, version)
            && known >= version
        {
            return Put::Refused;
        }
        let (form, new) = match object {
            Ok(object) => {
                let new = Arc::new(object);
                self.measure(&new);
                (Form::Whole(new.clone()), Some(new))
            }
            Err(unreadable) => (Form::Unreadable(Box::new(unreadable)), None),
        };
        self.puts += 1;
        let stored = Stored { form, ownership, version, uid, put: self.puts };
        let known = self.objects.insert(key.clone(), stored);
        let old = known.and_then(|known| self.take_out(&key, known));
        for index in &mut self.indexes {
            match (&old, &new) {
                (Some(old), Some(new)) => index.replace(&key, old, new),
                (None, Some(new)) => index.add(&key, new),
                (Some(old), None) => index.remove(&key, old),
                (None, None) => {}
            }
        }
        let Some(new) = new else {
            self.unreadable.insert(key);
            return Put::SetAside { old };
        };
        self.latest.push_back((key, self.puts));
        self.pack_the_oldest();
        Put::Stored { old, new }
    }

    /// The watch says that this object is gone.
    pub(crate) fn remove_watched(&mut self, metadata: &ObjectMeta) -> Option<Arc<K>> {
        let key = Key::in_metadata(metadata);
        let uid = metadata.uid.as_deref().map(hash);
        if self.deleted.get(&key).is_some_and(|deleted| Some(deleted.uid) == uid) {
            self.deleted.remove(&key);
        }
        // Also if we never saw it: the answer to our create may still be on its way.
        self.note_gone(uid);
        // A successor of that name may have been written by us meanwhile.
        if self.objects.get(&key)?.uid != uid {
            return None;
        }
        self.remove(&key)
    }

    /// The API server answered that this object is deleted for good.
    pub(crate) fn remove_answered(&mut self, key: &Key, uid: Option<&str>) -> Option<Arc<K>> {
        let uid = uid.map(hash);
        let known_uid = self.objects.get(key).and_then(|stored| stored.uid);
        if uid.is_some() && known_uid.is_some() && known_uid != uid {
            return None;
        }
        // What was never seen needs no mark, and one without a UID would keep its successors out.
        let uid = uid.or(known_uid)?;
        if !self.objects.contains_key(key) && self.gone_set.contains(&uid) {
            return None;
        }
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

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).and_then(|stored| self.whole(stored))
    }

    /// The object of this key, if its content does not fit its type.
    pub(crate) fn unreadable(&self, key: &Key) -> Option<&Unreadable> {
        match &self.objects.get(key)?.form {
            Form::Unreadable(unreadable) => Some(unreadable),
            Form::Whole(_) | Form::Packed(_) => None,
        }
    }

    /// Those whose content does not fit their type, sorted by key.
    pub(crate) fn all_unreadable(&self) -> impl Iterator<Item = (&Key, &Unreadable)> {
        self.unreadable.iter().filter_map(|key| Some((key, self.unreadable(key)?)))
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// What of an object's fields managers of this process own.
    pub(crate) fn ownership(&self, key: &Key) -> Option<Arc<Ownership>> {
        self.objects.get(key)?.ownership.clone()
    }

    /// The keys of all objects, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }

    /// The objects of a namespace, or all of them, sorted by key.
    pub(crate) fn list(&self, namespace: Option<&str>) -> impl Iterator<Item = Arc<K>> {
        self.range(namespace).filter_map(|(_, stored)| self.whole(stored))
    }

    /// The objects that an index holds under a term, sorted by key.
    pub(crate) fn find(&self, index: &str, term: &str) -> Vec<Arc<K>> {
        let Some(index) = self.indexes.iter().find(|known| *known.name == *index) else { return Vec::new() };
        let mut keys: Vec<_> = index.keys.get(&hash(term)).into_iter().flatten().collect();
        keys.sort();
        let found = keys.into_iter().filter_map(|key| self.get(key));
        found.filter(|object| (index.terms)(object).iter().any(|known| known == term)).collect()
    }

    /// How many objects can be read.
    pub(crate) fn len(&self) -> usize {
        self.objects.len() - self.unreadable.len()
    }

    /// About how many bytes the objects take.
    pub(crate) fn bytes(&self) -> usize {
        self.packed_bytes + (self.len() - self.packed_objects) * self.mean_bytes
    }

    fn measure(&mut self, object: &K) {
        if self.puts.is_multiple_of(MEASURED) {
            let bytes = serde_json::to_vec(object).map_or(0, |json| json.len());
            self.mean_bytes = if self.mean_bytes == 0 { bytes } else { (self.mean_bytes * 7 + bytes) / 8 };
        }
    }

    fn whole(&self, stored: &Stored<K>) -> Option<Arc<K>> {
        match &stored.form {
            Form::Whole(object) => Some(object.clone()),
            Form::Packed(packed) => Some(self.packer.unpack(packed)),
            Form::Unreadable(_) => None,
        }
    }

    fn take_out(&mut self, key: &Key, stored: Stored<K>) -> Option<Arc<K>> {
        match &stored.form {
            Form::Whole(_) => {}
            Form::Packed(packed) => {
                self.packed_objects -= 1;
                self.packed_bytes -= packed.bytes();
            }
            Form::Unreadable(_) => {
                self.unreadable.remove(key);
            }
        }
        self.whole(&stored)
    }

    /// Packs what nobody has put for the longest, as long as there is too much.
    fn pack_the_oldest(&mut self) {
        while self.latest.len() * self.mean_bytes > WHOLE_BYTES {
            let Some((key, put)) = self.latest.pop_front() else { return };
            let Some(stored) = self.objects.get_mut(&key).filter(|stored| stored.put == put) else {
                continue;
            };
            if let Form::Whole(object) = &stored.form
                && let Some(packed) = self.packer.pack(object)
            {
                self.packed_objects += 1;
                self.packed_bytes += packed.bytes();
                stored.form = Form::Packed(packed);
            }
        }
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
        let removed = self.objects.remove(key)?;
        self.note_gone(removed.uid);
        let removed = self.take_out(key, removed)?;
        for index in &mut self.indexes {
            index.remove(key, &removed);
        }
        Some(removed)
    }

    fn note_gone(&mut self, uid: Option<NonZeroU64>) {
        let Some(uid) = uid else { return };
        let now = Instant::now();
        while self.gone.front().is_some_and(|(since, _)| now - *since > ANSWERS_TAKE) {
            if let Some((_, uid)) = self.gone.pop_front() {
                self.gone_set.remove(&uid);
            }
        }
        if self.gone_set.insert(uid) {
            self.gone.push_back((now, uid));
        }
    }

    fn note_listed(&mut self, key: &Key) {
        for relist in self.relists.values_mut() {
            relist.unseen.remove(key);
            // Whatever became of it after the list, the watch will tell.
            relist.written.remove(key);
        }
    }

    fn note_written(&mut self, key: &Key) {
        let is_known = self.objects.contains_key(key);
        for (part, relist) in &mut self.relists {
            let is_listed = is_known && !relist.unseen.contains(key) && !relist.written.contains(key);
            if !is_listed && part.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace)) {
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

fn hash(term: &str) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MAX)
}

/// The resourceVersion as a number, which Kubernetes guarantees since 1.35.
pub(crate) fn version_of(metadata: &ObjectMeta) -> Option<NonZeroU64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
