//! The Cargo workspace that is around a project which is to be one of its members.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use serde::Deserialize;

use crate::{
    error::{Error, Result},
    folder::one_name,
    project::Settings,
};

/// A workspace, as seen from a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Its `Cargo.toml`.
    pub manifest: PathBuf,
    /// The folder, as `members` would name it.
    pub member: String,
    /// Whether `members` names it.
    pub is_listed: bool,
}

#[derive(Deserialize)]
struct Manifest {
    workspace: Option<Section>,
}

#[derive(Deserialize)]
struct Section {
    #[serde(default)]
    members: Vec<String>,
}

impl Workspace {
    /// The workspace around a folder, which need not be there yet.
    ///
    /// # Errors
    /// When there is none, or its `Cargo.toml` cannot be read.
    pub fn around(folder: &Path) -> Result<Self> {
        let whole = one_name(folder).map_err(Error::file("find", folder))?;
        for root in whole.ancestors().skip(1) {
            let manifest = root.join("Cargo.toml");
            if !manifest.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&manifest).map_err(Error::file("read", &manifest))?;
            let read: Manifest = toml::from_str(&text).map_err(|error| {
                Error::NoProject(format!(
                    "{} is damaged: {}",
                    manifest.display(),
                    error.to_string().trim_end()
                ))
            })?;
            let Some(workspace) = read.workspace else { continue };
            let member = whole.strip_prefix(root).unwrap_or(&whole).to_string_lossy().into_owned();
            let is_listed = workspace.members.iter().any(|pattern| is_named_by(&member, pattern));
            return Ok(Self { manifest, member, is_listed });
        }
        Err(Error::NoProject(format!(
            "there is no Cargo workspace around {}, of which it could be a member: leave --member away, or make the workspace first",
            folder.display()
        )))
    }
}

/// The settings that are neither in a folder, which need not be there yet, nor above it: there a tool would go by its own
/// defaults, and by these the templates were not written.
///
/// # Errors
/// When the folder cannot be found.
pub(crate) fn missing_settings(folder: &Path) -> Result<Vec<Settings>> {
    let whole = one_name(folder).map_err(Error::file("find", folder))?;
    let is_there = |settings: Settings| {
        whole.ancestors().any(|folder| settings.files().iter().any(|file| folder.join(file).is_file()))
    };
    Ok(Settings::ALL.into_iter().filter(|settings| !is_there(*settings)).collect())
}

/// As Cargo reads `members`: a star stands for a part of one name.
fn is_named_by(member: &str, pattern: &str) -> bool {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
    Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(member, options))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::by_its_name("ops/shop", true)]
    #[case::with_more_around_it("./ops/shop/", true)]
    #[case::by_a_pattern("ops/*", true)]
    #[case::another("ops/store", false)]
    #[case::its_parent("ops", false)]
    #[case::too_shallow("*", false)]
    fn a_member_is_listed_as_cargo_reads_it(#[case] pattern: &str, #[case] is_listed: bool) {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().canonicalize().unwrap().join("Cargo.toml");
        std::fs::write(&manifest, format!("[workspace]\nmembers = [\"lib\", \"{pattern}\"]\n")).unwrap();
        let found = Workspace::around(&folder.path().join("ops/shop")).unwrap();
        assert_eq!(found, Workspace { manifest, member: "ops/shop".to_owned(), is_listed });
    }

    #[test]
    fn a_package_on_the_way_is_no_workspace() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), "[workspace]\nmembers = [\"a\"]\n").unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
        let found = Workspace::around(&folder.path().join("a/shop")).unwrap();
        assert_eq!((found.member.as_str(), found.is_listed), ("a/shop", false));
    }

    /// As whoever is in the root of a workspace says it.
    #[test]
    fn a_folder_beside_a_workspace_is_not_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("Cargo.toml"), "[workspace]\n").unwrap();
        let refused = Workspace::around(&root.join("../shop")).unwrap_err().to_string();
        assert!(refused.starts_with("there is no Cargo workspace around"), "{refused}");
        let found = Workspace::around(&root.join("ops/../shop")).unwrap();
        assert_eq!(found.member, "shop");
    }

    #[test]
    fn where_there_is_none_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Workspace::around(&folder.path().join("shop")).unwrap_err().to_string();
        assert!(refused.starts_with("there is no Cargo workspace around"), "{refused}");
    }
}
