//! What is looked at before a {{ api.kind }} is let in. What CEL can say belongs into `api.rs`: it needs no server.

use super::api::{{ api.kind }};
{%- if "validating" in api.webhooks %}
use wheelhouse::webhooks::Request;

/// Whether a request may be let in; if not, what its sender is told.
///
/// # Errors
/// What is wrong with it, in words for people.
pub fn validate(request: &Request<{{ api.kind }}>) -> Result<(), String> {
    match &request.object {
        Some(resource) if resource.spec.image.ends_with(":latest") => {
            Err("spec.image must name a version, not `latest`: nobody could tell what runs".to_owned())
        }
        _ => Ok(()),
    }
}
{%- endif %}
{%- if "defaulting" in api.webhooks %}

/// Fills in what people left out.
pub fn fill_in(resource: &mut {{ api.kind }}) {
    if !resource.spec.image.contains([':', '@']) {
        resource.spec.image.push_str(":stable");
    }
}
{%- endif %}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{{ api.module }}::api::{{ api.kind }}Spec;

    fn with_image(image: &str) -> {{ api.kind }} {
        let spec = {{ api.kind }}Spec { replicas: 1, image: image.to_owned(){% if api.cluster_scoped %}, namespace: "default".to_owned(){% endif %} };
        {{ api.kind }}::new("one", spec)
    }
{%- if "validating" in api.webhooks %}

    #[test]
    fn an_image_without_a_version_is_refused() {
        let request = |image: &str| Request::creating(with_image(image));
        assert!(validate(&request("nginx:1.27")).is_ok());
        assert!(validate(&request("nginx:latest")).is_err());
    }
{%- endif %}
{%- if "defaulting" in api.webhooks %}

    #[test]
    fn an_image_gets_a_version() {
        for (image, filled_in) in [("nginx", "nginx:stable"), ("nginx:1.27", "nginx:1.27")] {
            let mut resource = with_image(image);
            fill_in(&mut resource);
            assert_eq!(resource.spec.image, filled_in);
        }
    }
{%- endif %}
}
