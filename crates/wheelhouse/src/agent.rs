//! The light form, for agents inside pods: an object, or some of a kind, is watched
//! under the agent's own identity. No election, no queue, no manager.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::watch;

use crate::{
    cache::{Cache, Cached, Lister, Namespaces, Selection},
    key::Key,
};

/// Some objects of one namespace, or of all, followed.
pub struct FollowedSome<K: Cached> {
    lister: Lister<K>,
    changes: watch::Receiver<()>,
    _cache: Cache,
}

impl<K: Cached<DynamicType = ()>> FollowedSome<K> {
    /// Begins to follow what is selected in a namespace, or in all.
    pub fn new(client: Client, namespace: Option<&str>, selection: Selection) -> Self {
        let cache = Cache::new(client, Namespaces::only(namespace));
        let lister = cache.lister_of::<K>((), selection);
        let (changed, changes) = watch::channel(());
        lister.informer().subscribe(Arc::new(move |_| {
            changed.send_replace(());
        }));
        Self { lister, changes, _cache: cache }
    }

    /// What there is now, sorted by name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.lister.list(None)
    }

    /// Resolves once everything that is there was listed.
    pub async fn synced(&self) {
        self.lister.synced().await;
    }

    /// Resolves at the next change.
    pub async fn changed(&mut self) {
        // Only what is dropped sends no more, and this holds it.
        let _ = self.changes.changed().await;
    }
}

/// One object, followed.
pub struct Followed<K: Cached> {
    key: Key,
    all: FollowedSome<K>,
}

impl<K: Cached<DynamicType = ()>> Followed<K> {
    /// Begins to follow an object, whether or not it is there yet.
    pub fn new(client: Client, key: Key) -> Self {
        let selection = Selection::fields(format!("metadata.name={}", key.name()));
        let all = FollowedSome::new(client, key.namespace(), selection);
        Self { key, all }
    }

    /// The object as it is now; none if there is none, or if it was not read yet.
    pub fn get(&self) -> Option<Arc<K>> {
        self.all.lister.get(&self.key)
    }

    /// Resolves once it is known whether the object is there.
    pub async fn synced(&self) {
        self.all.synced().await;
    }

    /// Resolves at the next change.
    pub async fn changed(&mut self) {
        self.all.changed().await;
    }

    /// Resolves at the next change, or after that time without one.
    pub async fn changed_within(&mut self, time: Duration) -> Option<Arc<K>> {
        // Fails after that time: then it is as it was.
        let _ = tokio::time::timeout(time, self.changed()).await;
        self.get()
    }
}
