//! Between the versions of {{ api.kind }}: each is converted to {{ api.stored }}, which is stored, and back.
//!
//! Nothing may be lost on the way there and back: what one version cannot say belongs into an annotation.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    api::{{ api.kind }},
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
        {{ version | upper }} => from_{{ version }}(&read(object)?)?,
{%- endfor %}
        other => return Err(format!("{other} is not known")),
    };
    match wanted {
        STORED => write(&stored),
{%- for version in api.others %}
        {{ version | upper }} => write(&to_{{ version }}(&stored)?),
{%- endfor %}
        other => Err(format!("{other} is not known")),
    }
}
{%- for version in api.others %}

/// What {{ version }} says, in the words of {{ api.stored }}. What is the same in both needs no words here; a field that is called or meant
/// otherwise is changed between the two lines.
fn from_{{ version }}(other: &{{ version }}::{{ api.kind }}) -> Result<{{ api.kind }}, String> {
    let fields = write(other)?;
    read(fields)
}

/// The way back.
fn to_{{ version }}(stored: &{{ api.kind }}) -> Result<{{ version }}::{{ api.kind }}, String> {
    let fields = write(stored)?;
    read(fields)
}
{%- endfor %}

fn read<K: DeserializeOwned>(object: Value) -> Result<K, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn write(object: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What people write, with every field.
    fn spec() -> Value {
        json!({{ api.example }})
    }

    #[test]
    fn nothing_is_lost_on_the_way_there_and_back() {
        let object = json!({"apiVersion": STORED, "kind": "{{ api.kind }}", "metadata": {"name": "one"}, "spec": spec()});
        let stored = convert(object, STORED).unwrap();
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
