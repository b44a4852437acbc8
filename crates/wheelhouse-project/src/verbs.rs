//! What people call: `init`, `create api`, `create webhook`, `project upgrade`. Each changes the answers, and the files
//! follow.

use std::path::{Path, PathBuf};

use crate::{
    change::{Change, OnConflict},
    error::{Error, Result},
    git, naming,
    project::{Api, FILE, Project, Sdk, Webhook},
    template::{self, Files},
    versions::Present,
};

/// Where something is done, and whether changes that nobody has committed are in the way.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder, or one in it.
    pub folder: PathBuf,
    /// Whether to go on all the same.
    pub allow_dirty: bool,
}

/// What a new project is to be.
#[derive(Clone, Debug)]
pub struct New {
    /// Where; made if it is not there.
    pub folder: PathBuf,
    /// Its name; that of the folder if none is given.
    pub name: Option<String>,
    /// The domain that its groups belong to.
    pub domain: String,
    /// Where the SDK is.
    pub sdk: Sdk,
    /// Whether it becomes a member of the workspace around it.
    pub member: bool,
}

/// What a new kind is to be.
#[derive(Clone, Debug)]
pub struct NewApi {
    /// The first part of its group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its name.
    pub kind: String,
    /// Its plural, where the English one would be wrong.
    pub plural: Option<String>,
    /// Whether its resources are in no namespace.
    pub cluster_scoped: bool,
}

/// Makes a project.
///
/// # Errors
/// When a name cannot be used, or something is there already. Then nothing was changed.
pub fn init(new: &New) -> Result<(Project, Change)> {
    let name = match &new.name {
        Some(name) => name.clone(),
        None => name_of(&new.folder)?,
    };
    if new.folder.join(FILE).exists() {
        let folder = new.folder.display();
        return Err(Error::Taken(format!(
            "{folder} is a project already: `wheelhouse create api` adds to it, `wheelhouse project upgrade` brings it up to date"
        )));
    }
    let project = Project {
        template: template::NEWEST,
        name,
        domain: new.domain.clone(),
        member: new.member,
        images: None,
        sdk: new.sdk.clone(),
        apis: Vec::new(),
    };
    project.check()?;
    let change = Change::plan(&new.folder, &Files::new(), &project.files()?, OnConflict::Refuse)?;
    change.carry_out(&new.folder)?;
    Ok((project, change))
}

fn name_of(folder: &Path) -> Result<String> {
    let whole = std::path::absolute(folder).map_err(Error::file("find", folder))?;
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    naming::check_project(&name).map(|()| name).map_err(|error| {
        Error::NoProject(format!("{error}. It is that of the folder: say another one with --name"))
    })
}

/// Adds a kind, or another version of one.
///
/// # Errors
/// When a name cannot be used or is taken, or the files cannot be changed. Then nothing was changed.
pub fn create_api(place: &Place, new: &NewApi) -> Result<(Project, Change)> {
    naming::check_version(&new.version)?;
    naming::check_kind(&new.kind)?;
    amend(place, |project| {
        naming::check_group(&new.group, &project.domain)?;
        let plural = new.plural.clone().unwrap_or_else(|| naming::plural_of(&new.kind));
        naming::check_plural(&plural)?;
        let (module, domain) = (naming::module_of(&new.kind), project.domain.clone());
        let Some(known) = project.apis.iter_mut().find(|api| api.kind == new.kind) else {
            if let Some(other) = project.apis.iter().find(|api| api.module() == module) {
                return Err(Error::Taken(format!(
                    "{} and {} would both be the module {module}: choose another kind",
                    other.kind, new.kind
                )));
            }
            if let Some(other) =
                project.apis.iter().find(|api| api.group == new.group && api.plural == plural)
            {
                return Err(Error::Taken(format!(
                    "{} of {} are {} already: say another one with --plural",
                    plural,
                    other.full_group(&domain),
                    other.kind
                )));
            }
            project.apis.push(Api {
                kind: new.kind.clone(),
                group: new.group.clone(),
                plural,
                versions: vec![new.version.clone()],
                cluster_scoped: new.cluster_scoped,
                webhooks: Vec::new(),
            });
            return Ok(());
        };
        if known.group != new.group {
            let theirs = known.full_group(&domain);
            return Err(Error::Taken(format!(
                "{} is a kind of {theirs} already: choose another one",
                new.kind
            )));
        }
        if known.versions.contains(&new.version) {
            let group = known.full_group(&domain);
            return Err(Error::Taken(format!("{group}/{} {} is there already", new.version, new.kind)));
        }
        if new.cluster_scoped && !known.cluster_scoped
            || new.plural.as_ref().is_some_and(|plural| *plural != known.plural)
        {
            return Err(Error::Taken(format!(
                "all versions of {} have one scope and one plural: leave --cluster-scoped and --plural away",
                new.kind
            )));
        }
        known.versions.push(new.version.clone());
        Ok(())
    })
}

/// Adds webhooks to a kind.
///
/// # Errors
/// When there is no such kind, it has them already, or the files cannot be changed. Then nothing was changed.
pub fn create_webhook(place: &Place, kind: &str, webhooks: &[Webhook]) -> Result<(Project, Change)> {
    amend(place, |project| {
        let kinds: Vec<_> = project.apis.iter().map(|api| api.kind.clone()).collect();
        let Some(api) = project.apis.iter_mut().find(|api| api.kind == kind) else {
            let known = if kinds.is_empty() {
                "it has none yet".to_owned()
            } else {
                format!("it has {}", kinds.join(", "))
            };
            return Err(Error::NoProject(format!("this project has no kind {kind}: {known}")));
        };
        let missing: Vec<_> =
            webhooks.iter().copied().filter(|webhook| !api.webhooks.contains(webhook)).collect();
        if missing.is_empty() {
            return Err(Error::Taken(format!(
                "{kind} has these webhooks already: src/{}/admission.rs",
                api.module()
            )));
        }
        api.webhooks.extend(missing);
        api.webhooks.sort_unstable();
        Ok(())
    })
}

/// Changes the answers, and the files with them.
fn amend(place: &Place, amend: impl FnOnce(&mut Project) -> Result<()>) -> Result<(Project, Change)> {
    let (folder, mut project) = Project::find(&place.folder)?;
    let before = project.clone();
    amend(&mut project)?;
    if !place.allow_dirty {
        git::check_clean(&folder)?;
    }
    let after = project.files_with(Present::of(&folder, &before, &project)?)?;
    let change = Change::plan(&folder, &before.files()?, &after, OnConflict::Refuse)?;
    change.carry_out(&folder)?;
    Ok((project, change))
}

/// Brings a project up to date with the newest template. Where people and the template changed the same lines, both are
/// kept, between marks.
///
/// # Errors
/// When it is no project, or a file cannot be written. Then nothing was changed.
pub fn upgrade(place: &Place) -> Result<(Project, Change)> {
    let (folder, mut project) = Project::find(&place.folder)?;
    if !place.allow_dirty {
        git::check_clean(&folder)?;
    }
    let before = project.files()?;
    project.template = template::NEWEST;
    let change = Change::plan(&folder, &before, &project.files()?, OnConflict::Mark)?;
    change.carry_out(&folder)?;
    Ok((project, change))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A project with one kind.
    struct Shop(TempDir);

    impl Shop {
        fn new() -> Self {
            let shop = Self(TempDir::new().unwrap());
            let new = New {
                folder: shop.0.path().to_owned(),
                name: Some("shop".to_owned()),
                domain: "example.com".to_owned(),
                sdk: Sdk::parse("https://git.example.com/wheelhouse.git"),
                member: false,
            };
            init(&new).unwrap();
            shop.create_page("v1").unwrap();
            shop
        }

        fn place(&self) -> Place {
            Place { folder: self.0.path().to_owned(), allow_dirty: true }
        }

        fn create_page(&self, version: &str) -> Result<(Project, Change)> {
            let new = NewApi {
                group: "app".to_owned(),
                version: version.to_owned(),
                kind: "Page".to_owned(),
                plural: None,
                cluster_scoped: false,
            };
            create_api(&self.place(), &new)
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.0.path().join(path)).unwrap()
        }

        fn edit(&self, path: &str, from: &str, to: &str) {
            let text = self.read(path);
            assert!(text.contains(from), "{path} has no {from}: {text}");
            fs::write(self.0.path().join(path), text.replace(from, to)).unwrap();
        }
    }

    #[test]
    fn another_version_begins_as_what_people_made_of_the_first_one() {
        let shop = Shop::new();
        shop.edit("src/page/api.rs", "    pub image: String,\n", "    pub text: Text,\n");
        shop.edit("src/page/api.rs", "fn one()", "/// What is on it.\npub struct Text(String);\n\nfn one()");
        shop.edit(
            "config/samples/app_v1_page.yaml",
            "image: wheelhouse.dev/nginx:0.1.0",
            "text: \"Come in\"",
        );
        shop.create_page("v2").unwrap();

        let other = shop.read("src/page/v2.rs");
        assert!(other.contains("    version = \"v2\",") && !other.contains("v1\""), "{other}");
        assert!(other.contains("pub text: Text,") && other.contains("pub struct Text(String);"), "{other}");
        let sample = shop.read("config/samples/app_v2_page.yaml");
        assert!(
            sample.starts_with("apiVersion: app.example.com/v2\n") && sample.contains("Come in"),
            "{sample}"
        );
        let conversion = shop.read("src/page/conversion.rs");
        assert!(conversion.contains(r#"json!({"replicas": 2, "text": "Come in"})"#), "{conversion}");
        assert!(!conversion.contains("image"), "{conversion}");

        // What they say of the one is still there when there is a third.
        shop.edit(
            "src/page/conversion.rs",
            "let fields = write(other)?;",
            "let fields = renamed(write(other)?);",
        );
        shop.create_page("v3beta1").unwrap();
        let conversion = shop.read("src/page/conversion.rs");
        assert!(
            conversion.contains("renamed(write(other)?)") && conversion.contains("fn to_v3beta1("),
            "{conversion}"
        );
        assert!(conversion.contains("Come in"), "{conversion}");
        assert!(shop.read("src/page/v3beta1.rs").contains("pub text: Text,"));
    }

    #[test]
    fn where_the_first_version_does_not_say_which_it_is_nothing_is_changed() {
        let shop = Shop::new();
        shop.edit("src/page/api.rs", "version = \"v1\"", "version = VERSION");
        let refused = shop.create_page("v2").unwrap_err().to_string();
        assert!(refused.starts_with("src/page/api.rs has no `version = \"v1\"`"), "{refused}");
        assert!(!shop.0.path().join("src/page/v2.rs").exists());
        assert!(!shop.read("wheelhouse.toml").contains("v2"));
    }

    #[test]
    fn no_webhook_knows_what_people_made_of_a_kind() {
        let shop = Shop::new();
        create_webhook(&shop.place(), "Page", &[Webhook::Validating, Webhook::Defaulting]).unwrap();
        let admission = shop.read("src/page/admission.rs");
        assert!(!admission.contains("spec") && !admission.contains("Spec"), "{admission}");
    }
}
