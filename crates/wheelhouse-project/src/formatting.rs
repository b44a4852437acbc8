//! Rust as rustfmt would write it: how lines are broken depends on how long names are.
//!
//! What a project's files once were is made anew whenever something is added to it, and compared with what is there. So
//! the same files are formatted in the same way wherever the command is called, or not at all.

use std::{
    io::{ErrorKind, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    error::{Error, Result},
    template::Files,
};

/// The settings of a project, which are those of the template and no others.
const SETTINGS: &str = include_str!("../templates/1/base/rustfmt.toml");

/// The same files, with Rust formatted.
///
/// # Errors
/// When there is no rustfmt, or it cannot read what is to be formatted.
pub fn formatted(files: Files) -> Result<Files> {
    let settings = Settings::new()?;
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    files
        .into_iter()
        .map(|(path, content)| match is_rust(&path) {
            true => Ok((path, settings.rustfmt(&content)?)),
            false => Ok((path, content)),
        })
        .collect()
}

/// The settings, as a file: rustfmt looks for others around the folder that it is called in unless it is told one.
struct Settings(tempfile::NamedTempFile);

impl Settings {
    fn new() -> Result<Self> {
        let cannot = |error| Error::file("write", &std::env::temp_dir())(error);
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile().map_err(cannot)?;
        file.write_all(SETTINGS.as_bytes()).map_err(cannot)?;
        Ok(Self(file))
    }

    fn rustfmt(&self, content: &str) -> Result<String> {
        let cannot = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => Error::Formatting("it is not there".to_owned()),
            _ => Error::Formatting(error.to_string()),
        };
        let mut child = Command::new("rustfmt")
            .args(["--edition", "2024", "--config-path"])
            .arg(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        // It reads all before it writes anything. One that ends before it has read all says why.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(content.as_bytes()));
        let output = child.wait_with_output().map_err(cannot)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("it does not say why");
            return Err(Error::Formatting(first.trim_start_matches("error: ").to_owned()));
        }
        written.map_err(cannot)?;
        String::from_utf8(output.stdout).map_err(|error| Error::Formatting(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn files(content: &[(&str, &str)]) -> Files {
        content.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
    }

    #[test]
    fn rust_is_formatted_and_nothing_else_is() {
        let formatted = formatted(files(&[("a.rs", "fn  main( ) { }\n"), ("a.toml", "a  = 1\n")])).unwrap();
        assert_eq!(formatted, files(&[("a.rs", "fn main() {}\n"), ("a.toml", "a  = 1\n")]));
    }

    #[test]
    fn what_is_not_formatted_is_not_taken_for_it() {
        let refused = formatted(files(&[("broken.rs", "fn (\n")])).unwrap_err().to_string();
        assert!(refused.contains("rustfmt") && refused.contains("unclosed delimiter"), "{refused}");
    }
}
