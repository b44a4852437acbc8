//! Another version of a kind begins as what the kind is at present: people have changed what the template made of it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    project::{Api, Project},
    template::{self, Files},
};

/// What a project's present files say of kinds that get another version.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// The new versions' own files.
    pub(crate) files: Files,
    /// What people write of kinds that have had one version only, as JSON: there is no conversion yet that would have it.
    pub(crate) specs: BTreeMap<String, String>,
}

impl Present {
    /// What there is to say for the way from one project to another.
    pub(crate) fn of(folder: &Path, before: &Project, after: &Project) -> Result<Self> {
        let mut present = Self::default();
        for api in &after.apis {
            let Some(known) = before.api(&api.kind) else { continue };
            for version in api.versions.iter().filter(|version| !known.versions.contains(version)) {
                present.add(folder, after, api, version)?;
                if let [stored] = known.versions.as_slice() {
                    let path = template::sample_path(api, &after.domain, stored);
                    present.specs.insert(api.kind.clone(), written_in(&path, folder, &api.kind)?);
                }
            }
        }
        Ok(present)
    }

    fn add(&mut self, folder: &Path, project: &Project, api: &Api, version: &str) -> Result<()> {
        let Some(stored) = api.versions.first() else { return Ok(()) };
        let group = api.full_group(&project.domain);
        let module = PathBuf::from("src").join(api.module());
        if let Some(text) = read(&folder.join(module.join("api.rs")))? {
            let other = of_version(&text, &group, stored, version).ok_or_else(|| {
                let path = module.join("api.rs");
                Error::NoProject(format!(
                    "{} has no `version = \"{stored}\"`, from which {version} would begin: nothing was changed",
                    path.display()
                ))
            })?;
            self.files.insert(module.join(format!("{version}.rs")), other);
        }
        if let Some(text) = read(&folder.join(template::sample_path(api, &project.domain, stored)))? {
            self.files.insert(
                template::sample_path(api, &project.domain, version),
                sample_of_version(&text, &api.kind, &group, stored, version),
            );
        }
        Ok(())
    }
}

/// What people write of a kind, as its sample has it: the test of the conversion needs it, and would fail with any other.
fn written_in(path: &Path, folder: &Path, kind: &str) -> Result<String> {
    let unknown = |why: &str| {
        Error::NoProject(format!(
            "{} {why}: the test of the conversion begins with the first {kind} in it that has a spec. Nothing was changed",
            path.display()
        ))
    };
    let text = read(&folder.join(path))?.ok_or_else(|| unknown("is not there"))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        unknown(&format!("cannot be read ({})", first.trim_start_matches("error: ")))
    })?;
    let is_of_the_kind =
        |document: &&Value| document.get("kind").and_then(Value::as_str).is_some_and(|found| found == kind);
    let spec = documents.iter().filter(is_of_the_kind).find_map(|document| document.get("spec"));
    spec.map(as_code).ok_or_else(|| unknown(&format!("has no {kind} with a spec")))
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

/// JSON as it stands in code: on one line if it fits there.
fn as_code(spec: &Value) -> String {
    let line = spec.to_string().replace("\":", "\": ").replace(",\"", ", \"");
    match line.len() < 90 {
        true => line,
        false => serde_json::to_string_pretty(spec).unwrap_or(line).replace('\n', "\n        "),
    }
}

/// The text of `api.rs` as that of another version; none if it does not say which version it is of.
pub(crate) fn of_version(text: &str, group: &str, stored: &str, version: &str) -> Option<String> {
    let (before, attribute) = text.split_once("#[kube(")?;
    let (range, quoted) = version_in(attribute, stored)?;
    let mut other = format!("{before}#[kube(");
    other.push_str(attribute.get(..range.start)?);
    other.push_str(&quoted.replace(stored, version));
    other.push_str(attribute.get(range.end..)?);
    let other = in_group(&other, group, stored, version);
    let is_head = |line: &&str| line.starts_with("//!");
    let head: Vec<_> = other.lines().take_while(is_head).collect();
    let rest: Vec<_> = other.lines().skip_while(is_head).collect();
    let more = format!("//! It is stored as {stored}: [`super::conversion`] goes between the two.");
    let lines: Vec<_> = if head.is_empty() {
        [more.as_str(), ""].into_iter().chain(rest).collect()
    } else {
        head.into_iter().chain(["//!", &more]).chain(rest).collect()
    };
    Some(format!("{}\n", lines.join("\n")))
}

/// Where `version = "v1"` stands, however it is spaced.
fn version_in<'a>(text: &'a str, stored: &str) -> Option<(std::ops::Range<usize>, &'a str)> {
    let wanted = format!("\"{stored}\"");
    text.match_indices("version").find_map(|(start, word)| {
        let rest = text.get(start + word.len()..)?;
        let value = rest.trim_start().strip_prefix('=')?.trim_start();
        let end = start + word.len() + (rest.len() - value.len()) + wanted.len();
        value.starts_with(&wanted).then_some(())?;
        Some((start..end, text.get(start..end)?))
    })
}

/// The text of a sample as that of another version of its kind; what else is in it stays what it is.
fn sample_of_version(text: &str, kind: &str, group: &str, stored: &str, version: &str) -> String {
    let mut documents: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match documents.last_mut() {
            Some(document) if !line.starts_with("---") => document.push_str(line),
            _ => documents.push(line.to_owned()),
        }
    }
    let is_of_the_kind = |document: &str| {
        let read = serde_saphyr::from_str::<Value>(document).ok();
        read.is_some_and(|read| read.get("kind").and_then(Value::as_str) == Some(kind))
    };
    let documents = documents.into_iter().map(|document| match is_of_the_kind(&document) {
        true => in_group(&document, group, stored, version),
        false => document,
    });
    documents.collect()
}

/// With the other version wherever the group is named with this one.
fn in_group(text: &str, group: &str, stored: &str, version: &str) -> String {
    let named = format!("{group}/{stored}");
    let mut parts = text.split(named.as_str());
    let mut other = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // v1 is not v1beta1, and a group is not those that end as it does.
        let is_longer = part.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            || other.ends_with(|letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter));
        other.push_str(&if is_longer { named.clone() } else { format!("{group}/{version}") });
        other.push_str(part);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: &str = "//! What people write: `app.example.com/v1`, not `app.example.com/v1beta1`.

use kube::CustomResource;

/// A version of something else: version = \"v1\".
#[derive(CustomResource)]
#[kube(group = \"app.example.com\", version=\"v1\", kind = \"Page\")]
pub struct PageSpec {
    /// Where the text is.
    pub source: Source,
}
";

    #[test]
    fn another_version_is_what_people_made_of_the_first_one() {
        let other = of_version(API, "app.example.com", "v1", "v2").unwrap();
        insta::assert_snapshot!(other, @r#"
        //! What people write: `app.example.com/v2`, not `app.example.com/v1beta1`.
        //!
        //! It is stored as v1: [`super::conversion`] goes between the two.

        use kube::CustomResource;

        /// A version of something else: version = "v1".
        #[derive(CustomResource)]
        #[kube(group = "app.example.com", version="v2", kind = "Page")]
        pub struct PageSpec {
            /// Where the text is.
            pub source: Source,
        }
        "#);
    }

    #[test]
    fn another_version_of_a_sample_is_that_of_its_kind_only() {
        let sample = "\
# A page, its book, and where both are.
apiVersion: app.example.com/v1
kind: Page
metadata: {name: one}
---
apiVersion: app.example.com/v1
kind: Book
metadata: {name: two}
--- # The last one.
kind: Page
apiVersion: app.example.com/v1
spec: {in: my-app.example.com/v1, and: web.app.example.com/v1, not: app.example.com/v1beta1}
";
        let other = sample_of_version(sample, "Page", "app.example.com", "v1", "v2");
        let expected = sample
            .replace("com/v1\nkind: Page", "com/v2\nkind: Page")
            .replace("com/v1\nspec", "com/v2\nspec");
        assert_eq!(other, expected);
    }

    #[test]
    fn what_says_no_version_is_not_taken_for_one() {
        for text in ["", "struct Page;\n", "#[kube(version = \"v1beta1\")]\n", "#[kube(version)]\n"] {
            assert_eq!(of_version(text, "app.example.com", "v1", "v2"), None);
        }
    }

    #[test]
    fn a_long_spec_stands_on_several_lines() {
        let spec = serde_json::json!({"a": 1, "b": "c"});
        assert_eq!(as_code(&spec), r#"{"a": 1, "b": "c"}"#);
        let long = serde_json::json!({"text": "x".repeat(90)});
        assert!(as_code(&long).starts_with("{\n          \"text\": "));
    }
}
