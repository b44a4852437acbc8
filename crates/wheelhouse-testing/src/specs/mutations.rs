//! [`mutations`]: from a schema and a value to other values, valid and invalid.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Value, json};

/// Larger numbers are only tried where they have to be refused: a resource with a
/// thousand pods tells nothing that one with five does not.
const NUMBER_AT_MOST: i64 = 5;

/// A change of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// Which field, as a JSON pointer.
    pub path: String,
    /// What it is to be; nothing: it is left out.
    pub value: Option<Value>,
    /// Whether the schema allows that. What else a CRD says, in CEL, may not.
    pub is_valid: bool,
}

impl fmt::Display for Mutation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let validity = if self.is_valid { "valid" } else { "invalid" };
        match &self.value {
            Some(value) => write!(formatter, "{} = {value} ({validity})", self.path),
            None => write!(formatter, "without {} ({validity})", self.path),
        }
    }
}

impl Mutation {
    /// The value with this change.
    pub fn apply(&self, to: &Value) -> Value {
        let mut changed = to.clone();
        let (parents, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let mut place = &mut changed;
        for parent in parents.split('/').filter(|parent| !parent.is_empty()) {
            if !place.is_object() {
                *place = json!({});
            }
            let Some(fields) = place.as_object_mut() else { return changed };
            place = fields.entry(parent).or_insert_with(|| json!({}));
        }
        if !place.is_object() {
            *place = json!({});
        }
        if let Some(fields) = place.as_object_mut() {
            match &self.value {
                Some(value) => drop(fields.insert(name.to_owned(), value.clone())),
                None => drop(fields.remove(name)),
            }
        }
        changed
    }
}

/// The changes of a value that its schema gives rise to. The value is under `path`.
pub fn mutations(schema: &JSONSchemaProps, value: &Value, path: &str) -> Vec<Mutation> {
    let mut found = Vec::new();
    collect(schema, value, path, &mut found);
    found
}

fn collect(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<Mutation>) {
    let mut add = |value: Value, is_valid| {
        found.push(Mutation { path: path.to_owned(), value: Some(value), is_valid });
    };
    let is_open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    match schema.type_.as_deref() {
        Some("integer" | "number") => of_number(schema, value, &mut add),
        Some("string") => of_text(schema, &mut add),
        Some("boolean") => {
            add(json!(true), true);
            add(json!(false), true);
            add(json!("neither"), false);
        }
        Some("array") => {
            add(json!([]), schema.min_items.is_none_or(|least| least == 0));
            add(json!("no list"), false);
        }
        Some("object") if !is_open => add(json!("no object"), false),
        _ if is_open => {
            add(json!({}), true);
            // What the schema lets through and nobody can make sense of.
            add(json!({"spec": {"containers": 7}}), true);
        }
        _ => {}
    }
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, of_field) in schema.properties.iter().flatten() {
        let path = format!("{path}/{name}");
        let known = value.get(name).unwrap_or(&Value::Null);
        if required.contains(name) {
            found.push(Mutation { path: path.clone(), value: None, is_valid: of_field.default.is_some() });
        } else if !known.is_null() {
            found.push(Mutation { path: path.clone(), value: None, is_valid: true });
        }
        collect(of_field, known, &path, found);
    }
}

fn of_number(schema: &JSONSchemaProps, value: &Value, add: &mut impl FnMut(Value, bool)) {
    let whole = |bound: Option<f64>| bound.and_then(|bound| format!("{bound:.0}").parse::<i64>().ok());
    let (least, most) = (whole(schema.minimum), whole(schema.maximum));
    let known = value.as_i64().unwrap_or_default();
    let is_within =
        |number: i64| least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
    let mut tried: Vec<i64> = [Some(known + 1), Some(known - 1), least, least.map(|least| least + 1), most]
        .into_iter()
        .flatten()
        .filter(|number| is_within(*number) && (0..=NUMBER_AT_MOST).contains(number) && *number != known)
        .collect();
    tried.sort_unstable();
    tried.dedup();
    tried.into_iter().for_each(|number| add(json!(number), true));
    if let Some(least) = least {
        add(json!(least - 1), false);
    }
    if let Some(most) = most {
        add(json!(most + 1), false);
    }
    add(json!("no number"), false);
}

fn of_text(schema: &JSONSchemaProps, add: &mut impl FnMut(Value, bool)) {
    if let Some(choices) = &schema.enum_ {
        choices.iter().for_each(|choice| add(choice.0.clone(), true));
        add(json!("none of them"), false);
    } else if schema.pattern.is_none() && schema.format.is_none() {
        add(json!("another-text"), true);
        add(json!(""), schema.min_length.is_none_or(|least| least == 0));
    }
    if let Some(most) = schema.max_length {
        add(json!("x".repeat(usize::try_from(most + 1).unwrap_or_default())), false);
    }
    add(json!(17), false);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(value: Value) -> JSONSchemaProps {
        serde_json::from_value(value).unwrap()
    }

    fn told(schema: &JSONSchemaProps, value: &Value) -> Vec<String> {
        mutations(schema, value, "/spec").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_number_is_tried_at_its_bounds() {
        let schema = schema(json!({"type": "integer", "minimum": 0.0, "maximum": 1000.0}));
        assert_eq!(
            told(&schema, &json!(2)),
            [
                "/spec = 0 (valid)",
                "/spec = 1 (valid)",
                "/spec = 3 (valid)",
                "/spec = -1 (invalid)",
                "/spec = 1001 (invalid)",
                "/spec = \"no number\" (invalid)",
            ]
        );
    }

    #[test]
    fn what_is_required_cannot_be_left_out() {
        let schema = schema(json!({
            "type": "object", "required": ["a"],
            "properties": {"a": {"type": "boolean"}, "b": {"type": "string", "enum": ["x", "y"]}},
        }));
        let told = told(&schema, &json!({"a": true, "b": "x"}));
        assert!(told.contains(&"without /spec/a (invalid)".to_owned()), "{told:?}");
        assert!(told.contains(&"without /spec/b (valid)".to_owned()), "{told:?}");
        assert!(told.contains(&"/spec/b = \"y\" (valid)".to_owned()), "{told:?}");
    }

    #[test]
    fn a_change_is_made_where_it_belongs() {
        let mutation = Mutation { path: "/spec/a/b".to_owned(), value: Some(json!(1)), is_valid: true };
        assert_eq!(mutation.apply(&json!({"spec": {"c": 2}})), json!({"spec": {"c": 2, "a": {"b": 1}}}));
        let left_out = Mutation { path: "/spec/c".to_owned(), value: None, is_valid: true };
        assert_eq!(left_out.apply(&json!({"spec": {"c": 2}})), json!({"spec": {}}));
    }
}
