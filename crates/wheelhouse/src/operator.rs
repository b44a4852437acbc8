//! [`Operator`]: the three functions that an operator is.

use std::{fmt::Debug, future::Future, sync::Arc};

use kube::Client;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cache::Cached,
    error::{Category, Error, Result},
    plan::{Action, Plan, Reference},
    world::World,
};

/// Observe, analyse, act: operational knowledge in software.
pub trait Operator: Send + Sync + 'static {
    /// The kind that people write: what is wanted. A Rust type, a projection of
    /// one, or a [`kube::core::DynamicObject`].
    type Resource: Cached;

    /// The world as far as this operator has to know it. Plain data: it is logged,
    /// explained and replayed. Secrets never enter it.
    type Observation: Serialize + DeserializeOwned + Debug + Send + Sync + 'static;

    /// What this operator does that the SDK does not know; [`crate::NoAction`] if nothing.
    type Action: Action;

    /// Reads the world into one value. Writes nothing.
    fn observe(
        &self,
        resource: Arc<Self::Resource>,
        world: &World<'_>,
    ) -> impl Future<Output = Result<Self::Observation>> + Send;

    /// Compares what was observed with what is wanted. Pure: the same observation
    /// gives the same plan; no I/O, no clock, no random number, no memory.
    fn analyse(&self, seen: &Self::Observation) -> Plan<Self::Action>;

    /// Carries out one of the operator's own actions. Must be short, and right
    /// when repeated; long work is started here and observed later.
    fn act(&self, action: Self::Action, context: &Acting<'_>) -> impl Future<Output = Result<()>> + Send {
        let what = format!("{action} ({})", context.resource.key());
        async move {
            Err(Error::new(Category::Bug, format!("this operator does not implement its action {what}")))
        }
    }
}

/// What an action of the operator's own may use.
pub struct Acting<'a> {
    /// Sends nothing once this process does not lead any more.
    pub client: &'a Client,
    /// The resource that the plan is for, as it was observed.
    pub resource: &'a Reference,
    /// The name under which fields are to be owned.
    pub field_manager: &'a str,
}
