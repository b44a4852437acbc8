//! [`Lister`]: reads what the cache holds. What changed lately is not copied: what
//! comes out is an `Arc` of what is in. Of a kind with thousands of objects, the
//! others are unpacked for whoever asks, which takes microseconds each.

use std::sync::Arc;

use kube::{
    ResourceExt as _,
    core::{ObjectMeta, Selector, SelectorExt as _},
};

use super::informer::{AnyInformer as _, Cached, Informer};
use crate::{key::Key, kind::Kind, labels::OWNER_UID};

/// The index that every store has.
pub(crate) const OWNERS: &str = "owners";

/// The UIDs of an object's owners: by reference, or by label where the owner is
/// in another namespace.
pub(crate) fn owners(metadata: &ObjectMeta) -> Vec<String> {
    let references = metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone());
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_UID));
    references.chain(label.cloned()).collect()
}

/// Reads the objects of one kind. Cheap to clone.
///
/// An object whose content does not fit its type is not among them: ask
/// [`Lister::unreadable`], or read through [`World`](crate::World), which does.
pub struct Lister<K: Cached> {
    informer: Arc<Informer<K>>,
}

impl<K: Cached> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { informer: self.informer.clone() }
    }
}

impl<K: Cached> Lister<K> {
    pub(crate) fn new(informer: Arc<Informer<K>>) -> Self {
        Self { informer }
    }

    pub(crate) fn informer(&self) -> &Arc<Informer<K>> {
        &self.informer
    }

    pub(crate) fn kind(&self) -> &Kind {
        self.informer.kind()
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.informer.store().read().get(key)
    }

    /// The objects of a namespace, or all of them, sorted by namespace and name.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        self.informer.store().read().list(namespace).collect()
    }

    /// The keys of all objects, sorted.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.informer.store().read().keys().cloned().collect()
    }

    /// Those of them with these labels.
    pub fn select(&self, namespace: Option<&str>, labels: &Selector) -> Vec<Arc<K>> {
        let store = self.informer.store().read();
        store.list(namespace).filter(|object| labels.matches(object.labels())).collect()
    }

    /// Those that the object with this UID owns.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.informer.store().read().find(OWNERS, uid)
    }

    /// What of this key's object does not fit its type, if it is there and does not.
    pub fn unreadable(&self, key: &Key) -> Option<String> {
        self.informer.store().read().unreadable(key).map(|unreadable| unreadable.why.clone())
    }

    /// The first that does not fit its type, of those whose metadata answers so.
    pub(crate) fn first_unreadable(&self, is_meant: impl Fn(&ObjectMeta) -> bool) -> Option<(Key, String)> {
        let store = self.informer.store().read();
        let mut meant = store.all_unreadable().filter(|(_, unreadable)| is_meant(&unreadable.metadata));
        meant.next().map(|(key, unreadable)| (key.clone(), unreadable.why.clone()))
    }

    /// An index over this kind; made at the first call with this name, and kept.
    pub fn index<F>(&self, name: impl Into<Arc<str>>, terms: F) -> Index<K>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        let name = name.into();
        self.informer.store().write().add_index(name.clone(), Arc::new(terms));
        Index { name, lister: self.clone() }
    }

    /// Resolves once everything that is there has been listed.
    pub async fn synced(&self) {
        self.informer.synced().await;
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.informer.store().read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Finds objects of one kind by a term that is computed from each.
pub struct Index<K: Cached> {
    name: Arc<str>,
    lister: Lister<K>,
}

impl<K: Cached> Index<K> {
    /// The objects with this term, sorted by namespace and name.
    pub fn find(&self, term: &str) -> Vec<Arc<K>> {
        self.lister.informer.store().read().find(&self.name, term)
    }
}
