//! Act: carries a plan out, step by step, and never decides.
//!
//! Every write goes through [`Actor::send`], which keeps the cache's promise: the
//! answer is in the cache before anybody reads again.

mod apply;
mod certify;
mod children;
mod delete;
pub(crate) mod events;
mod exec;
mod pick;
mod secret;
mod status;

use std::{any::Any, collections::HashMap, future::Future, sync::Arc, time::Duration};

use http::Request;
use kube::{Client, Resource as _, core::DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use pick::pick;

use crate::{
    cache::{Cache, Cause, Peeked},
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    plan::{Action, Reference, Step},
};

/// No single call takes longer.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The resource that a plan is for, as it was observed.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) reference: Reference,
    pub(crate) generation: Option<i64>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) status: Option<Value>,
}

/// Carries out the steps for one resource.
pub(crate) struct Actor<'a> {
    /// Sends nothing once this process does not lead any more.
    pub(crate) client: &'a Client,
    /// Reads.
    pub(crate) reading: &'a Client,
    pub(crate) cache: &'a Cache,
    /// The name under which fields are owned.
    pub(crate) manager: &'a str,
    /// The number of the controller, which need not hear of its own status.
    pub(crate) controller: u64,
    pub(crate) owner: &'a Owner,
    pub(crate) learned: &'a Learned,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It was so already, and nothing was sent.
    AlreadySo,
    /// It is so now.
    Changed,
    /// Somebody had changed what is ours; it is as it was.
    Restored { by: Option<String> },
}

/// What the API server made of our applies, where that is not what was sent:
/// a hint that saves a call, and nothing that matters if it is lost.
#[derive(Default)]
pub(crate) struct Learned(Mutex<Lessons>);

#[derive(Default)]
struct Lessons {
    known: HashMap<(Kind, Key), Arc<dyn Any + Send + Sync>>,
    /// How many there were after what is gone was last forgotten.
    kept: usize,
}

/// So many are kept without a look at whether their objects are still there.
const LESSONS_AT_LEAST: usize = 1024;

impl Learned {
    fn get<T: Send + Sync + 'static>(&self, kind: &Kind, key: &Key) -> Option<Arc<T>> {
        self.0.lock().known.get(&(kind.clone(), key.clone()))?.clone().downcast().ok()
    }

    fn insert<T: Send + Sync + 'static>(&self, cache: &Cache, kind: &Kind, key: &Key, learned: T) {
        let mut lessons = self.0.lock();
        lessons.known.insert((kind.clone(), key.clone()), Arc::new(learned));
        // Nobody tells when others delete an object.
        if lessons.known.len() >= LESSONS_AT_LEAST.max(lessons.kept * 2) {
            lessons.known.retain(|(kind, key), _| matches!(cache.peek(kind, key), Peeked::There(_)));
            lessons.kept = lessons.known.len();
        }
    }

    fn forget(&self, kind: &Kind, key: &Key) {
        self.0.lock().known.remove(&(kind.clone(), key.clone()));
    }
}

impl Actor<'_> {
    /// Carries out one step; the operator's own ones through `act`.
    pub(crate) async fn carry_out<A: Action, F>(
        &self,
        step: &Step<A>,
        act: impl FnOnce(A) -> F,
    ) -> Result<Done>
    where
        F: Future<Output = Result<()>> + Send,
    {
        match step {
            Step::Apply(object) => self.apply(object).await,
            Step::ApplyForeign(object) => self.apply_foreign(object).await,
            Step::Create(object) => self.create(object).await,
            Step::Delete { target, guard } => self.delete(target, guard).await,
            Step::Evict { target } => self.evict(target).await,
            Step::Exec(exec) => self.exec(exec).await,
            Step::Update { target, fields } => self.update(target, fields).await,
            Step::EnsureSecret(secret) => self.ensure_secret(secret).await,
            Step::Certify(certify) => self.certify(certify).await,
            Step::AddFinalizer(name) => self.add_finalizer(name).await,
            Step::RemoveFinalizer(name) => self.remove_finalizer(name).await,
            Step::Adopt { target } => self.adopt(target).await,
            Step::Act(action) => act(action.clone()).await.map(|()| Done::Changed),
        }
    }

    /// Whether a step would change anything. The client must be one that sends nothing.
    ///
    /// # Errors
    /// When the step would fail.
    pub(crate) async fn would_change<A: Action>(&self, step: &Step<A>) -> Result<bool> {
        let never_reached = |_| async { Err(Error::NotLeading) };
        match self.carry_out(step, never_reached).await {
            Ok(done) => Ok(done != Done::AlreadySo),
            // It got as far as sending.
            Err(Error::NotLeading) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether the status would be written. The client must be one that sends nothing.
    pub(crate) async fn would_write_status(&self, status: &Value) -> bool {
        !matches!(self.write_status(status, || None).await, Ok(Done::AlreadySo))
    }

    /// Sends a write and takes the answer into the cache.
    async fn send(&self, doing: &str, kind: &Kind, request: Request<Vec<u8>>, cause: Cause) -> Result<Value> {
        let text = self.send_for_text(doing, request).await?;
        self.take_in(doing, kind, &text, cause)?;
        serde_json::from_str(&text).map_err(|error| unreadable(doing, &error))
    }

    async fn send_for_text(&self, doing: &str, request: Request<Vec<u8>>) -> Result<String> {
        match tokio::time::timeout(CALL_LIMIT, self.client.request_text(request)).await {
            Ok(answer) => answer.map_err(Error::write(doing)),
            Err(_) => Err(too_late(doing)),
        }
    }

    fn take_in(&self, doing: &str, kind: &Kind, text: &str, cause: Cause) -> Result<()> {
        self.cache.answered(kind, text, cause).map_err(|error| unreadable(doing, &error))
    }

    async fn read(&self, kind: &Kind, key: &Key) -> Result<Option<Value>> {
        let doing = format!("read {kind} {key}");
        let request = requests(kind, key.namespace())
            .get(key.name(), &kube::api::GetParams::default())
            .map_err(built(&doing))?;
        match tokio::time::timeout(CALL_LIMIT, self.reading.request::<Value>(request)).await {
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(Error::api(doing)(error)),
            Err(_) => Err(too_late(&doing)),
        }
    }
}

fn requests(kind: &Kind, namespace: Option<&str>) -> kube::core::Request {
    kube::core::Request::new(DynamicObject::url_path(&kind.api_resource(), namespace))
}

pub(crate) fn built(doing: &str) -> impl FnOnce(kube::core::request::Error) -> Error {
    let doing = doing.to_owned();
    move |error| Error::Api { doing, source: kube::Error::BuildRequest(error) }
}

/// The write took effect, but what it led to cannot be told: the next
/// observation has to be live.
fn unreadable(doing: &str, error: &serde_json::Error) -> Error {
    Error::new(Category::LostAnswer, format!("cannot read the answer to: {doing}: {error}"))
}

/// The call took longer than any may.
fn too_late(doing: &str) -> Error {
    Error::DeadlineExceeded { doing: format!("to {doing}"), limit: CALL_LIMIT }
}

fn conflict(message: String) -> Error {
    Error::new(Category::Conflict, message)
}
