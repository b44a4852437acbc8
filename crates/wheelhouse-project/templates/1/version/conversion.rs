//! Between the versions of {{ api.kind }}: each is converted to {{ api.stored }}, which is stored, and back.
//!
//! Nothing may be lost on the way there and back: what one version cannot say belongs into an annotation.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    api::{{ "{" }}{{ api.kind }}, {{ api.kind }}Spec},
{%- for version in api.others %}
    {{ version }},
{%- endfor %}
};

const STORED: &str = "{{ api.full_group }}/{{ api.stored }}";
{%- for version in api.others %}
const {{ version | upper }}: &str = "{{ api.full_group }}/{{ version }}";
{%- endfor %}

/// An object of one version as one of another.
///
/// # Errors
/// When it is of a version that is not known, or does not fit it.
pub fn convert(object: Value, wanted: &str) -> Result<Value, String> {
    let given = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let stored: {{ api.kind }} = match given.as_str() {
        STORED => read(object)?,
{%- for version in api.others %}
        {{ version | upper }} => read::<{{ version }}::{{ api.kind }}>(object)?.into(),
{%- endfor %}
        other => return Err(format!("{other} is not known")),
    };
    match wanted {
        STORED => write(&stored),
{%- for version in api.others %}
        {{ version | upper }} => write(&{{ version }}::{{ api.kind }}::from(stored)),
{%- endfor %}
        other => Err(format!("{other} is not known")),
    }
}

fn read<K: DeserializeOwned>(object: Value) -> Result<K, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn write(object: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(object).map_err(|error| error.to_string())
}
{%- for version in api.others %}

impl From<{{ version }}::{{ api.kind }}> for {{ api.kind }} {
    fn from(other: {{ version }}::{{ api.kind }}) -> Self {
        let {{ version }}::{{ api.kind }}Spec { replicas, image{{ ", namespace" if api.cluster_scoped else "" }} } = other.spec;
        let spec = {{ api.kind }}Spec { replicas, image{{ ", namespace" if api.cluster_scoped else "" }} };
        Self { metadata: other.metadata, spec, status: other.status }
    }
}

impl From<{{ api.kind }}> for {{ version }}::{{ api.kind }} {
    fn from(stored: {{ api.kind }}) -> Self {
        let {{ api.kind }}Spec { replicas, image{{ ", namespace" if api.cluster_scoped else "" }} } = stored.spec;
        let spec = {{ version }}::{{ api.kind }}Spec { replicas, image{{ ", namespace" if api.cluster_scoped else "" }} };
        Self { metadata: stored.metadata, spec, status: stored.status }
    }
}
{%- endfor %}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_there_and_back() {
        let spec = {{ api.kind }}Spec { replicas: 3, image: "nginx".to_owned(){% if api.cluster_scoped %}, namespace: "default".to_owned(){% endif %} };
        let stored = write(&{{ api.kind }}::new("one", spec)).unwrap();
        let there_and_back = |version: &str| {
            let converted = convert(stored.clone(), version).unwrap();
            assert_eq!(converted["apiVersion"], version);
            assert_eq!(convert(converted, STORED).unwrap(), stored);
        };
{%- for version in api.others %}
        there_and_back({{ version | upper }});
{%- endfor %}
        assert!(convert(stored, "{{ api.full_group }}/v999").is_err());
    }
}
