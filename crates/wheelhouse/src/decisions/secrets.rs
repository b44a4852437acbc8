//! What a Secret holds is shown as its digest.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The same, with the content of every Secret in it replaced by digests.
pub(crate) fn without_secrets(mut value: Value) -> Value {
    hide(&mut value);
    value
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if is_secret(fields) {
                for content in ["data", "stringData"] {
                    if let Some(Value::Object(entries)) = fields.get_mut(content) {
                        entries.values_mut().for_each(|entry| *entry = digest(entry));
                    }
                }
            }
            fields.values_mut().for_each(hide);
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        _ => {}
    }
}

/// With its own kind, or as the content of a step beside its kind.
fn is_secret(fields: &Map<String, Value>) -> bool {
    fields.get("kind").and_then(Value::as_str) == Some("Secret")
        && matches!(fields.get("apiVersion").and_then(Value::as_str), Some("v1") | None)
}

fn digest(value: &Value) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digest: String =
        Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_secret_holds_is_shown_as_its_digest_wherever_it_is() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVudGVyMg=="}});
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "shown"}});
        let shown = without_secrets(json!({"seen": [secret, config_map]})).to_string();
        assert!(!shown.contains("aHVudGVyMg=="), "{shown}");
        assert!(shown.contains("sha256:") && shown.contains("shown") && shown.contains("\"name\":\"s\""));
    }

    #[test]
    fn the_same_content_has_the_same_digest() {
        let of = |text: &str| without_secrets(json!({"kind": "Secret", "stringData": {"a": text}}));
        assert_eq!(of("one"), of("one"));
        assert_ne!(of("one"), of("two"));
    }
}
