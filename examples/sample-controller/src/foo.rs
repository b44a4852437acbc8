//! Foo: a Deployment is kept for each of them, under the name that it says.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a Foo and the Deployments that concern it into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else.

pub mod analyse;
pub mod api;
pub mod observe;

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResourceExt as _, ResourceExt as _};
use wheelhouse::{Controller, Key, NoAction, Operator, Plan, Result, World};

use self::{api::Foo, observe::Seen};

/// The operator.
pub struct FooOperator;

impl Operator for FooOperator {
    type Resource = Foo;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<Foo>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    Foo::crd()
}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<FooOperator> {
    Controller::new(FooOperator).owns::<Deployment>().depends_on::<Deployment, _>(named_deployment)
}

/// A Deployment of somebody else that has the name concerns the Foo too: when it goes, the name is free.
fn named_deployment(resource: &Foo) -> Vec<Key> {
    vec![Key::new(resource.namespace().as_deref(), &resource.spec.deployment_name)]
}
