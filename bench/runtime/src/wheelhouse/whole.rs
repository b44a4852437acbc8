//! The operator that holds its Widgets and ConfigMaps whole.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};
use wheelhouse::{Key, NoAction, Operator, Plan, Result, World};

use crate::{
    tally::Tally,
    widget::{Widget, WidgetStatus, config_map},
};

pub(crate) struct Widgets {
    pub(crate) tally: Arc<Tally>,
}

/// The Widget is all that has to be known: what its ConfigMap is like, the SDK looks up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    widget: Arc<Widget>,
    has_config_map: bool,
}

impl Operator for Widgets {
    type Resource = Widget;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, widget: Arc<Widget>, world: &World<'_>) -> Result<Seen> {
        self.tally.begin();
        let has_config_map =
            world.get::<k8s_openapi::api::core::v1::ConfigMap>(&widget.name_any()).await?.is_some();
        let generation = widget.metadata.generation;
        if has_config_map
            && widget.status.as_ref().is_some_and(|status| status.observed_generation == generation)
        {
            self.tally.note_at_rest(&Key::of(&*widget));
        }
        Ok(Seen { widget, has_config_map })
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        let mut plan = Plan::new();
        let widget = &seen.widget;
        plan.apply(&config_map(&widget.name_any(), &widget.spec), "every Widget has one");
        plan.set_status(&WidgetStatus { observed_generation: widget.metadata.generation, ready: true });
        plan
    }
}
