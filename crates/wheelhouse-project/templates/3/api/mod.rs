//! {{ api.kind }}: a Deployment is kept for each of them.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`]: reads a {{ api.kind }} and its Deployment into [`observe::Seen`].
//! - [`analyse`]: decides, and does nothing else.
{%- if api.webhooks %}
//! - [`admission`]: what is looked at before a {{ api.kind }} is let in.
{%- endif %}
{%- if api.others %}
//! - [`conversion`]: between {{ api.versions | join(" and ") }}.
{%- endif %}
{% if api.webhooks %}
pub mod admission;
{%- endif %}
pub mod analyse;
pub mod api;
{%- if api.others %}
pub mod conversion;
{%- endif %}
pub mod observe;
{%- for version in api.others %}
pub mod {{ version }};
{%- endfor %}

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::CustomResourceExt as _;
use wheelhouse::{Controller, NoAction, Operator, Plan, Result, World};

use self::{api::{{ api.kind }}, observe::Seen};

/// The operator.
pub struct {{ api.kind }}Operator;

impl Operator for {{ api.kind }}Operator {
    type Resource = {{ api.kind }};
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, resource: Arc<{{ api.kind }}>, world: &World<'_>) -> Result<Seen> {
        observe::observe(resource, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The kind, as it is registered.
pub fn crd() -> CustomResourceDefinition {
    {% for version in api.others %}wheelhouse::manager::with_version({% endfor %}{{ api.kind }}::crd(){% for version in api.others %}, {{ version }}::{{ api.kind }}::crd()){% endfor %}
}
{%- if api.needs_webhooks %}

/// What the API server asks about this kind.
pub fn webhooks(webhooks: wheelhouse::Webhooks) -> wheelhouse::Webhooks {
    webhooks
{%- if "validating" in api.webhooks %}
        .validates::<{{ api.kind }}>(admission::validate)
{%- endif %}
{%- if "defaulting" in api.webhooks %}
        .defaults::<{{ api.kind }}>(admission::fill_in)
{%- endif %}
{%- if api.others %}
        .converts("{{ api.plural }}.{{ api.full_group }}", conversion::convert)
{%- endif %}
}
{%- endif %}

/// What the operator is registered for: RBAC follows from it.
pub fn controller() -> Controller<{{ api.kind }}Operator> {
    Controller::new({{ api.kind }}Operator).owns::<Deployment>()
}
