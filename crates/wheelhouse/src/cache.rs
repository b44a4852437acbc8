//! The cache: one informer for each kind, set of namespaces, selection and
//! projection, shared by all who ask.
//!
//! What makes it more than a copy of the API server's state: an answered write is
//! visible to every later read, lists and indexes included, because the answer
//! goes into the same store as the watch, and the store never goes back.
//!
//! Streaming lists are not used: kube 5.0 asks for them at resourceVersion 0,
//! which a lagging API server may answer from the past. See `docs/decisions/0008-cache.md`.

mod informer;
mod lister;
mod ownership;
mod packed;
mod projection;
mod scope;
mod store;
mod wire;

use std::{any::TypeId, collections::HashMap, sync::Arc, time::Duration};

use kube::Client;
use parking_lot::RwLock;

use informer::Informer;
pub(crate) use informer::{AnyInformer, Peek};
pub use informer::{Cached, Cause, Change};
pub(crate) use lister::owners;
pub use lister::{Index, Lister};
pub(crate) use ownership::Ownership as OwnershipOf;
pub use scope::{Namespaces, Selection};

use crate::{
    error::Error,
    key::Key,
    kind::{Kind, is_namespaced},
};

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_AT_MOST: Duration = Duration::from_secs(10);

/// Everything that is watched.
pub struct Cache {
    client: Client,
    namespaces: Namespaces,
    managers: Arc<RwLock<Vec<String>>>,
    informers: RwLock<HashMap<Id, Arc<dyn AnyInformer>>>,
}

/// What makes two askers share an informer.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Id {
    kind: Kind,
    type_id: TypeId,
    labels: String,
    fields: Option<String>,
    namespaces: Namespaces,
}

impl Cache {
    /// An empty cache that looks at these namespaces unless told otherwise.
    pub fn new(client: Client, namespaces: Namespaces) -> Self {
        Self { client, namespaces, managers: Arc::default(), informers: RwLock::default() }
    }

    /// All objects of a Rust type. Starts to watch at the first call. Of a
    /// [`kube::core::PartialObjectMeta`] only the metadata is even sent.
    pub fn lister<K: Cached<DynamicType = ()>>(&self) -> Lister<K> {
        self.lister_of((), Selection::everything())
    }

    /// The objects of a kind that may be known only at run time, under a selection.
    pub fn lister_of<K: Cached>(&self, dynamic: K::DynamicType, selection: Selection) -> Lister<K> {
        self.lister_in(dynamic, selection, self.namespaces.clone())
    }

    /// The same, in other namespaces than the cache's.
    pub fn lister_in<K: Cached>(
        &self,
        dynamic: K::DynamicType,
        selection: Selection,
        namespaces: Namespaces,
    ) -> Lister<K> {
        // What is in no namespace is looked at as a whole.
        let namespaces = if is_namespaced::<K>() == Some(false) { Namespaces::All } else { namespaces };
        let id = Id {
            kind: Kind::of::<K>(&dynamic),
            type_id: TypeId::of::<K>(),
            labels: selection.labels.to_string(),
            fields: selection.fields.clone(),
            namespaces: namespaces.clone(),
        };
        let mut informers = self.informers.write();
        let known = informers.get(&id).cloned().and_then(|any| any.as_any().downcast::<Informer<K>>().ok());
        let informer = known.unwrap_or_else(|| {
            let client = self.client.clone();
            let managers = self.managers.clone();
            let informer = Arc::new(Informer::new(client, dynamic, namespaces, selection, managers));
            informers.insert(id, informer.clone());
            informer
        });
        informer.clone().start();
        Lister::new(informer)
    }

    /// Stops watching what this lister reads. It then stays as it is.
    pub fn stop<K: Cached>(&self, lister: &Lister<K>) {
        let stopped: Arc<dyn AnyInformer> = lister.informer().clone();
        stopped.stop();
        self.informers.write().retain(|_, known| !Arc::ptr_eq(known, &stopped));
    }

    /// Stops watching anything.
    pub fn stop_all(&self) {
        for (_, informer) in self.informers.write().drain() {
            informer.stop();
        }
    }

    /// Resolves once everything that is watched has been listed.
    pub async fn synced(&self) {
        let informers: Vec<_> = self.informers.read().values().cloned().collect();
        for informer in informers {
            informer.synced().await;
        }
    }

    /// What keeps the cache from being complete, in words.
    pub fn missing(&self) -> Vec<String> {
        let informers = self.informers.read();
        let waiting = informers.values().filter(|informer| !informer.is_synced()).map(|informer| {
            informer.trouble().unwrap_or_else(|| format!("{} are being listed", informer.kind().plural))
        });
        waiting.collect()
    }

    /// How many objects of each kind there are, and about how many bytes they take.
    pub(crate) fn sizes(&self) -> Vec<(Kind, u64, u64)> {
        let informers = self.informers.read();
        let sizes = informers.values().map(|informer| {
            let (objects, bytes) = informer.size();
            (informer.kind().clone(), objects, bytes)
        });
        sizes.collect()
    }

    /// Remembers what this field manager applied, of all that is read from now on.
    pub(crate) fn add_field_manager(&self, name: &str) {
        let mut managers = self.managers.write();
        if !managers.iter().any(|known| known == name) {
            managers.push(name.to_owned());
        }
    }

    fn of_kind(&self, kind: &Kind) -> Vec<Arc<dyn AnyInformer>> {
        let informers = self.informers.read();
        informers.values().filter(|informer| informer.kind().is_kind_of(kind)).cloned().collect()
    }

    /// Whether this kind is watched at all.
    pub(crate) fn watches(&self, kind: &Kind) -> bool {
        !self.of_kind(kind).is_empty()
    }

    /// What is known of an object.
    pub(crate) fn peek(&self, kind: &Kind, key: &Key) -> Peeked {
        let informers = self.of_kind(kind);
        if let Some(peek) = informers.iter().find_map(|informer| informer.peek(key)) {
            return Peeked::There(Box::new(peek));
        }
        match informers.iter().any(|informer| informer.holds_all_of(key.namespace())) {
            true => Peeked::NotThere,
            false => Peeked::Unknown,
        }
    }

    /// Takes the answer to a write in, everywhere.
    pub(crate) fn answered(&self, kind: &Kind, text: &str, cause: Cause) -> Result<(), serde_json::Error> {
        self.of_kind(kind).iter().try_for_each(|informer| informer.answered(text, cause))
    }

    /// Takes in that a deletion was answered, everywhere.
    pub(crate) fn answered_gone(&self, kind: &Kind, key: &Key, uid: Option<&str>) {
        for informer in self.of_kind(kind) {
            informer.answered_gone(key, uid);
        }
    }

    /// Reads one object anew from the API server.
    pub(crate) async fn refresh_one(&self, kind: &Kind, key: &Key) -> Result<(), Error> {
        for informer in self.of_kind(kind) {
            informer.refresh_one(key).await?;
        }
        Ok(())
    }

    /// Reads a kind anew from the API server, in one namespace or everywhere.
    pub(crate) async fn refresh(&self, kind: &Kind, namespace: Option<&str>) -> Result<(), Error> {
        for informer in self.of_kind(kind) {
            informer.refresh(namespace).await?;
        }
        Ok(())
    }

    /// Reads the children of an owner in other namespaces anew from the API server.
    pub(crate) async fn refresh_labelled(&self, kind: &Kind, owner: &str) -> Result<(), Error> {
        for informer in self.of_kind(kind) {
            informer.refresh_labelled(owner).await?;
        }
        Ok(())
    }

    /// All children of an object, of the kinds given.
    pub(crate) fn children_of(&self, uid: &str, kinds: &[Kind]) -> Vec<crate::plan::Reference> {
        let mut children: Vec<_> = kinds
            .iter()
            .flat_map(|kind| self.of_kind(kind))
            .flat_map(|informer| informer.children_of(uid))
            .collect();
        children.sort();
        children.dedup();
        children
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// What the cache knows of an object.
pub(crate) enum Peeked {
    There(Box<Peek>),
    NotThere,
    /// It is not among the objects that are watched.
    Unknown,
}
