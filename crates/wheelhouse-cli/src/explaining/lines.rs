//! The lines that a plan is shown in. Pure.

use std::{fmt::Write as _, io::IsTerminal as _};

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
    Unknown,
    None,
}

/// A line of what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    sign: Sign,
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

    /// Words that are no difference, so far to the right.
    pub(super) fn words(depth: usize, text: impl Into<String>) -> Self {
        Self { sign: Sign::None, depth, text: text.into() }
    }

    pub(super) fn field(sign: Sign, path: &str, text: &str) -> Self {
        Self { sign, depth: 2, text: format!("{path}: {text}") }
    }

    /// Of an object that goes nobody needs every field.
    pub(super) fn gone(path: &str, there: &Value) -> Self {
        match there {
            Value::Object(_) => Self { sign: Sign::Removed, depth: 2, text: path.to_owned() },
            _ => Self::field(Sign::Removed, path, &short(there)),
        }
    }

    pub(super) fn text(&self) -> String {
        let sign = match self.sign {
            Sign::Added => "+",
            Sign::Changed => "~",
            Sign::Removed => "-",
            Sign::Action => "!",
            Sign::Unknown => "?",
            Sign::None => " ",
        };
        let indent = "  ".repeat(self.depth);
        format!("{indent}{sign} {}", self.text)
    }
}

/// The first of them, and how many more there are.
pub(super) fn in_short(mut lines: Vec<Line>) -> Vec<Line> {
    let more = lines.len().saturating_sub(SHOWN_OF_NEW);
    if more > 1 {
        lines.truncate(SHOWN_OF_NEW);
        lines.push(Line::words(2, format!("... and {more} more, with --output json")));
    }
    lines
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

/// Colours, where somebody looks at them.
pub(super) struct Paint {
    is_wanted: bool,
}

impl Paint {
    pub(super) fn for_the_terminal() -> Self {
        let is_wanted = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { is_wanted }
    }

    pub(super) fn line(&self, line: &Line) -> String {
        let code = match line.sign {
            _ if !self.is_wanted => return line.text(),
            Sign::Added => "32",
            Sign::Changed => "33",
            Sign::Removed => "31",
            Sign::Action => "36",
            Sign::Unknown => "35",
            Sign::None => return line.text(),
        };
        format!("\x1b[{code}m{}\x1b[0m", line.text())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::added(Sign::Added, "\x1b[32m    + a: 1\x1b[0m")]
    #[case::changed(Sign::Changed, "\x1b[33m    ~ a: 1\x1b[0m")]
    #[case::removed(Sign::Removed, "\x1b[31m    - a: 1\x1b[0m")]
    #[case::an_action(Sign::Action, "\x1b[36m    ! a: 1\x1b[0m")]
    #[case::not_known(Sign::Unknown, "\x1b[35m    ? a: 1\x1b[0m")]
    #[case::words(Sign::None, "      a: 1")]
    fn what_happens_to_something_has_a_colour_where_somebody_looks(
        #[case] sign: Sign,
        #[case] painted: &str,
    ) {
        let line = Line::field(sign, "a", "1");
        assert_eq!(Paint { is_wanted: true }.line(&line), painted);
        assert_eq!(Paint { is_wanted: false }.line(&line), line.text());
    }

    #[test]
    fn much_is_told_in_short() {
        let many = |count: usize| -> Vec<_> {
            (0..count).map(|number| Line::field(Sign::Added, &number.to_string(), "1")).collect()
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
}
