//! The operator against a real API server, under exactly the rules that it declares. No controller of Kubernetes' own
//! runs here: a Deployment is there, and has no pods.
#![allow(clippy::unwrap_used, reason = "a test says what is wrong by ending")]
{% for api in apis %}
mod {{ api.module }};
{%- endfor %}
