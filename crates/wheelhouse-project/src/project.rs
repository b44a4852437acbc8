//! The answers that a project is made from, which its `wheelhouse.toml` keeps.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    formatting::formatted,
    naming,
    template::{self, Files},
    versions::Present,
};

/// The file at the root of a project.
pub const FILE: &str = "wheelhouse.toml";

/// What images are called that are in no registry: the nodes of a local cluster have them.
pub const LOCAL_IMAGES: &str = "wheelhouse.dev";

/// A project: all that its files are made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// The version of the template that its files were made from.
    pub template: u32,
    /// Its name; the operator is `NAME-operator`.
    pub name: String,
    /// The domain that its groups belong to.
    pub domain: String,
    /// Whether it is a member of a workspace that was there before, and not a workspace of its own.
    #[serde(default)]
    pub member: bool,
    /// Which settings a member has of its own, because there were none of that kind around it.
    #[serde(default)]
    pub settings: Vec<Settings>,
    /// The registry, and the folder in it, that the operator's image is in; [`LOCAL_IMAGES`] if it says none.
    #[serde(default)]
    pub images: Option<String>,
    /// Where the SDK is.
    pub sdk: Sdk,
    /// The kinds that it looks after.
    #[serde(default)]
    pub apis: Vec<Api>,
}

/// What is read of a project first: what a newer template has beside it, only a newer command understands.
#[derive(Deserialize)]
struct Known {
    #[serde(default)]
    template: Option<i64>,
}

impl Known {
    fn check(&self, path: &Path) -> Result<()> {
        let (path, newest) = (path.display(), template::NEWEST);
        match self.template {
            Some(theirs) if theirs > i64::from(newest) => Err(Error::NoProject(format!(
                "{path} is of template {theirs}, and this command knows those up to {newest}: use a newer command"
            ))),
            Some(theirs) if theirs < 1 => Err(Error::NoProject(format!(
                "{path} says `template = {theirs}`: there is no template {theirs}, they are 1 to {newest}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Where a project finds the SDK, as long as that is not published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub enum Sdk {
    /// In a folder: a tree of Wheelhouse, seen from the project.
    Path {
        /// That folder.
        path: String,
    },
    /// In a repository.
    Git {
        /// Its URL.
        git: String,
        /// The commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rev: Option<String>,
    },
}

/// What a tool that checks a project is told, in a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settings {
    /// rustfmt.
    #[serde(rename = "rustfmt.toml")]
    Rustfmt,
    /// clippy.
    #[serde(rename = "clippy.toml")]
    Clippy,
    /// cargo-deny.
    #[serde(rename = "deny.toml")]
    Deny,
}

impl Settings {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Rustfmt, Self::Clippy, Self::Deny];

    /// What the file may be called: the tool looks for it in a folder, and then in those above.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Self::Rustfmt => &["rustfmt.toml", ".rustfmt.toml"],
            Self::Clippy => &["clippy.toml", ".clippy.toml"],
            Self::Deny => &["deny.toml", ".deny.toml", ".cargo/deny.toml"],
        }
    }
}

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Api {
    /// Its name, such as `CdnCluster`.
    pub kind: String,
    /// The first part of its group; the domain is the rest. Nothing where the domain is all of it.
    pub group: String,
    /// Its plural, in lower case.
    pub plural: String,
    /// Its versions. The first is the one that is stored, and that the operator works with.
    pub versions: Vec<String>,
    /// Whether its resources are in no namespace.
    #[serde(default)]
    pub cluster_scoped: bool,
    /// What is asked of the operator before a resource is let in.
    #[serde(default)]
    pub webhooks: Vec<Webhook>,
}

/// What an operator is asked before a resource is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Webhook {
    /// Whether it may.
    Validating,
    /// What is to be filled in.
    Defaulting,
}

impl Project {
    /// The project in a folder, or around it.
    ///
    /// # Errors
    /// When there is none, or its file cannot be understood.
    pub fn find(from: &Path) -> Result<(PathBuf, Self)> {
        let from = from.canonicalize().map_err(Error::file("look into", from))?;
        let folder = from.ancestors().find(|folder| folder.join(FILE).is_file()).ok_or_else(|| {
            Error::NoProject(format!(
                "there is no {FILE} in {} or above it: make a project with `wheelhouse init --domain example.com`, or go into one",
                from.display()
            ))
        })?;
        Ok((folder.to_owned(), Self::read(folder)?))
    }

    /// The project in just this folder.
    ///
    /// # Errors
    /// When its file cannot be understood.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let broken =
            |why: &dyn std::fmt::Display| Error::NoProject(format!("{} is damaged: {why}", path.display()));
        let known: Known = toml::from_str(&text).map_err(|error| broken(&error.to_string().trim_end()))?;
        known.check(&path)?;
        let project: Self = toml::from_str(&text).map_err(|error| broken(&error.to_string().trim_end()))?;
        project.check().map_err(|error| broken(&error))?;
        Ok(project)
    }

    /// Whether its answers can be: also somebody who edits the file by hand is told what is wrong.
    pub(crate) fn check(&self) -> Result<()> {
        naming::check_project(&self.name)?;
        naming::check_domain(&self.domain)?;
        self.images.as_deref().map_or(Ok(()), naming::check_images)?;
        for api in &self.apis {
            naming::check_kind(&api.kind)?;
            naming::check_group(&api.group, &self.domain)?;
            naming::check_plural(&api.plural)?;
            api.versions.iter().try_for_each(|version| naming::check_version(version))?;
            if api.versions.is_empty() {
                return Err(Error::NoProject(format!("the kind {} has no version", api.kind)));
            }
        }
        Ok(())
    }

    /// All of its files, formatted.
    ///
    /// # Errors
    /// When rustfmt is not there; or when a template is wrong, which is a bug.
    pub fn files(&self) -> Result<Files> {
        formatted(template::render(self)?)
    }

    /// All of them, with what its present files say of kinds that get another version.
    pub(crate) fn files_with(&self, present: Present) -> Result<Files> {
        let mut files = formatted(template::render_with(self, &present.specs)?)?;
        files.extend(present.files);
        Ok(files)
    }

    /// The name of the operator: of its package, its program, its Deployment.
    pub fn operator(&self) -> String {
        match self.name.ends_with("-operator") {
            true => self.name.clone(),
            false => format!("{}-operator", self.name),
        }
    }

    /// What the operator's image is called, without the tag.
    pub fn image(&self) -> String {
        format!("{}/{}", self.images.as_deref().unwrap_or(LOCAL_IMAGES), self.operator())
    }

    /// The kind of that name.
    pub fn api(&self, kind: &str) -> Option<&Api> {
        self.apis.iter().find(|api| api.kind == kind)
    }
}

impl Api {
    /// The whole group.
    pub fn full_group(&self, domain: &str) -> String {
        match self.group.as_str() {
            "" => domain.to_owned(),
            group => format!("{group}.{domain}"),
        }
    }

    /// How its files begin: with the first part of its group, or with all of it where there is only one.
    pub fn file_group(&self, domain: &str) -> String {
        if self.group.is_empty() { domain.to_owned() } else { self.group.clone() }
    }

    /// The name of its module.
    pub fn module(&self) -> String {
        naming::module_of(&self.kind)
    }
}

impl Sdk {
    /// As people write it: a folder, or a repository's URL with the commit behind `#`. What git writes as `git@HOST:PATH`
    /// is for Cargo `ssh://git@HOST/PATH`.
    pub fn parse(text: &str) -> Self {
        let is_repository = ["https://", "http://", "ssh://", "git://", "file://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        let (repository, rev) = match text.split_once('#') {
            None => (text, None),
            Some((repository, rev)) => (repository, Some(rev.to_owned())),
        };
        let short = repository.strip_prefix("git@").and_then(|rest| rest.split_once(':'));
        match short {
            Some((host, path)) => {
                Self::Git { git: format!("ssh://git@{host}/{}", path.trim_start_matches('/')), rev }
            }
            None if is_repository => Self::Git { git: repository.to_owned(), rev },
            None => Self::Path { path: text.to_owned() },
        }
    }

    /// What `Cargo.toml` says of a crate of the SDK.
    pub fn dependency(&self, name: &str) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        match self {
            Self::Path { path } => format!("{{ path = {} }}", quoted(&format!("{path}/crates/{name}"))),
            Self::Git { git, rev: None } => format!("{{ git = {} }}", quoted(git)),
            Self::Git { git, rev: Some(rev) } => {
                format!("{{ git = {}, rev = {} }}", quoted(git), quoted(rev))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::page("https://git.example.com/w.git", "https://git.example.com/w.git", None)]
    #[case::commit("https://git.example.com/w.git#abc", "https://git.example.com/w.git", Some("abc"))]
    #[case::ssh("ssh://git@git.example.com/w.git", "ssh://git@git.example.com/w.git", None)]
    #[case::as_git_has_it("git@git.example.com:team/w.git", "ssh://git@git.example.com/team/w.git", None)]
    #[case::with_a_commit("git@git.example.com:w.git#abc", "ssh://git@git.example.com/w.git", Some("abc"))]
    #[case::from_the_root("git@git.example.com:/srv/w.git", "ssh://git@git.example.com/srv/w.git", None)]
    fn a_repository_is_said_as_cargo_takes_it(
        #[case] said: &str,
        #[case] git: &str,
        #[case] rev: Option<&str>,
    ) {
        assert_eq!(Sdk::parse(said), Sdk::Git { git: git.to_owned(), rev: rev.map(str::to_owned) });
    }

    #[test]
    fn anything_else_is_a_folder() {
        for folder in ["../wheelhouse", "/home/me/wheel#house", "git@home"] {
            assert_eq!(Sdk::parse(folder), Sdk::Path { path: folder.to_owned() });
        }
    }
}
