//! [`World`]: what `observe` reads through. It can read, and nothing else.

mod known;
mod probes;

use std::{
    any::TypeId,
    collections::{BTreeMap, HashSet},
    fmt::Debug,
    marker::PhantomData,
    sync::Arc,
};

use jiff::Timestamp;
use kube::{
    Client, Resource,
    api::{GetParams, ListParams},
    core::{ApiResource, DynamicObject, ObjectList, ObjectMeta, Request, Selector, SelectorExt as _},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use known::Known;
pub use probes::Probe;
pub(crate) use probes::Probes;

use crate::{
    act::built,
    cache::{Cache, Cached, Lister, owners},
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    labels::OWNER_UID,
    plan::Reference,
};

/// The world as one reconcile sees it.
///
/// Reads come from the cache, and cost nothing. After a conflict, or after a
/// write whose answer was lost, the same reads are live: the cache is brought up
/// to date from the API server first.
pub struct World<'a> {
    pub(crate) client: &'a Client,
    pub(crate) cache: &'a Cache,
    pub(crate) listers: &'a Listers,
    pub(crate) probes: &'a Arc<Probes>,
    pub(crate) resource: &'a Reference,
    pub(crate) look_again: Arc<dyn Fn() + Send + Sync>,
    pub(crate) now: Timestamp,
    pub(crate) last_failure: Option<Failure>,
    /// What was read live so far, where this observation has to be live.
    pub(crate) live: Option<Mutex<ReadLive>>,
}

/// Kinds, each in one namespace or everywhere, that were read from the API server.
pub(crate) type ReadLive = HashSet<(Kind, Option<String>)>;

impl World<'_> {
    /// The time of this observation.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What went wrong the last time, if it did, so that a condition can say so.
    /// Forgotten when this process ends, and when a reconcile goes well.
    pub fn last_failure(&self) -> Option<Failure> {
        self.last_failure.clone()
    }

    /// The resource that is being reconciled.
    pub fn resource(&self) -> &Reference {
        self.resource
    }

    /// One object of a kind in the resource's namespace.
    ///
    /// # Errors
    /// When the kind was not registered with the controller, a live read fails, or
    /// the object's content does not fit its type: what cannot be read is not absent.
    pub async fn get<K: Cached<DynamicType = ()>>(&self, name: &str) -> Result<Option<Arc<K>>> {
        let key = Key::new(self.resource.namespace.as_deref(), name);
        let lister = self.lister::<K>(self.resource.namespace.as_deref()).await?;
        all_readable(&lister, |metadata| Key::in_metadata(metadata) == key)?;
        Ok(lister.get(&key))
    }

    /// The resource's own children of a kind, in whatever namespace.
    ///
    /// # Errors
    /// When the kind was not registered with the controller, a live read fails, or
    /// a child's content does not fit its type: what cannot be read is not absent.
    pub async fn owned<K: Cached<DynamicType = ()>>(&self) -> Result<Vec<Arc<K>>> {
        let lister = self.lister::<K>(self.resource.namespace.as_deref()).await?;
        self.refresh_children_elsewhere(&Kind::of::<K>(&())).await?;
        all_readable(&lister, |metadata| owners(metadata).contains(&self.resource.uid))?;
        Ok(lister.owned_by(&self.resource.uid))
    }

    /// The objects of a kind with these labels in the resource's namespace.
    ///
    /// # Errors
    /// When the kind was not registered with the controller, a live read fails, or
    /// the content of one does not fit its type: what cannot be read is not absent.
    pub async fn select<K: Cached<DynamicType = ()>>(&self, labels: &Selector) -> Result<Vec<Arc<K>>> {
        let namespace = self.resource.namespace.as_deref();
        let lister = self.lister::<K>(namespace).await?;
        all_readable(&lister, |metadata| {
            metadata.namespace.as_deref() == namespace
                && labels.matches(metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
        })?;
        Ok(lister.select(namespace, labels))
    }

    /// Everything that the resource owns, of all the kinds that the controller
    /// owns or once owned.
    ///
    /// # Errors
    /// When a live read fails.
    pub async fn children(&self) -> Result<Vec<Reference>> {
        for kind in &self.listers.owned {
            self.refresh(kind, self.resource.namespace.as_deref()).await?;
            self.refresh_children_elsewhere(kind).await?;
        }
        Ok(self.cache.children_of(&self.resource.uid, &self.listers.owned))
    }

    /// The lister of a registered kind, for other reads; of one namespace or of all.
    ///
    /// # Errors
    /// When the kind was not registered with the controller, or a live read fails.
    pub async fn lister<K: Cached<DynamicType = ()>>(&self, namespace: Option<&str>) -> Result<Lister<K>> {
        self.lister_of(&(), namespace).await
    }

    /// The same for a kind that is known only at run time.
    ///
    /// # Errors
    /// When the kind was not registered with the controller, or a live read fails.
    pub async fn lister_of<K: Cached>(
        &self,
        dynamic: &K::DynamicType,
        namespace: Option<&str>,
    ) -> Result<Lister<K>> {
        let Some((kind, lister)) = self.listers.find::<K>(dynamic) else {
            let kind = Kind::of::<K>(dynamic);
            let advice = "register it with .owns() or .watches()";
            return Err(Error::new(
                Category::Bug,
                format!("the controller does not watch {}: {advice}", kind.plural),
            ));
        };
        self.refresh(kind, namespace).await?;
        Ok(lister)
    }

    /// Reads of the API server that bypass the cache, in one namespace or, of what
    /// is in none, everywhere. For the rare case where a decision needs it; each is
    /// an API call, and has to be declared with `.uses()`.
    pub fn live<K>(&self, namespace: Option<&str>) -> Live<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let resource = ApiResource::erase::<K>(&());
        Live {
            requests: Request::new(DynamicObject::url_path(&resource, namespace)),
            client: self.client.clone(),
            kind: Kind::of::<K>(&()),
            of: PhantomData,
        }
    }

    /// What the application says. Never waits: the first read of a target is
    /// unknown, and the resource is looked at again when the answer is there. After an
    /// action of the operator's own the answer of before is given once more, and asked anew.
    pub fn probe<P: Probe>(&self, probe: P) -> Known<P::Answer> {
        let look_again = self.look_again.clone();
        self.probes.read(probe, self.live.is_some(), move || look_again())
    }

    async fn refresh(&self, kind: &Kind, namespace: Option<&str>) -> Result<()> {
        let Some(done) = &self.live else { return Ok(()) };
        let part = (kind.clone(), namespace.map(str::to_owned));
        let everything = (kind.clone(), None);
        let is_done = {
            let done = done.lock();
            done.contains(&part) || done.contains(&everything)
        };
        if is_done {
            return Ok(());
        }
        self.cache.refresh(kind, namespace).await?;
        done.lock().insert(part);
        Ok(())
    }

    /// Children in other namespaces are told by a label.
    async fn refresh_children_elsewhere(&self, kind: &Kind) -> Result<()> {
        let Some(done) = &self.live else { return Ok(()) };
        // No namespace is called like that.
        let part = (kind.clone(), Some(OWNER_UID.to_owned()));
        if !done.lock().contains(&part) {
            self.cache.refresh_labelled(kind, &self.resource.uid).await?;
            done.lock().insert(part);
        }
        Ok(())
    }
}

/// Reads one kind from the API server itself.
pub struct Live<K> {
    client: Client,
    kind: Kind,
    requests: Request,
    of: PhantomData<fn() -> K>,
}

impl<K: Clone + Debug + DeserializeOwned> Live<K> {
    /// One object, if it is there.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub async fn get(&self, name: &str) -> Result<Option<K>> {
        let doing = format!("read {} {name}", self.kind);
        let request = self.requests.get(name, &GetParams::default()).map_err(built(&doing))?;
        match self.client.request(request).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Error::api(doing)(error)),
        }
    }

    /// The objects that are asked for.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>> {
        let doing = format!("list {}", self.kind.plural);
        let request = self.requests.list(params).map_err(built(&doing))?;
        self.client.request(request).await.map_err(Error::api(doing))
    }
}

/// Fails if an object that is asked for is there and cannot be read.
fn all_readable<K: Cached>(lister: &Lister<K>, is_asked_for: impl Fn(&ObjectMeta) -> bool) -> Result<()> {
    match lister.first_unreadable(is_asked_for) {
        None => Ok(()),
        Some((key, why)) => Err(Error::new(
            Category::Invalid,
            format!("{} {key} cannot be read: {why}: correct or remove it", lister.kind()),
        )),
    }
}

/// How a reconcile failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of trouble it was.
    pub category: Category,
    /// What it was.
    pub message: String,
}

/// The listers of what a controller registered.
#[derive(Default)]
pub(crate) struct Listers {
    known: Vec<(TypeId, Kind, Box<dyn std::any::Any + Send + Sync>)>,
    /// The kinds of children, those of older versions of the operator included.
    pub(crate) owned: Vec<Kind>,
}

impl Listers {
    pub(crate) fn add<K: Cached>(&mut self, dynamic: &K::DynamicType, lister: Lister<K>) {
        self.known.push((TypeId::of::<K>(), Kind::of::<K>(dynamic), Box::new(lister)));
    }

    /// The lister of a kind that was added.
    pub(crate) fn get<K: Cached>(&self, dynamic: &K::DynamicType) -> Option<Lister<K>> {
        self.find(dynamic).map(|(_, lister)| lister)
    }

    fn find<K: Cached>(&self, dynamic: &K::DynamicType) -> Option<(&Kind, Lister<K>)> {
        let mut of_type = self.known.iter().filter(|(type_id, ..)| *type_id == TypeId::of::<K>());
        // A Rust type is one kind; only dynamic objects have to be told apart.
        let (_, kind, lister) = match TypeId::of::<K::DynamicType>() == TypeId::of::<()>() {
            true => of_type.next()?,
            false => {
                let wanted = Kind::of::<K>(dynamic);
                of_type.find(|(_, kind, _)| *kind == wanted)?
            }
        };
        Some((kind, lister.downcast_ref::<Lister<K>>()?.clone()))
    }
}
