//! [`Informer`]: keeps one [`Store`] up to date with one kind, and tells who
//! asked of every change.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt::Debug,
    hash::Hash,
    num::NonZeroU64,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, pin_mut, stream::BoxStream};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::{ObjectMeta, SelectorExt as _},
    runtime::watcher::{self, Event},
};
use parking_lot::{Mutex, RwLock};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    lister::{OWNERS, owners},
    ownership::{Ownership, Ownerships},
    scope::{Namespaces, Selection},
    store::{Origin, Put, Store, version_of},
    wire::{Unreadable, Wire},
};
use crate::{
    backoff::Backoff,
    error::Error,
    key::Key,
    kind::{Kind, is_namespaced},
    labels::{APPLIED, OWNER_UID},
    plan::Reference,
};

/// How many objects are asked for at a time.
const PAGE: u32 = 500;
/// How long the API server may take to tell about one object.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// What the cache can hold: a Rust type, a dynamic object, a projection.
pub trait Cached:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// A change of one object, as triggers hear of it.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// What it was, unless it is new to us.
    pub old: Option<Arc<K>>,
    /// What it is now, unless it is gone.
    pub new: Option<Arc<K>>,
    /// How we came to know.
    pub cause: Cause,
}

impl<K> Change<K> {
    /// The object as it was last known.
    pub fn latest(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// How a change came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The object was there when we began to look.
    Initial,
    /// Somebody changed it.
    Watch,
    /// It is the answer to a write or a live read of this process.
    Answer,
    /// This controller, by number, wrote the status.
    Status(u64),
}

/// Told of every change. Called from the informer's task: must be quick.
pub(crate) type Subscriber<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// Told of every object whose content does not fit its type.
pub(crate) type UnreadableSubscriber = Arc<dyn Fn(&ObjectMeta) + Send + Sync>;

/// Keeps the objects of one kind, in some namespaces, under some selection.
pub(crate) struct Informer<K: Cached> {
    client: Client,
    dynamic: K::DynamicType,
    kind: Kind,
    namespaces: Namespaces,
    selection: Selection,
    store: RwLock<Store<K>>,
    ownerships: Mutex<Ownerships>,
    /// The field managers of this process.
    managers: Arc<RwLock<Vec<String>>>,
    subscribers: RwLock<Vec<Subscriber<K>>>,
    unreadable_subscribers: RwLock<Vec<UnreadableSubscriber>>,
    synced_parts: watch::Sender<usize>,
    trouble: Mutex<Option<String>>,
    stop: CancellationToken,
    started: AtomicBool,
}

impl<K: Cached> Informer<K> {
    pub(crate) fn new(
        client: Client,
        dynamic: K::DynamicType,
        namespaces: Namespaces,
        selection: Selection,
        managers: Arc<RwLock<Vec<String>>>,
    ) -> Self {
        let mut store = Store::new();
        store.add_index(OWNERS.into(), Arc::new(|object: &K| owners(object.meta())));
        Self {
            kind: Kind::of::<K>(&dynamic),
            client,
            dynamic,
            namespaces,
            selection,
            store: RwLock::new(store),
            ownerships: Mutex::default(),
            managers,
            subscribers: RwLock::default(),
            unreadable_subscribers: RwLock::default(),
            synced_parts: watch::Sender::new(0),
            trouble: Mutex::default(),
            stop: CancellationToken::new(),
            started: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &RwLock<Store<K>> {
        &self.store
    }

    /// Calls it for what is there already and for every change from now on.
    pub(crate) fn subscribe(&self, subscriber: Subscriber<K>) {
        let there: Vec<_> = {
            let store = self.store.read();
            self.subscribers.write().push(subscriber.clone());
            store.keys().cloned().collect()
        };
        for key in there {
            let object = self.store.read().get(&key);
            if object.is_some() {
                subscriber(&Change { old: None, new: object, cause: Cause::Initial });
            }
        }
    }

    /// Calls it for every object, there already or to come, that cannot be read.
    pub(crate) fn subscribe_unreadable(&self, subscriber: UnreadableSubscriber) {
        let there: Vec<_> = {
            let store = self.store.read();
            self.unreadable_subscribers.write().push(subscriber.clone());
            store.all_unreadable().map(|(_, unreadable)| unreadable.metadata.clone()).collect()
        };
        there.iter().for_each(|metadata| subscriber(metadata));
    }

    fn api(&self, namespace: Option<&str>) -> Api<Wire<K>> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.dynamic),
            None => Api::all_with(self.client.clone(), &self.dynamic),
        }
    }

    fn events(&self, namespace: Option<&str>) -> BoxStream<'static, watcher::Result<Event<Wire<K>>>> {
        let config = self.selection.watcher_config().page_size(PAGE);
        watcher::watcher(self.api(namespace), config).boxed()
    }

    /// Follows one part of the scope until stopped.
    async fn follow(self: &Arc<Self>, part: Option<Arc<str>>) {
        let mut backoff = Backoff::new(super::RETRY_FIRST, super::RETRY_AT_MOST);
        let mut initial = true;
        let events = self.events(part.as_deref());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // A list that begins has not succeeded yet.
                    if matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_)) {
                        backoff.reset();
                    }
                    if matches!(event, Event::InitDone) {
                        self.finish_list(&part);
                        if initial {
                            initial = false;
                            self.synced_parts.send_modify(|parts| *parts += 1);
                        }
                        if self.trouble.lock().take().is_some() {
                            tracing::info!(kind = %self.kind, "watching {} again", self.kind.plural);
                        }
                    } else {
                        // Code of the operator runs in here: what decides whom to tell.
                        let noting = AssertUnwindSafe(|| self.note_event(event, &part, initial));
                        if std::panic::catch_unwind(noting).is_err() {
                            tracing::error!(kind = %self.kind, "an index or a trigger panicked: its operator has a bug");
                        }
                    }
                }
                Err(error) => {
                    self.note_trouble(&error);
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    fn note_event(&self, event: Event<Wire<K>>, part: &Option<Arc<str>>, initial: bool) {
        tracing::trace!(kind = %self.kind, %event, "from the API server");
        let watched = if initial { Cause::Initial } else { Cause::Watch };
        match event {
            Event::Init => self.store.write().begin_list(part.clone()),
            Event::InitApply(wire) => self.put(Origin::List, wire, watched),
            Event::Apply(wire) => {
                self.trouble.lock().take();
                self.put(Origin::Watch, wire, Cause::Watch);
            }
            Event::Delete(wire) => {
                let removed = self.store.write().remove_watched(wire.meta());
                // The last state is the one that the deletion carries.
                let last = removed.map(|known| wire.object.map_or(known, Arc::new));
                self.tell_gone(last, Cause::Watch);
            }
            Event::InitDone => {}
        }
    }

    fn finish_list(self: &Arc<Self>, part: &Option<Arc<str>>) {
        let listed = self.store.write().end_list(part);
        for object in listed.vanished {
            self.tell_gone(Some(object), Cause::Watch);
        }
        for key in listed.doubtful {
            let (informer, stop) = (self.clone(), self.stop.clone());
            tokio::spawn(async move { stop.run_until_cancelled(informer.read_until_known(key)).await });
        }
    }

    /// Reads one object from the API server into the store, however often that takes.
    async fn read_until_known(&self, key: Key) {
        let mut backoff = Backoff::new(super::RETRY_FIRST, super::RETRY_AT_MOST);
        loop {
            let why = match tokio::time::timeout(READ_LIMIT, self.read_live(&key)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {READ_LIMIT:?}"),
            };
            tracing::warn!(kind = %self.kind, %key, "cannot read {} {key} after a list: {why}", self.kind);
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    fn note_trouble(&self, error: &watcher::Error) {
        let text = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
                format!("the API server does not serve {} yet: is the CRD installed?", self.kind.plural)
            }
            error => format!("cannot watch {}: {error}", self.kind.plural),
        };
        let mut trouble = self.trouble.lock();
        if trouble.as_ref() != Some(&text) {
            tracing::warn!(kind = %self.kind, "{text}; trying again");
            *trouble = Some(text);
        }
    }

    fn put(&self, origin: Origin, wire: Wire<K>, cause: Cause) {
        let ownership = self.ownerships.lock().intern(&wire.managed, &self.managers.read());
        let unreadable = wire.object.as_ref().err().cloned();
        let put = self.store.write().put(origin, wire.object, ownership);
        match put {
            Put::Stored { old, new } => self.tell(&Change { old, new: Some(new), cause }),
            Put::SetAside { old } => {
                self.tell_gone(old, cause);
                if let Some(unreadable) = unreadable {
                    self.tell_unreadable(&unreadable);
                }
            }
            Put::Refused => {}
        }
    }

    fn tell_gone(&self, last: Option<Arc<K>>, cause: Cause) {
        if last.is_some() {
            self.tell(&Change { old: last, new: None, cause });
        }
    }

    fn tell_unreadable(&self, unreadable: &Unreadable) {
        let key = Key::in_metadata(&unreadable.metadata);
        tracing::warn!(kind = %self.kind, %key, "{} {key} cannot be read: {}", self.kind, unreadable.why);
        for subscriber in self.unreadable_subscribers.read().iter() {
            subscriber(&unreadable.metadata);
        }
    }

    fn tell(&self, change: &Change<K>) {
        for subscriber in self.subscribers.read().iter() {
            subscriber(change);
        }
    }

    /// Reads one object from the API server into the store.
    async fn read_live(&self, key: &Key) -> kube::Result<()> {
        match self.api(key.namespace()).get_opt(key.name()).await? {
            Some(wire) if self.selects(wire.meta()) => self.put(Origin::Answer, wire, Cause::Answer),
            _ => {
                let removed = self.store.write().remove_answered(key, None);
                self.tell_gone(removed, Cause::Answer);
            }
        }
        Ok(())
    }

    /// Reads all objects of a namespace (or all there are) from the API server into
    /// the store; of an owner, only those that are labelled as its own.
    async fn list_live(&self, namespace: Option<&str>, owner: Option<&str>) -> kube::Result<()> {
        let is_asked_for = |object: &K| {
            owner.is_none_or(|owner| object.labels().get(OWNER_UID).is_some_and(|label| label == owner))
        };
        let known: Vec<_> = {
            let store = self.store.read();
            let objects = store.list(namespace).filter(|object| is_asked_for(object));
            objects.map(|object| (Key::of(&*object), object.uid(), version_of(object.meta()))).collect()
        };
        let mut params = self.selection.list_params().limit(PAGE);
        if let Some(owner) = owner {
            let label = format!("{OWNER_UID}={owner}");
            params.label_selector = Some(match params.label_selector {
                Some(selector) => format!("{selector},{label}"),
                None => label,
            });
        }
        let mut listed = std::collections::HashSet::new();
        let version = loop {
            let page = self.api(namespace).list(&params).await?;
            let version =
                page.metadata.resource_version.as_deref().and_then(|text| text.parse::<NonZeroU64>().ok());
            for wire in page.items {
                listed.insert(Key::of(&wire));
                self.put(Origin::Answer, wire, Cause::Answer);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break version,
            }
        };
        for (key, uid, known_version) in known {
            if !listed.contains(&key) && known_version <= version {
                self.answered_gone(&key, uid.as_deref());
            }
        }
        Ok(())
    }

    fn selects(&self, metadata: &ObjectMeta) -> bool {
        let none = BTreeMap::new();
        self.namespaces.contain(metadata.namespace.as_deref())
            && self.selection.labels.matches(metadata.labels.as_ref().unwrap_or(&none))
    }

    /// The object of this key and what does not fit its type, if that is so.
    pub(crate) fn unreadable(&self, key: &Key) -> Option<(Reference, String)> {
        let store = self.store.read();
        let unreadable = store.unreadable(key)?;
        Some((Reference::in_metadata(&self.kind, &unreadable.metadata), unreadable.why.clone()))
    }

    /// The metadata of an object, whether or not the rest of it can be read.
    fn with_metadata<T>(&self, key: &Key, read: impl FnOnce(&ObjectMeta) -> T) -> Option<T> {
        let store = self.store.read();
        match store.get(key) {
            Some(object) => Some(read(object.meta())),
            None => store.unreadable(key).map(|unreadable| read(&unreadable.metadata)),
        }
    }
}

/// What an apply needs to know of an object, whatever its type.
#[derive(Debug, Clone)]
pub(crate) struct Peek {
    pub(crate) reference: Reference,
    /// The hashes of what was applied last, by the annotations that hold them.
    pub(crate) stamps: BTreeMap<String, String>,
    /// The UIDs of its owners, the controller among them.
    pub(crate) owners: Vec<String>,
    pub(crate) controller: Option<String>,
    pub(crate) ownership: Option<Arc<Ownership>>,
}

/// An informer, whatever its type.
pub(crate) trait AnyInformer: Send + Sync {
    fn kind(&self) -> &Kind;
    fn start(self: Arc<Self>);
    fn stop(&self);
    /// Resolves once everything has been listed.
    fn synced(&self) -> BoxFuture<'_, ()>;
    fn is_synced(&self) -> bool;
    /// Whether everything of the kind in this namespace is held.
    fn holds_all_of(&self, namespace: Option<&str>) -> bool;
    /// What keeps it from being up to date.
    fn trouble(&self) -> Option<String>;
    /// Takes the answer to a write in.
    fn answered(&self, text: &str, cause: Cause) -> Result<(), serde_json::Error>;
    /// Takes in that a deletion was answered.
    fn answered_gone(&self, key: &Key, uid: Option<&str>);
    fn peek(&self, key: &Key) -> Option<Peek>;
    fn children_of(&self, uid: &str) -> Vec<Reference>;
    /// Reads one object.
    fn refresh_one<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>>;
    /// Reads the objects of a namespace, or all of them.
    fn refresh<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, Result<(), Error>>;
    /// Reads what is labelled with the UID of this owner.
    fn refresh_labelled<'a>(&'a self, owner: &'a str) -> BoxFuture<'a, Result<(), Error>>;
    /// How many objects it holds, and about how many bytes they take.
    fn size(&self) -> (u64, u64);
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<K: Cached> AnyInformer for Informer<K> {
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn start(self: Arc<Self>) {
        if self.started.swap(true, Ordering::SeqCst) {
            return;
        }
        for part in self.namespaces.parts() {
            let informer = self.clone();
            tokio::spawn(async move {
                let stop = informer.stop.clone();
                stop.run_until_cancelled(informer.follow(part)).await;
            });
        }
    }

    fn stop(&self) {
        self.stop.cancel();
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let parts = self.namespaces.parts().len();
            // Fails only if the sender is gone, and it is ours.
            let _ = self.synced_parts.subscribe().wait_for(|synced| *synced >= parts).await;
        })
    }

    fn is_synced(&self) -> bool {
        *self.synced_parts.borrow() >= self.namespaces.parts().len()
    }

    fn holds_all_of(&self, namespace: Option<&str>) -> bool {
        self.selection.is_everything() && self.namespaces.contain(namespace)
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    fn answered(&self, text: &str, cause: Cause) -> Result<(), serde_json::Error> {
        let wire: Wire<K> = serde_json::from_str(text)?;
        let key = Key::of(&wire);
        let is_held = self.store.read().contains(&key);
        if self.selects(wire.meta()) && (self.selection.fields.is_none() || is_held) {
            self.put(Origin::Answer, wire, cause);
        } else if is_held {
            self.answered_gone(&key, wire.meta().uid.as_deref());
        }
        Ok(())
    }

    fn answered_gone(&self, key: &Key, uid: Option<&str>) {
        let removed = self.store.write().remove_answered(key, uid);
        self.tell_gone(removed, Cause::Answer);
    }

    fn peek(&self, key: &Key) -> Option<Peek> {
        let ownership = self.store.read().ownership(key);
        self.with_metadata(key, |metadata| {
            let annotations = metadata.annotations.iter().flatten();
            let stamps = annotations.filter(|(name, _)| name.starts_with(APPLIED));
            let mut references = metadata.owner_references.iter().flatten();
            Peek {
                reference: Reference::in_metadata(&self.kind, metadata),
                stamps: stamps.map(|(name, hash)| (name.clone(), hash.clone())).collect(),
                owners: owners(metadata),
                controller: references
                    .find(|owner| owner.controller == Some(true))
                    .map(|owner| owner.uid.clone()),
                ownership,
            }
        })
    }

    fn children_of(&self, uid: &str) -> Vec<Reference> {
        let store = self.store.read();
        let children = store.find(OWNERS, uid);
        let readable = children.iter().map(|child| child.meta());
        let unreadable = store.all_unreadable().map(|(_, unreadable)| &unreadable.metadata);
        readable
            .chain(unreadable.filter(|metadata| owners(metadata).iter().any(|owner| owner == uid)))
            .map(|metadata| Reference::in_metadata(&self.kind, metadata))
            .collect()
    }

    fn refresh_one<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if !self.namespaces.contain(key.namespace()) {
                return Ok(());
            }
            self.read_live(key).await.map_err(Error::api(format!("read {} {key}", self.kind)))
        })
    }

    fn refresh<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            for part in self.namespaces.parts() {
                let namespace = namespace.filter(|_| is_namespaced::<K>() != Some(false));
                let asked = match (part.as_deref(), namespace) {
                    (None, asked) => asked,
                    (Some(part), None) => Some(part),
                    (Some(part), Some(asked)) if part == asked => Some(part),
                    _ => continue,
                };
                self.list_live(asked, None)
                    .await
                    .map_err(Error::api(format!("list {}", self.kind.plural)))?;
            }
            Ok(())
        })
    }

    fn refresh_labelled<'a>(&'a self, owner: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            for part in self.namespaces.parts() {
                self.list_live(part.as_deref(), Some(owner))
                    .await
                    .map_err(Error::api(format!("list {}", self.kind.plural)))?;
            }
            Ok(())
        })
    }

    fn size(&self) -> (u64, u64) {
        let store = self.store.read();
        (store.len() as u64, store.bytes() as u64)
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
