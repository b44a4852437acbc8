//! The operator of {{ project.name }}: what it looks after, a module for each kind.
{% for api in apis %}
pub mod {{ api.module }};
{%- endfor %}
{%- if apis %}
{% endif %}
use wheelhouse::Manager;

/// The whole process: what `main` runs, and tests too.
pub fn manager() -> Manager {
    Manager::new("{{ operator }}")
        .version(env!("CARGO_PKG_VERSION"))
{%- for api in apis %}
        .crd({{ api.module }}::crd())
        .controller({{ api.module }}::controller())
{%- endfor %}
{%- if any_webhooks %}
        .webhooks(webhooks())
{%- endif %}
}
{%- if any_webhooks %}

/// What the API server asks before it takes a resource.
fn webhooks() -> wheelhouse::Webhooks {
    {% for api in apis if api.needs_webhooks %}{{ api.module }}::webhooks({% endfor %}wheelhouse::Webhooks::new(){% for api in apis if api.needs_webhooks %}){% endfor %}
}
{%- endif %}
