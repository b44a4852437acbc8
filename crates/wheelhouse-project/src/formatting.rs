//! Rust as rustfmt would write it: how lines are broken depends on how long names are.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::template::Files;

/// The settings of the template's `rustfmt.toml`.
const SETTINGS: &str = "max_width=110,use_small_heuristics=Max";

/// The same files, with Rust formatted. Where there is no rustfmt, as they are.
pub fn formatted(files: Files) -> Files {
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let format = |content: String| rustfmt(&content).unwrap_or(content);
    files
        .into_iter()
        .map(|(path, content)| if is_rust(&path) { (path, format(content)) } else { (path, content) })
        .collect()
}

fn rustfmt(content: &str) -> Option<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config", SETTINGS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // It reads all before it writes anything.
    child.stdin.take()?.write_all(content.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn rust_is_formatted_and_nothing_else_is() {
        let files: Files = [("a.rs", "fn  main( ) { }\n"), ("a.toml", "a  = 1\n"), ("broken.rs", "fn (\n")]
            .into_iter()
            .map(|(path, content)| (PathBuf::from(path), content.to_owned()))
            .collect();
        let formatted = formatted(files);
        assert_eq!(formatted[&PathBuf::from("a.rs")], "fn main() {}\n");
        assert_eq!(formatted[&PathBuf::from("a.toml")], "a  = 1\n");
        assert_eq!(formatted[&PathBuf::from("broken.rs")], "fn (\n");
    }
}
