//! The light form, for agents inside pods: one object is watched under the
//! agent's own identity. No election, no queue, no manager.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::watch;

use crate::{
    cache::{Cache, Cached, Lister, Namespaces, Selection},
    key::Key,
};

/// One object, followed.
pub struct Followed<K: Cached> {
    key: Key,
    lister: Lister<K>,
    changes: watch::Receiver<()>,
    _cache: Cache,
}

impl<K: Cached<DynamicType = ()>> Followed<K> {
    /// Begins to follow an object, whether or not it is there yet.
    pub fn new(client: Client, key: Key) -> Self {
        let cache = Cache::new(client, Namespaces::only(key.namespace()));
        let selection = Selection::fields(format!("metadata.name={}", key.name()));
        let lister = cache.lister_of::<K>((), selection);
        let (changed, changes) = watch::channel(());
        lister.informer().subscribe(Arc::new(move |_| {
            changed.send_replace(());
        }));
        Self { key, lister, changes, _cache: cache }
    }

    /// The object as it is now; none if there is none, or if it was not read yet.
    pub fn get(&self) -> Option<Arc<K>> {
        self.lister.get(&self.key)
    }

    /// Resolves once it is known whether the object is there.
    pub async fn synced(&self) {
        self.lister.synced().await;
    }

    /// Resolves at the next change, or after that time without one.
    pub async fn changed_within(&mut self, time: Duration) -> Option<Arc<K>> {
        // Fails after that time: then it is as it was.
        let _ = tokio::time::timeout(time, self.changes.changed()).await;
        self.get()
    }
}
