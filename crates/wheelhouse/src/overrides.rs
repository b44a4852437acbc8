//! Overrides: what people want to be different about an object that an operator makes.

use serde_json::Value;

/// Puts what somebody wrote over what an operator would make: maps are merged, items
/// of lists that have a name are merged by it, everything else is replaced.
///
/// ```
/// # use serde_json::json;
/// let mut pod = json!({"spec": {"containers": [{"name": "main", "image": "a", "args": ["x"]}]}});
/// let wish = json!({"spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "main", "args": ["y"]}]}});
/// wheelhouse::overrides::merge(&mut pod, &wish);
/// assert_eq!(
///     pod,
///     json!({"spec": {
///         "containers": [{"name": "main", "image": "a", "args": ["y"]}],
///         "nodeSelector": {"disk": "ssd"},
///     }})
/// );
/// ```
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if from.iter().all(|item| item.get("name").is_some()) => {
            for item in from {
                match into.iter_mut().find(|known| known.get("name") == item.get("name")) {
                    Some(known) => merge(known, item),
                    None => into.push(item.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}
