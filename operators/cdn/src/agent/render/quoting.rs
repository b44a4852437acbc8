//! How text that a person wrote becomes configuration: through here, and in no other way.

/// A parameter of nginx's configuration that means this text.
///
/// # Errors
/// When there is no way to write it.
pub(super) fn quoted(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} has control characters"));
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#)))
}

/// The same where nginx would put variables in: a dollar sign cannot be written there.
pub(super) fn quoted_literally(text: &str) -> Result<String, String> {
    match text.contains('$') {
        true => Err(format!("{text:?} has a dollar sign")),
        false => quoted(text),
    }
}

/// An answer of one line.
pub(super) fn answer(status: u16, line: &str) -> Result<String, String> {
    let line = quoted_literally(line)?;
    let line = line.strip_suffix('"').unwrap_or(&line);
    Ok(format!("            default_type text/plain;\n            return {status} {line}\\n\";\n"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::quotes(r#"a"; } server { listen 1; } #"#, r#""a\"; } server { listen 1; } #""#)]
    #[case::backslashes(r"\.ts$", r#""\\.ts$""#)]
    #[case::a_backslash_at_the_end(r"a\\", r#""a\\\\""#)]
    fn what_is_quoted_stays_one_parameter(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(quoted(text).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_quoted_is_refused() {
        quoted("a\nb").unwrap_err();
        quoted_literally("$host").unwrap_err();
    }
}
