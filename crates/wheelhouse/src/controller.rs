//! [`Controller`]: an operator, what it looks at, and how it is worked on.

mod deciding;
mod looking;
mod reconcile;
mod registration;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, future::BoxFuture, stream::BoxStream};
use kube::{Client, Resource};

pub(crate) use looking::{Looked, Subject};
pub(crate) use reconcile::Running;
pub use registration::Declared;
use registration::Registration;

use crate::{
    cache::{Cache, Cached, Selection},
    decisions::{DecisionLog, Recording},
    error::Result,
    exclusion::Exclusion,
    key::Key,
    kind::{Kind, is_namespaced},
    metrics::{Metrics, ResourceMetrics},
    operator::Operator,
    queue::QueueSettings,
    triggers::Predicate,
};

/// How a controller behaves.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// How long one reconcile may take. Default: 1 minute.
    pub deadline: Duration,
    /// How often every resource is looked at even if nothing changes. Such a
    /// look costs no API call. Zero: never. Default: 1 hour.
    pub resync: Duration,
    /// How keys are worked on.
    pub queue: QueueSettings,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            resync: Duration::from_secs(3600),
            queue: QueueSettings::default(),
        }
    }
}

/// An operator and what it is registered for.
pub struct Controller<O: Operator> {
    operator: O,
    dynamic: <O::Resource as Resource>::DynamicType,
    name: Option<String>,
    reports_as: Option<String>,
    settings: ControllerSettings,
    selection: Selection,
    predicates: Vec<Predicate<O::Resource>>,
    registrations: Vec<Registration>,
    external: Vec<BoxStream<'static, Key>>,
    exclusion: Option<(Exclusion, SharedKey<O::Resource>)>,
    declared: Vec<Declared>,
    metrics: Option<ResourceMetrics<O::Resource>>,
}

/// The key under which a resource must not be worked on together with others.
type SharedKey<K> = Arc<dyn Fn(&K) -> Key + Send + Sync>;

impl<O: Operator> Controller<O> {
    /// A controller that looks at all resources of the operator's kind.
    pub fn new(operator: O) -> Self
    where
        O::Resource: Cached<DynamicType = ()>,
    {
        Self::of(operator, ())
    }

    /// The same for a kind that is known only at run time.
    pub fn of(operator: O, dynamic: <O::Resource as Resource>::DynamicType) -> Self {
        let resource = Kind::of::<O::Resource>(&dynamic);
        Self {
            operator,
            dynamic,
            name: None,
            reports_as: None,
            settings: ControllerSettings::default(),
            selection: Selection::everything(),
            predicates: Vec::new(),
            registrations: Vec::new(),
            external: Vec::new(),
            exclusion: None,
            declared: Declared::resource(&resource),
            metrics: None,
        }
    }

    /// The name in logs, metrics and managed fields. Default: the kind in lower case.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Who events are from, as `kubectl describe` shows it. Default: the manager's and the
    /// controller's name.
    #[must_use]
    pub fn reports_as(mut self, name: impl Into<String>) -> Self {
        self.reports_as = Some(name.into());
        self
    }

    /// How it behaves.
    #[must_use]
    pub fn settings(mut self, settings: ControllerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Looks only at some of the resources.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Not every change of the resource is worth a look. Deletions always are.
    #[must_use]
    pub fn when(mut self, predicate: Predicate<O::Resource>) -> Self {
        self.predicates.push(predicate);
        self
    }

    /// The plans write children of this kind; a change of a child is looked at.
    #[must_use]
    pub fn owns<K: Cached<DynamicType = ()>>(self) -> Self {
        self.owns_of::<K>((), Selection::everything(), Vec::new())
    }

    /// The same for a kind that may be known only at run time, for some of its
    /// objects, and for some of their changes.
    #[must_use]
    pub fn owns_of<K: Cached>(
        mut self,
        dynamic: K::DynamicType,
        selection: Selection,
        when: Vec<Predicate<K>>,
    ) -> Self {
        self.declared.push(Declared::owned(Kind::of::<K>(&dynamic)));
        self.registrations.push(registration::owns(dynamic, selection, when));
        self
    }

    /// An older version of this operator made children of this kind: they are
    /// still its children, to be pruned.
    #[must_use]
    pub fn once_owned<K: Cached<DynamicType = ()>>(mut self) -> Self {
        self.declared.push(Declared::once_owned(Kind::of::<K>(&())));
        self.registrations.push(registration::owns::<K>((), Selection::everything(), Vec::new()));
        self
    }

    /// Resources depend on objects of this kind: `map` says which.
    #[must_use]
    pub fn watches<K, F>(self, map: F) -> Self
    where
        K: Cached<DynamicType = ()>,
        F: Fn(&K) -> Vec<Key> + Send + Sync + 'static,
    {
        self.watches_of((), Selection::everything(), Vec::new(), map)
    }

    /// The same for a kind that may be known only at run time, for some of its
    /// objects, and for some of their changes.
    #[must_use]
    pub fn watches_of<K, F>(
        mut self,
        dynamic: K::DynamicType,
        selection: Selection,
        when: Vec<Predicate<K>>,
        map: F,
    ) -> Self
    where
        K: Cached,
        F: Fn(&K) -> Vec<Key> + Send + Sync + 'static,
    {
        self.declared.push(Declared::watched(Kind::of::<K>(&dynamic)));
        self.registrations.push(registration::watches(dynamic, selection, when, Arc::new(map)));
        self
    }

    /// Resources name objects of this kind that they depend on: `names` says which. A
    /// change of such an object is a reason to look at whoever names it, which an index tells.
    #[must_use]
    pub fn depends_on<K, F>(self, names: F) -> Self
    where
        K: Cached<DynamicType = ()>,
        F: Fn(&O::Resource) -> Vec<Key> + Send + Sync + 'static,
    {
        self.depends_on_of::<K, F>((), Selection::everything(), Vec::new(), names)
    }

    /// The same for a kind that may be known only at run time, for some of its
    /// objects, and for some of their changes.
    #[must_use]
    pub fn depends_on_of<K, F>(
        mut self,
        dynamic: K::DynamicType,
        selection: Selection,
        when: Vec<Predicate<K>>,
        names: F,
    ) -> Self
    where
        K: Cached,
        F: Fn(&O::Resource) -> Vec<Key> + Send + Sync + 'static,
    {
        let kind = Kind::of::<K>(&dynamic);
        self.declared.push(Declared::watched(kind.clone()));
        // Of one kind there may be several controllers, each with an index of its own.
        static INDEXES: AtomicU64 = AtomicU64::new(0);
        let number = INDEXES.fetch_add(1, Ordering::Relaxed);
        let index = format!("{number} depends on {}", kind.qualified());
        let names = move |resource: &O::Resource| names(resource).iter().map(Key::to_string).collect();
        let resource = self.dynamic.clone();
        self.registrations.push(Box::new(move |cache, listers, owner, queue| {
            // The resource's own lister is there before anything is registered.
            let dependants = listers.get::<O::Resource>(&resource).map(|lister| lister.index(index, names));
            let map = move |object: &K| {
                let found = dependants.iter().flat_map(|index| index.find(&Key::of(object).to_string()));
                found.map(|resource| Key::of(&*resource)).collect()
            };
            registration::watches(dynamic, selection, when, Arc::new(map))(cache, listers, owner, queue);
        }));
        self
    }

    /// The plans also do this to objects of that kind (`pods/exec`, `pods/eviction`,
    /// what actions do): RBAC has to allow it.
    #[must_use]
    pub fn uses(mut self, declared: Declared) -> Self {
        self.declared.push(declared);
        self
    }

    /// Keys that come from elsewhere are looked at too.
    #[must_use]
    pub fn triggered_by(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.external.push(Box::pin(keys));
        self
    }

    /// While a resource is worked on, nothing else under the same key is.
    #[must_use]
    pub fn shares_key(
        mut self,
        exclusion: &Exclusion,
        key: impl Fn(&O::Resource) -> Key + Send + Sync + 'static,
    ) -> Self {
        self.exclusion = Some((exclusion.clone(), Arc::new(key)));
        self
    }

    /// What `/metrics` tells of each resource, besides what it tells of every controller. Of a resource that is
    /// gone nothing is told.
    #[must_use]
    pub fn metrics(mut self, metrics: ResourceMetrics<O::Resource>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| Kind::of::<O::Resource>(&self.dynamic).kind.to_lowercase())
    }
}

/// What a controller needs from its manager.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// Reads, and is never fenced.
    pub(crate) reading: Client,
    /// Writes only while this process leads.
    pub(crate) acting: Client,
    /// Sends nothing at all, and so tells what would be sent.
    pub(crate) held: Client,
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Metrics,
    /// The manager's name, part of the field manager's.
    pub(crate) manager: String,
    /// This process, as events name it.
    pub(crate) instance: String,
    pub(crate) probes: Arc<crate::world::Probes>,
    pub(crate) decisions: Arc<DecisionLog>,
    /// The controller's number.
    pub(crate) number: u64,
}

/// A controller, whatever its operator.
pub(crate) trait AnyController: Send {
    fn name(&self) -> String;
    /// The kind that people write.
    fn kind(&self) -> Kind;
    /// Whether its resources are in namespaces, as far as the type tells.
    fn is_namespaced(&self) -> bool;
    /// Decides again on what was recorded: the plan, and where it differs.
    fn replay(&self, recording: &Recording) -> Result<(String, Vec<String>)>;
    fn declared(&self) -> &[Declared];
    fn workers(&self) -> usize;
    fn set_workers(&mut self, workers: usize);
    /// Begins to look; nothing is worked on yet.
    fn start(self: Box<Self>, surroundings: Surroundings) -> Arc<dyn Work>;
}

/// A controller that was started.
pub(crate) trait Work: Send + Sync {
    /// Works until told to stop, and then finishes what runs.
    fn work(self: Arc<Self>, stop: tokio_util::sync::CancellationToken) -> BoxFuture<'static, ()>;
    /// Brings the gauges up to date.
    fn measure(&self);
    /// Decides on one resource, and does nothing.
    fn look(self: Arc<Self>, subject: Subject) -> BoxFuture<'static, Result<Looked>>;
}

impl<O: Operator> AnyController for Controller<O> {
    fn name(&self) -> String {
        Controller::name(self)
    }

    fn kind(&self) -> Kind {
        Kind::of::<O::Resource>(&self.dynamic)
    }

    fn is_namespaced(&self) -> bool {
        is_namespaced::<O::Resource>().unwrap_or(true)
    }

    fn replay(&self, recording: &Recording) -> Result<(String, Vec<String>)> {
        let (plan, differences) = recording.decide_again(&self.operator)?;
        Ok((plan.to_string(), differences))
    }

    fn declared(&self) -> &[Declared] {
        &self.declared
    }

    fn workers(&self) -> usize {
        self.settings.queue.workers
    }

    fn set_workers(&mut self, workers: usize) {
        self.settings.queue.workers = workers;
    }

    fn start(self: Box<Self>, surroundings: Surroundings) -> Arc<dyn Work> {
        Running::start(*self, surroundings)
    }
}
