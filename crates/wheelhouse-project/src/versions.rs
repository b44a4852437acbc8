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
            }
            if known.versions.len() > 1 {
                present.specs.remove(&api.kind);
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
                in_group(&text, &group, stored, version),
            );
            let sample: Option<Value> = serde_saphyr::from_str(&text).ok();
            if let Some(spec) = sample.as_ref().and_then(|sample| sample.get("spec")) {
                self.specs.insert(api.kind.clone(), as_code(spec));
            }
        }
        Ok(())
    }
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

/// With the other version wherever the group is named with this one.
fn in_group(text: &str, group: &str, stored: &str, version: &str) -> String {
    let named = format!("{group}/{stored}");
    let mut parts = text.split(named.as_str());
    let mut other = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // v1 is not v1beta1.
        let is_longer = part.starts_with(|letter: char| letter.is_ascii_alphanumeric());
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
