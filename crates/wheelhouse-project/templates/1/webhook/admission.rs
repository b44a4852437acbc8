//! What is looked at before a {{ api.kind }} is let in. What CEL can say belongs into `api.rs`: it needs no server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
{%- if "validating" in api.webhooks %}
use wheelhouse::webhooks::Request;
{%- endif %}

use super::api::{{ api.kind }};
{%- if "validating" in api.webhooks %}

/// What has this annotation is not deleted by mistake.
const KEEP: &str = "{{ api.full_group }}/keep";

/// Whether a request may be let in; if not, what its sender is told.
///
/// # Errors
/// What is wrong with it, in words for people.
pub fn validate(request: &Request<{{ api.kind }}>) -> Result<(), String> {
    match (&request.old_object, &request.object) {
        (Some(resource), None) => may_go(&resource.metadata),
        _ => Ok(()),
    }
}

fn may_go(metadata: &ObjectMeta) -> Result<(), String> {
    match metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(KEEP)) {
        true => Err(format!("it is to be kept: take the annotation {KEEP} away first")),
        false => Ok(()),
    }
}
{%- endif %}
{%- if "defaulting" in api.webhooks %}

/// What a {{ api.kind }} is part of, for whoever looks at everything of one application.
const PART_OF: &str = "app.kubernetes.io/part-of";

/// Fills in what people left out.
pub fn fill_in(resource: &mut {{ api.kind }}) {
    label(&mut resource.metadata);
}

fn label(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.entry(PART_OF.to_owned()).or_insert_with(|| "{{ project.name }}".to_owned());
}
{%- endif %}

#[cfg(test)]
mod tests {
    use super::*;
{%- if "validating" in api.webhooks %}

    #[test]
    fn what_is_to_be_kept_is_not_deleted() {
        let mut metadata = ObjectMeta::default();
        assert!(may_go(&metadata).is_ok());
        metadata.annotations.get_or_insert_default().insert(KEEP.to_owned(), String::new());
        assert!(may_go(&metadata).is_err());
    }
{%- endif %}
{%- if "defaulting" in api.webhooks %}

    #[test]
    fn a_label_that_people_left_out_is_filled_in_and_another_one_stays() {
        let mut metadata = ObjectMeta::default();
        label(&mut metadata);
        assert_eq!(metadata.labels.get_or_insert_default()[PART_OF], "{{ project.name }}");
        metadata.labels.get_or_insert_default().insert(PART_OF.to_owned(), "another".to_owned());
        label(&mut metadata);
        assert_eq!(metadata.labels.get_or_insert_default()[PART_OF], "another");
    }
{%- endif %}
}
