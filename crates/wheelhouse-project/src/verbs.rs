//! What people call: `init`, `create api`, `create webhook`, `project upgrade`. Each changes the answers, and the files
//! follow.

use std::path::{Path, PathBuf};

use crate::{
    change::{Change, OnConflict},
    error::{Error, Result},
    folder::one_name,
    git, naming,
    project::{Api, FILE, Project, Sdk, Settings, Webhook},
    template::{self, Files},
    versions::Present,
    workspace::{Workspace, missing_settings},
};

/// Where something is done, and whether changes that nobody has committed are in the way.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder, or one in it.
    pub folder: PathBuf,
    /// Whether to go on all the same.
    pub allow_dirty: bool,
    /// What to do where people changed the lines that are to change. An upgrade always keeps both.
    pub on_conflict: OnConflict,
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
    /// What to do with files that are there, as in a repository that somebody has just made.
    pub on_conflict: OnConflict,
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
    let settings = if new.member {
        Workspace::around(&new.folder)?;
        missing_settings(&new.folder)?
    } else {
        Vec::new()
    };
    let project = Project {
        template: template::NEWEST,
        name,
        domain: new.domain.clone(),
        member: new.member,
        settings,
        images: None,
        sdk: new.sdk.clone(),
        apis: Vec::new(),
    };
    project.check()?;
    let change = Change::plan(&new.folder, &Files::new(), &project.files()?, new.on_conflict)?;
    change.carry_out(&new.folder)?;
    Ok((project, change))
}

fn name_of(folder: &Path) -> Result<String> {
    let whole = one_name(folder).map_err(Error::file("find", folder))?;
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
            let is_called_alike =
                |api: &&Api| api.group == new.group && api.kind.eq_ignore_ascii_case(&new.kind);
            if let Some(other) = project.apis.iter().find(is_called_alike) {
                return Err(Error::Taken(format!(
                    "{} of {} is there already, and {} differs from it in capitals only: choose another kind",
                    other.kind,
                    other.full_group(&domain),
                    new.kind
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
    let change = Change::plan(&folder, &before.files()?, &after, place.on_conflict)?;
    change.carry_out(&folder)?;
    Ok((project, change))
}

/// Brings a project up to date with the newest template, and with where the SDK is, if that is another place by now. Where
/// people and the template changed the same lines, both are kept, between marks.
///
/// # Errors
/// When it is no project, or a file cannot be written. Then nothing was changed.
pub fn upgrade(place: &Place, sdk: Option<Sdk>) -> Result<(Project, Change)> {
    let (folder, mut project) = Project::find(&place.folder)?;
    if !place.allow_dirty {
        git::check_clean(&folder)?;
    }
    let before = project.files()?;
    project.template = template::NEWEST;
    project.sdk = sdk.unwrap_or(project.sdk);
    if project.member {
        // One that was made before members had any.
        let missing = missing_settings(&folder)?;
        let has = |settings: &Settings| project.settings.contains(settings) || missing.contains(settings);
        project.settings = Settings::ALL.into_iter().filter(has).collect();
    }
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
                on_conflict: OnConflict::Refuse,
            };
            init(&new).unwrap();
            shop.create_page("v1").unwrap();
            shop
        }

        fn place(&self) -> Place {
            let folder = self.0.path().to_owned();
            Place { folder, allow_dirty: true, on_conflict: OnConflict::Refuse }
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

    /// As the tutorial's: several resources, of which the first has what people write.
    #[test]
    fn the_conversion_is_tested_with_the_first_resource_of_a_sample() {
        let shop = Shop::new();
        let sample = "config/samples/app_v1_page.yaml";
        let page = |text: &str| format!("kind: Page\nmetadata: {{name: one}}\nspec: {{text: {text}}}\n");
        let several =
            format!("# All.\n---\nkind: Other\nspec: {{a: b}}\n---\n{}---\n{}", page("Come in"), page("Go"));
        fs::write(shop.0.path().join(sample), several).unwrap();
        shop.create_page("v2").unwrap();
        let conversion = shop.read("src/page/conversion.rs");
        assert!(conversion.contains(r#"json!({"text": "Come in"})"#), "{conversion}");
    }

    #[test]
    fn without_a_sample_there_is_nothing_to_test_a_conversion_with() {
        let shop = Shop::new();
        let sample = shop.0.path().join("config/samples/app_v1_page.yaml");
        let refused = || shop.create_page("v2").unwrap_err().to_string();
        fs::write(&sample, "kind: [\n").unwrap();
        assert!(
            refused().starts_with("config/samples/app_v1_page.yaml cannot be read (line "),
            "{}",
            refused()
        );
        fs::write(&sample, "kind: Other\nspec: {}\n").unwrap();
        assert!(
            refused().starts_with("config/samples/app_v1_page.yaml has no Page with a spec: "),
            "{}",
            refused()
        );
        fs::remove_file(&sample).unwrap();
        assert!(refused().starts_with("config/samples/app_v1_page.yaml is not there: "), "{}", refused());
        assert!(
            !shop.0.path().join("src/page/v2.rs").exists() && !shop.read("wheelhouse.toml").contains("v2")
        );
    }

    /// What everybody does within the first hour, where the verbs have to write, too.
    #[test]
    fn everyday_changes_are_in_no_verbs_way() {
        let shop = Shop::new();
        let module = "src/page.rs";
        shop.edit(module, "use wheelhouse::{Controller,", "use wheelhouse::{Category, Controller,");
        shop.edit(
            module,
            "use kube::CustomResourceExt as _;",
            "use kube::{CustomResourceExt as _, ResourceExt as _};",
        );
        shop.edit(module, ".owns::<Deployment>()", ".owns::<Deployment>().owns::<Service>()");
        let text = shop.read(module);
        fs::write(shop.0.path().join(module), format!("{text}\nfn more() {{}}\n")).unwrap();
        shop.edit("src/lib.rs", "use wheelhouse::Manager;", "use wheelhouse::{Manager, Metrics};");
        shop.edit("README.md", "Each kind that it looks after", "Each kind of page that it looks after");
        create_webhook(&shop.place(), "Page", &[Webhook::Validating]).unwrap();
        shop.create_page("v2").unwrap();
        let text = shop.read(module);
        for said in [
            "fn more()",
            "Category",
            ".owns::<Service>()",
            "with_version(Page::crd(), v2::Page::crd())",
            ".validates::<Page>",
            ".converts(",
        ] {
            assert!(text.contains(said), "{said} is not in {text}");
        }
    }

    #[test]
    fn where_people_changed_the_same_lines_nothing_is_changed_or_both_are_there() {
        let shop = Shop::new();
        shop.edit("src/page.rs", "    Page::crd()", "    described(Page::crd())");
        let refused = shop.create_page("v2").unwrap_err().to_string();
        assert!(
            refused.contains("--mark-conflicts")
                && refused.contains("+    wheelhouse::manager::with_version"),
            "{refused}"
        );
        assert!(!shop.0.path().join("src/page/v2.rs").exists());
        let place = Place { on_conflict: OnConflict::Mark, ..shop.place() };
        let new = NewApi {
            group: "app".to_owned(),
            version: "v2".to_owned(),
            kind: "Page".to_owned(),
            plural: None,
            cluster_scoped: false,
        };
        let (_, change) = create_api(&place, &new).unwrap();
        assert_eq!(change.conflicts, [PathBuf::from("src/page.rs")]);
        let text = shop.read("src/page.rs");
        for kept in
            ["<<<<<<<", "described(Page::crd())", "with_version(Page::crd(), v2::Page::crd())", ">>>>>>>"]
        {
            assert!(text.contains(kept), "{kept} is not in {text}");
        }
        assert!(shop.0.path().join("src/page/v2.rs").exists() && shop.read("wheelhouse.toml").contains("v2"));
    }

    #[test]
    fn where_the_sdk_is_is_said_anew_in_every_file_that_says_it() {
        let folder = TempDir::new().unwrap();
        let new = New {
            folder: folder.path().to_owned(),
            name: Some("shop".to_owned()),
            domain: "example.com".to_owned(),
            sdk: Sdk::Path { path: "/home/me/wheelhouse".to_owned() },
            member: false,
            on_conflict: OnConflict::Refuse,
        };
        init(&new).unwrap();
        let shop = Shop(folder);
        shop.create_page("v1").unwrap();
        shop.edit("Cargo.toml", "[dependencies]\n", "[dependencies]\nanyhow = \"1\"\n");
        let git = Sdk::parse("https://git.example.com/wheelhouse.git#abc");
        let (project, change) = upgrade(&shop.place(), Some(git.clone())).unwrap();
        assert!(change.is_all_done(), "{change:?}");
        assert_eq!((&project, &git), (&Project::read(shop.0.path()).unwrap(), &project.sdk));
        for path in project.files().unwrap().keys() {
            let text = fs::read_to_string(shop.0.path().join(path)).unwrap();
            let says = text.contains("/home/me") || text.contains("The SDK is a folder");
            assert!(!says, "{} says where the SDK was: {text}", path.display());
        }
        assert!(shop.read("Cargo.toml").contains("anyhow = \"1\"\n"));
        assert!(shop.read("deny.toml").contains("unknown-git = \"allow\"\n"));
    }

    /// As hosts of repositories make them.
    #[test]
    fn a_repository_with_a_readme_can_become_a_project() {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("README.md"), "# My shop\n").unwrap();
        fs::write(folder.path().join(".gitignore"), "/target\n").unwrap();
        let new = New {
            folder: folder.path().to_owned(),
            name: Some("shop".to_owned()),
            domain: "example.com".to_owned(),
            sdk: Sdk::parse("https://git.example.com/wheelhouse.git"),
            member: false,
            on_conflict: OnConflict::Refuse,
        };
        let refused = init(&new).unwrap_err().to_string();
        assert!(
            refused.starts_with("README.md is there") && refused.contains("--mark-conflicts"),
            "{refused}"
        );
        assert!(!folder.path().join(FILE).exists());
        let (_, change) = init(&New { on_conflict: OnConflict::Mark, ..new }).unwrap();
        assert_eq!(change.conflicts, [PathBuf::from("README.md")]);
        let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
        for kept in ["<<<<<<<", "# My shop\n", "# shop\n", ">>>>>>>"] {
            assert!(readme.contains(kept), "{kept} is not in {readme}");
        }
    }

    #[test]
    fn a_member_has_the_settings_that_its_workspace_does_not_have() {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join("Cargo.toml"), "[workspace]\nmembers = [\"ops/*\"]\n").unwrap();
        let init = |name: &str| {
            let folder = root.path().join("ops").join(name);
            let new = New {
                folder: folder.clone(),
                name: None,
                domain: "example.com".to_owned(),
                sdk: Sdk::parse("https://git.example.com/wheelhouse.git"),
                member: true,
                on_conflict: OnConflict::Refuse,
            };
            assert_eq!(init(&new).unwrap().0, Project::read(&folder).unwrap());
            let files = ["rustfmt.toml", "clippy.toml", "deny.toml", ".github/workflows/test.yaml"];
            files.map(|file| folder.join(file).is_file())
        };
        assert_eq!(init("alone"), [true, true, true, false]);
        // One of them is called as the tool takes it, too.
        for file in ["rustfmt.toml", "ops/.clippy.toml"] {
            fs::write(root.path().join(file), "").unwrap();
        }
        assert_eq!(init("beside"), [false, false, true, false]);
    }

    #[test]
    fn an_upgrade_brings_a_member_the_settings_that_its_workspace_does_not_have() {
        let root = TempDir::new().unwrap();
        fs::write(root.path().join("Cargo.toml"), "[workspace]\nmembers = [\"shop\"]\n").unwrap();
        fs::write(root.path().join("clippy.toml"), "").unwrap();
        let folder = root.path().join("shop");
        let old = Project { member: true, settings: Vec::new(), ..older(template::NEWEST) };
        written(&folder, &old);
        let place = Place { folder: folder.clone(), allow_dirty: true, on_conflict: OnConflict::Refuse };
        let (project, change) = upgrade(&place, None).unwrap();
        assert_eq!((true, &project), (change.is_all_done(), &Project::read(&folder).unwrap()));
        assert_eq!(project.settings, [Settings::Rustfmt, Settings::Deny]);
        assert!(folder.join("rustfmt.toml").is_file() && !folder.join("clippy.toml").exists());
        assert!(upgrade(&place, None).unwrap().1.is_empty(), "once is enough");
    }

    /// A project with everything that the command makes, from the templates of some version.
    fn older(template: u32) -> Project {
        let api = |kind: &str, versions: &[&str], cluster_scoped, webhooks: &[Webhook]| Api {
            kind: kind.to_owned(),
            group: "app".to_owned(),
            plural: naming::plural_of(kind),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            cluster_scoped,
            webhooks: webhooks.to_vec(),
        };
        Project {
            template,
            name: "shop".to_owned(),
            domain: "example.com".to_owned(),
            member: false,
            settings: Vec::new(),
            images: None,
            sdk: Sdk::parse("https://git.example.com/wheelhouse.git"),
            apis: vec![
                api("Page", &["v1", "v2", "v3beta1"], false, &[Webhook::Validating, Webhook::Defaulting]),
                api("Policy", &["v1"], true, &[]),
                api("Shelf", &["v1", "v2"], true, &[Webhook::Defaulting]),
            ],
        }
    }

    fn written(folder: &Path, project: &Project) {
        for (path, content) in project.files().unwrap() {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn what_nobody_changed_becomes_what_the_newest_template_makes() {
        for template in 1..template::NEWEST {
            let folder = TempDir::new().unwrap();
            written(folder.path(), &older(template));
            let shop = Shop(folder);
            // What people add is no hindrance.
            shop.edit("src/policy.rs", ".owns::<Deployment>()", ".owns::<Deployment>().owns::<Service>()");
            let (_, change) = upgrade(&shop.place(), None).unwrap();
            assert!(change.is_all_done(), "from {template}: {change:?}");
            for (path, content) in older(template::NEWEST).files().unwrap() {
                let is = shop.read(&path.to_string_lossy()).replace(".owns::<Service>()", "");
                assert_eq!(content, is, "{} from {template}", path.display());
            }
        }
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
