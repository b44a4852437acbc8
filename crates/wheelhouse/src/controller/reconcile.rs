//! One controller at work: takes keys, and observes, analyses and acts for each.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::SelectAll};
use jiff::Timestamp;
use kube::{Client, Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    Controller, Surroundings, Work,
    deciding::{Decided, WRITE_THE_STATUS, outcome_of},
    looking::{Looked, Subject},
};
use crate::{
    act::{Actor, Done, Learned, Owner, events::Events, pick},
    cache::Lister,
    decisions::Outcome,
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    metrics::{ControllerMetrics, Looks, OfResources},
    mode::{self, Mode},
    operator::{Acting, Operator},
    plan::{Event, Plan, Reference, Step},
    queue::{Finished, Priority, Queue},
    triggers::{OwnerKind, on_resource, on_unreadable_resource},
    world::{Failure, Listers, ReadLive, World},
};

/// Longer than any process runs.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A controller that was started.
pub(crate) struct Running<O: Operator> {
    pub(super) name: Arc<str>,
    pub(super) operator: O,
    pub(super) kind: Kind,
    pub(super) lister: Lister<O::Resource>,
    pub(super) listers: Listers,
    queue: Arc<Queue>,
    deadline: Duration,
    resync: Duration,
    exclusion: Option<(crate::exclusion::Exclusion, super::SharedKey<O::Resource>)>,
    pub(super) surroundings: Surroundings,
    field_manager: String,
    metrics: ControllerMetrics,
    pub(super) events: Events,
    learned: Learned,
    /// Keys whose next observation is live.
    doubtful: Mutex<HashSet<Key>>,
    /// How keys failed the last time, where they did.
    failures: Mutex<HashMap<Key, Failure>>,
    /// Where somebody wants to know when keys were last looked at.
    looks: Option<Arc<Looks>>,
}

impl<O: Operator> Running<O> {
    pub(super) fn start(controller: Controller<O>, surroundings: Surroundings) -> Arc<dyn Work> {
        let name = controller.name();
        let field_manager = format!("{}/{name}", surroundings.manager);
        let cache = &surroundings.cache;
        cache.add_field_manager(&field_manager);
        let queue = Queue::new(controller.settings.queue.clone(), surroundings.metrics.queue(&name));
        let kind = Kind::of::<O::Resource>(&controller.dynamic);
        let lister = cache.lister_of::<O::Resource>(controller.dynamic.clone(), controller.selection);
        let on_resource = on_resource(queue.clone(), surroundings.number, controller.predicates);
        lister.informer().subscribe(Arc::new(on_resource));
        lister.informer().subscribe_unreadable(Arc::new(on_unreadable_resource(queue.clone())));
        let owner = OwnerKind::new::<O::Resource>(&kind);
        let mut listers = Listers::default();
        listers.add(&controller.dynamic, lister.clone());
        for register in controller.registrations {
            register(cache, &mut listers, &owner, &queue);
        }
        let mut external: SelectAll<_> = controller.external.into_iter().collect();
        let triggered = queue.clone();
        tokio::spawn(async move {
            while let Some(key) = external.next().await {
                triggered.add(key, Priority::Child);
            }
        });
        let looks = controller.metrics.as_ref().and_then(|metrics| metrics.looks_to_note());
        if let Some(metrics) = controller.metrics {
            let told = OfResources { metrics, lister: lister.clone() };
            surroundings.metrics.with_registry(|registry| registry.register_collector(Box::new(told)));
        }
        let reports_as = controller.reports_as.as_ref().unwrap_or(&field_manager);
        Arc::new(Self {
            events: Events::new(surroundings.acting.clone(), reports_as, &surroundings.instance),
            metrics: surroundings.metrics.controller(&name),
            operator: controller.operator,
            deadline: controller.settings.deadline,
            resync: controller.settings.resync,
            exclusion: controller.exclusion,
            learned: Learned::default(),
            doubtful: Mutex::default(),
            failures: Mutex::default(),
            looks,
            name: name.into(),
            kind,
            lister,
            listers,
            queue,
            field_manager,
            surroundings,
        })
    }

    /// Works on a key that was taken, and then on others for as long as there are any.
    async fn work_from(self: Arc<Self>, key: Key, stop: CancellationToken) {
        let mut next = Some(key);
        while let Some(key) = next {
            self.work_on(key, &stop).await;
            next = if stop.is_cancelled() { None } else { self.queue.take() };
        }
    }

    /// Works on one key, from the moment it was taken to the moment it is done.
    async fn work_on(self: &Arc<Self>, key: Key, stop: &CancellationToken) {
        let taken = Taken { running: self, key: Some(key.clone()) };
        let Some(resource) = self.lister.get(&key) else {
            return taken.done(self.note_absent(&key));
        };
        let reference = Reference::to(&self.kind, &*resource);
        let _exclusive = match &self.exclusion {
            None => None,
            Some((exclusion, shared_key)) => {
                let (queue, again) = (self.queue.clone(), key.clone());
                let sharing = AssertUnwindSafe(|| shared_key(&resource));
                let Ok(shared) = std::panic::catch_unwind(sharing) else {
                    self.metrics.panics.inc();
                    let error = Error::new(Category::Panic, "the function for the shared key panicked");
                    self.note_failure(&reference, &error);
                    return taken.done(Finished::Failed(Category::Panic));
                };
                let exclusive = exclusion.take(shared, move || queue.add(again, Priority::Child));
                if exclusive.is_none() {
                    return taken.done(Finished::PutOff);
                }
                exclusive
            }
        };
        let span = tracing::info_span!("reconcile", controller = &*self.name, %key);
        let began = Instant::now();
        tracing::trace!(parent: &span, "begins");
        let reconciling = AssertUnwindSafe(self.reconcile(&key, resource, stop)).catch_unwind();
        let reconciling = tokio::time::timeout(self.deadline, reconciling);
        let result = match reconciling.instrument(span.clone()).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                self.metrics.panics.inc();
                Err(Error::new(Category::Panic, format!("the operator panicked: {}", words_of(&*panic))))
            }
            Err(_) => {
                Err(Error::DeadlineExceeded { doing: "the reconcile".to_owned(), limit: self.deadline })
            }
        };
        if let Err(
            error @ (Error::DeadlineExceeded { .. } | Error::Other { category: Category::Panic, .. }),
        ) = &result
        {
            self.note_broken_off(&key, began.elapsed(), error);
        }
        self.metrics.time.observe(began.elapsed().as_secs_f64());
        let _entered = span.enter();
        tracing::trace!(took = ?began.elapsed(), "ends");
        match result {
            Ok(look_again_after) => {
                let had_failed = self.failures.lock().remove(&key).is_some();
                if let Some(looks) = &self.looks {
                    looks.note(&key);
                }
                self.metrics.count(if look_again_after.is_some() { "requeue_after" } else { "success" });
                taken.done(Finished::Done);
                // What was observed knew of the failure, and a condition may say so still.
                if had_failed {
                    self.queue.add(key.clone(), Priority::Child);
                }
                if let Some(delay) = look_again_after {
                    self.queue.add_after(key, delay);
                }
            }
            Err(error) => {
                self.note_failure(&reference, &error);
                taken.done(Finished::Failed(error.category()));
            }
        }
    }

    /// Its resource is gone, or is there and cannot be read.
    fn note_absent(&self, key: &Key) -> Finished {
        if let Some((about, why)) = self.lister.informer().unreadable(key) {
            let error = Error::new(
                Category::Invalid,
                format!("{} {key} cannot be read, and is left alone until it is corrected: {why}", self.kind),
            );
            self.note_failure(&about, &error);
            return Finished::Failed(Category::Invalid);
        }
        self.doubtful.lock().remove(key);
        self.failures.lock().remove(key);
        if let Some(looks) = &self.looks {
            looks.forget(key);
        }
        self.queue.forget(key);
        Finished::Done
    }

    fn note_failure(&self, about: &Reference, error: &Error) {
        let category = error.category();
        self.metrics.count("error");
        self.metrics.count_error(category.as_str());
        if category.asks_for_live_reads() {
            self.doubtful.lock().insert(about.key());
        }
        // A conflict is how two writers find out about each other, and leading
        // ends now and then: nobody has to be told.
        if matches!(category, Category::Conflict | Category::NotLeading) {
            tracing::info!(category = category.as_str(), "{error}; looking again");
        } else {
            tracing::warn!(category = category.as_str(), "{error}; trying again");
            self.failures.lock().insert(about.key(), Failure { category, message: error.to_string() });
            let event = Event::warning(category.as_str(), error.to_string());
            let (events, about) = (self.events.clone(), about.clone());
            tokio::spawn(async move { events.publish(&about, &event).await });
        }
    }

    async fn reconcile(
        &self,
        key: &Key,
        resource: Arc<O::Resource>,
        stop: &CancellationToken,
    ) -> Result<Option<Duration>> {
        let live = self.doubtful.lock().contains(key).then(Mutex::default);
        let is_live = live.is_some();
        let resource = match is_live {
            true => {
                self.surroundings.cache.refresh_one(&self.kind, key).await?;
                match self.lister.get(key) {
                    Some(resource) => resource,
                    None => return Ok(None),
                }
            }
            false => resource,
        };
        let owner = self.owner(&resource);
        let mode = Mode::of(resource.annotations());
        if matches!(mode, Mode::Paused | Mode::Unknown(_)) {
            self.hold_still(&owner, &mode).await;
            return Ok(None);
        }
        let began = (Timestamp::now(), Instant::now());
        let look_again = {
            let (queue, key) = (self.queue.clone(), key.clone());
            Arc::new(move || queue.add(key.clone(), Priority::Child))
        };
        let decided = self.decide(resource, &owner.reference, look_again, live).await;
        if is_live && decided.is_ok() {
            self.doubtful.lock().remove(key);
        }
        let (decided, outcome, acted) = match decided {
            Ok(decided) if mode == Mode::Plan => {
                let steps = self.only_plan(&owner, &decided.plan).await;
                (Some(decided), Outcome::Planned { steps }, Ok(()))
            }
            Ok(decided) => {
                let mut steps = Vec::new();
                let acted = self.act(&owner, &decided.plan, stop, &mut steps).await;
                (Some(decided), outcome_of(steps, acted.as_ref().err()), acted)
            }
            Err(error) => (None, outcome_of(Vec::new(), Some(&error)), Err(error)),
        };
        let look_again_after = decided.as_ref().and_then(|decided| decided.plan.look_again_after);
        self.note_decision(key, began, decided, outcome);
        acted.map(|()| look_again_after)
    }

    pub(super) fn owner(&self, resource: &O::Resource) -> Owner {
        Owner {
            reference: Reference::to(&self.kind, resource),
            generation: resource.meta().generation,
            finalizers: resource.finalizers().to_vec(),
            status: pick(resource, "status"),
        }
    }

    /// Observes and analyses.
    pub(super) async fn decide(
        &self,
        resource: Arc<O::Resource>,
        reference: &Reference,
        look_again: Arc<dyn Fn() + Send + Sync>,
        live: Option<Mutex<ReadLive>>,
    ) -> Result<Decided<O>> {
        let is_live = live.is_some();
        let world = World {
            client: &self.surroundings.reading,
            cache: &self.surroundings.cache,
            listers: &self.listers,
            probes: &self.surroundings.probes,
            resource: reference,
            look_again,
            now: Timestamp::now(),
            last_failure: self.failures.lock().get(&reference.key()).cloned(),
            live,
        };
        let observing = self.operator.observe(resource, &world);
        let seen = observing.instrument(tracing::debug_span!("observe", live = is_live)).await?;
        let plan = apart(|| tracing::debug_span!("analyse").in_scope(|| self.operator.analyse(&seen)));
        plan.check()?;
        Ok(Decided { seen, plan })
    }

    pub(super) fn actor<'a>(&'a self, owner: &'a Owner, client: &'a Client) -> Actor<'a> {
        Actor {
            client,
            reading: &self.surroundings.reading,
            cache: &self.surroundings.cache,
            manager: &self.field_manager,
            controller: self.surroundings.number,
            owner,
            learned: &self.learned,
        }
    }

    /// Does what was decided, and tells what of it changed something.
    async fn act(
        &self,
        owner: &Owner,
        plan: &Plan<O::Action>,
        stop: &CancellationToken,
        changed: &mut Vec<String>,
    ) -> Result<()> {
        let actor = self.actor(owner, &self.surroundings.acting);
        let carried_out = self.carry_out(&actor, plan, stop, changed).await;
        // The status tells what was observed, whether or not the steps went well;
        // unless the resource itself may be gone.
        let written = match wanted_status(owner, plan) {
            Some(status) if !gives_up_the_resource(owner, plan) => {
                let writing = actor.write_status(&status, || self.status_now(owner));
                writing.instrument(tracing::debug_span!("act", step = "status")).await
            }
            _ => Ok(Done::AlreadySo),
        };
        if matches!(written, Ok(Done::Changed)) {
            changed.push(WRITE_THE_STATUS.to_owned());
        }
        let is_complete = carried_out?;
        // They tell what the plan did, so they are told when it was done.
        for event in plan.events.iter().filter(|_| is_complete) {
            if self.events.publish(&owner.reference, event).await {
                tracing::info!(reason = event.reason, "{}", event.note);
            }
        }
        written.map(|_| ())
    }

    /// The status as the cache has it now.
    pub(super) fn status_now(&self, owner: &Owner) -> Option<Value> {
        self.lister.get(&owner.reference.key()).and_then(|resource| pick(&*resource, "status"))
    }

    /// Carries out the steps; all of them, unless it is to stop.
    async fn carry_out(
        &self,
        actor: &Actor<'_>,
        plan: &Plan<O::Action>,
        stop: &CancellationToken,
        changed: &mut Vec<String>,
    ) -> Result<bool> {
        for planned in &plan.steps {
            if stop.is_cancelled() {
                tracing::info!("stopping before: {}", planned.step);
                return Ok(false);
            }
            let context = Acting {
                client: actor.client,
                resource: &actor.owner.reference,
                field_manager: actor.manager,
            };
            let span = tracing::debug_span!("act", step = planned.step.name(), because = planned.because);
            let carrying_out = actor.carry_out(&planned.step, |action| self.operator.act(action, &context));
            let done = carrying_out.instrument(span).await;
            if matches!(planned.step, Step::Act(_)) {
                // What it wrote, the cache does not know.
                self.doubtful.lock().insert(actor.owner.reference.key());
            }
            let result = match &done {
                Ok(Done::AlreadySo) => "unchanged",
                Ok(Done::Changed | Done::Restored { .. }) => "done",
                Err(_) => "failed",
            };
            self.metrics.count_step(planned.step.name(), result);
            if matches!(done, Ok(Done::Changed | Done::Restored { .. })) {
                changed.push(planned.step.to_string());
            }
            match done? {
                Done::AlreadySo => {}
                Done::Changed => tracing::info!(because = planned.because, "{}", planned.step),
                Done::Restored { by } => {
                    let by = by.unwrap_or_else(|| "somebody".to_owned());
                    let note = format!("restored what {by} had changed: {}", planned.step);
                    tracing::info!("{note}");
                    self.events.publish(&actor.owner.reference, &Event::normal("Restored", note)).await;
                }
            }
        }
        Ok(true)
    }
}

/// Runs the operator's code where it keeps nobody waiting, however long it takes:
/// what else this thread had to do goes on in another one. A thread that has
/// handed its work over has none to hand over until this task waits for something,
/// so a run of resources that need nothing costs one hand-over.
fn apart<T>(code: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => code(),
        _ => tokio::task::block_in_place(code),
    }
}

/// A key that is being worked on. If the work is broken off, because this
/// process does not lead any more, it has to be done again, and what became of
/// a write that was under way is not known.
struct Taken<'a, O: Operator> {
    running: &'a Running<O>,
    key: Option<Key>,
}

impl<O: Operator> Taken<'_, O> {
    fn done(mut self, finished: Finished) {
        if let Some(key) = self.key.take() {
            self.running.queue.done(&key, finished);
        }
    }
}

impl<O: Operator> Drop for Taken<'_, O> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.running.doubtful.lock().insert(key.clone());
            self.running.queue.done(&key, Finished::PutOff);
            self.running.queue.add(key, Priority::Child);
        }
    }
}

/// What the status is to be, if it is to be written at all. What the SDK itself
/// said in it is over when the resource is acted on again.
fn wanted_status<'a, A>(owner: &'a Owner, plan: &'a Plan<A>) -> Option<Cow<'a, Value>> {
    let says_mode = |status: &&Value| mode::condition(status).is_some();
    match &plan.status {
        Some(status) if says_mode(&status) => Some(Cow::Owned(mode::without_condition(status.clone()))),
        Some(status) => Some(Cow::Borrowed(status)),
        None => owner
            .status
            .as_ref()
            .filter(says_mode)
            .map(|status| Cow::Owned(mode::without_condition(status.clone()))),
    }
}

fn gives_up_the_resource<A>(owner: &Owner, plan: &Plan<A>) -> bool {
    owner.reference.terminating
        && plan.steps.iter().any(|planned| matches!(planned.step, Step::RemoveFinalizer(_)))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a word".to_owned())
}

impl<O: Operator> Work for Running<O> {
    fn work(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut workers = JoinSet::new();
            let every = if self.resync.is_zero() { NEVER } else { self.resync };
            let mut resync = tokio::time::interval(every);
            resync.tick().await;
            while !stop.is_cancelled() {
                while let Some(key) = self.queue.take() {
                    workers.spawn(self.clone().work_from(key, stop.clone()));
                }
                tokio::select! {
                    () = self.queue.changed() => {}
                    _ = resync.tick() => {
                        for key in self.lister.keys() {
                            self.queue.add(key, Priority::Resync);
                        }
                    }
                    Some(_) = workers.join_next() => {}
                    () = stop.cancelled() => {}
                }
            }
            while workers.join_next().await.is_some() {}
        })
    }

    fn measure(&self) {
        self.metrics.failing.set(i64::try_from(self.failures.lock().len()).unwrap_or(i64::MAX));
        self.queue.measure();
    }

    fn look(self: Arc<Self>, subject: Subject) -> BoxFuture<'static, Result<Looked>> {
        Box::pin(async move { Running::look(&self, subject).await })
    }
}
