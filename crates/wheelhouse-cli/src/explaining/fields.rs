//! What differs between an object as it is to be and as it is, field by field. Pure.

use std::fmt::Write as _;

use serde_json::Value;

/// Of something new the rest is in the JSON.
const SHOWN_OF_NEW: usize = 6;

/// What happens to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Added,
    Changed,
    Removed,
    Action,
    None,
}

/// A line of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) sign: Sign,
    depth: usize,
    text: String,
}

impl Line {
    pub(super) fn object(sign: Sign, title: &str) -> Self {
        Self { sign, depth: 1, text: title.to_owned() }
    }

    pub(super) fn action(what: &str, step: &Value) -> Self {
        Self { sign: Sign::Action, depth: 1, text: format!("{what} {}", short(step)) }
    }

    pub(super) fn heading(text: &str) -> Self {
        Self { sign: Sign::None, depth: 1, text: text.to_owned() }
    }

    fn field(sign: Sign, path: &str, text: &str) -> Self {
        Self { sign, depth: 2, text: format!("{path}: {text}") }
    }

    pub(super) fn text(&self) -> String {
        let sign = match self.sign {
            Sign::Added => "+",
            Sign::Changed => "~",
            Sign::Removed => "-",
            Sign::Action => "!",
            Sign::None => " ",
        };
        let indent = "  ".repeat(self.depth);
        format!("{indent}{sign} {}", self.text)
    }
}

/// All fields that are mentioned, for something that is not there yet.
pub(super) fn mentioned(wanted: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&mut lines, "", wanted, &Value::Null);
    lines
}

/// The fields that are mentioned and are not so. What is not mentioned is nobody's business.
pub(super) fn difference(wanted: &Value, there: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&mut lines, "", wanted, there);
    lines
}

/// The first of them, and how many more there are.
pub(super) fn in_short(mut lines: Vec<Line>) -> Vec<Line> {
    let more = lines.len().saturating_sub(SHOWN_OF_NEW);
    if more > 1 {
        lines.truncate(SHOWN_OF_NEW);
        lines.push(Line {
            sign: Sign::None,
            depth: 2,
            text: format!("... and {more} more, with --output json"),
        });
    }
    lines
}

/// What an item of a list is called.
fn label(item: &Value) -> Option<&str> {
    ["name", "type"].iter().find_map(|field| item.get(field)?.as_str())
}

fn compare(lines: &mut Vec<Line>, path: &str, wanted: &Value, there: &Value) {
    match (wanted, there) {
        (Value::Object(fields), _) if !fields.is_empty() => {
            for (name, wanted) in fields {
                // These are how it is found, not what it is; and what changes with everything else.
                let finds = match name.as_str() {
                    "apiVersion" | "kind" => path.is_empty(),
                    "name" if path == "metadata" => true,
                    "name" | "type" => {
                        wanted.as_str().is_some_and(|value| path.ends_with(&format!("[{value}]")))
                    }
                    "lastTransitionTime" | "observedGeneration" => true,
                    _ => false,
                };
                if finds {
                    continue;
                }
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(lines, &path, wanted, there.get(name).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(items), _) if items.iter().any(Value::is_object) => {
            for (index, wanted) in items.iter().enumerate() {
                let name = label(wanted);
                let same = match name {
                    Some(name) => {
                        there.as_array().and_then(|there| there.iter().find(|item| label(item) == Some(name)))
                    }
                    None => there.get(index),
                };
                let label = name.map_or_else(|| index.to_string(), str::to_owned);
                compare(lines, &format!("{path}[{label}]"), wanted, same.unwrap_or(&Value::Null));
            }
        }
        _ if wanted == there || wanted.is_null() => {}
        (wanted, Value::Null) => lines.push(Line::field(Sign::Added, path, &short(wanted))),
        (wanted, there) => {
            lines.push(Line::field(Sign::Changed, path, &format!("{} -> {}", short(there), short(wanted))));
        }
    }
}

/// A value on one line; what is long is cut, and says so.
pub(super) fn short(value: &Value) -> String {
    const AT_MOST: usize = 100;
    let text = value.to_string();
    if text.chars().count() <= AT_MOST {
        return text;
    }
    let mut cut: String = text.chars().take(AT_MOST).collect();
    let _ = write!(cut, "... ({} characters)", text.chars().count());
    cut
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{}\n", line.text())).collect()
    }

    #[test]
    fn only_what_is_mentioned_and_differs_is_shown() {
        let there = json!({"spec": {"replicas": 2, "paused": false, "containers": [
            {"name": "side", "image": "s:1"}, {"name": "main", "image": "m:1", "ports": [80]},
        ]}, "conditions": [{"type": "Ready", "status": "False"}]});
        let wanted = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "containers": [{"name": "main", "type": "x", "image": "m:2", "ports": [80]}]},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "now"}]});
        insta::assert_snapshot!(shown(&difference(&wanted, &there)), @r#"
            + metadata.labels.x: "y"
            ~ spec.replicas: 2 -> 3
            + spec.containers[main].type: "x"
            ~ spec.containers[main].image: "m:1" -> "m:2"
            ~ conditions[Ready].status: "False" -> "True"
        "#);
    }

    #[test]
    fn much_is_told_in_short() {
        let many = |count: usize| {
            mentioned(&Value::from_iter((0..count).map(|number| (number.to_string(), json!(1)))))
        };
        assert_eq!(
            in_short(many(SHOWN_OF_NEW + 1)),
            many(SHOWN_OF_NEW + 1),
            "one more is no longer than saying so"
        );
        let shown = in_short(many(SHOWN_OF_NEW + 3));
        assert_eq!(shown.len(), SHOWN_OF_NEW + 1);
        assert_eq!(shown[SHOWN_OF_NEW].text().trim(), "... and 3 more, with --output json");
    }

    #[test]
    fn of_something_new_every_field_is_shown_and_long_values_are_cut() {
        let wanted =
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"index.html": "x".repeat(300)}});
        let lines = mentioned(&wanted);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].text().ends_with("... (302 characters)"), "{}", lines[0].text());
    }
}
