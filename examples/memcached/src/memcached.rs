//! Memcached: a Deployment is kept for each of them, and its pods are told.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a Memcached, its Deployment and its pods into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else.

pub mod analyse;
pub mod api;
pub mod observe;

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResourceExt as _, ResourceExt as _, core::Expression};
use wheelhouse::{Controller, Key, NoAction, Operator, Plan, Result, World, cache::Selection};

use self::{
    api::Memcached,
    observe::{PodView, Seen},
};

/// The label of the pods: which Memcached they are of. They belong to a ReplicaSet, so no owner reference says it.
const LABEL: &str = "cache.example.com/memcached";

/// The operator.
pub struct MemcachedOperator;

impl Operator for MemcachedOperator {
    type Resource = Memcached;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<Memcached>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    Memcached::crd()
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<MemcachedOperator> {
    // The pods of others are neither sent nor kept.
    let pods = Selection::labels(Expression::Exists(LABEL.to_owned()));
    Controller::new(MemcachedOperator).owns::<Deployment>().watches_of::<PodView, _>(
        (),
        pods,
        Vec::new(),
        memcached_of,
    )
}

fn memcached_of(pod: &PodView) -> Vec<Key> {
    let memcached = pod.labels().get(LABEL);
    memcached.map(|name| Key::new(pod.namespace().as_deref(), name)).into_iter().collect()
}
