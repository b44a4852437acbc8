//! The operator of the talks: keeps as many Gordons running as somebody asked for.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a Gordon and its pods into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else.
//!
//! It has no actions of its own: creating and deleting pods is what the SDK knows.

pub mod analyse;
pub mod api;
pub mod observe;
mod pod;

use std::sync::Arc;

use wheelhouse::{
    Controller, Manager, NoAction, Operator, Plan, Result, World, kube::CustomResourceExt as _,
};

use crate::{
    api::Gordon,
    observe::{PodView, Seen},
};

/// Where the Deployment says which image Gordons run.
const IMAGE_VARIABLE: &str = "RELATED_IMAGE_GORDON";
/// The image that comes with this version.
const IMAGE: &str = concat!("wheelhouse.dev/gordon:", env!("CARGO_PKG_VERSION"));

/// The operator.
pub struct Gordons {
    /// What Gordons run unless they say otherwise.
    pub image: String,
}

impl Gordons {
    /// With the image that the Deployment names.
    pub fn from_environment() -> Self {
        Self { image: std::env::var(IMAGE_VARIABLE).unwrap_or_else(|_| IMAGE.to_owned()) }
    }
}

impl Operator for Gordons {
    type Resource = Gordon;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, gordon: Arc<Gordon>, world: &World<'_>) -> Result<Seen> {
        observe::observe(gordon, &self.image, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("gordon-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(Gordon::crd())
        .image(IMAGE_VARIABLE, IMAGE)
        .controller(Controller::new(Gordons::from_environment()).owns::<PodView>())
}
