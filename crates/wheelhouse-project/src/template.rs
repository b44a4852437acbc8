//! From answers to files. Pure: the same answers give the same files.

use std::{collections::BTreeMap, path::PathBuf};

use minijinja::{Environment, UndefinedBehavior, Value, value::Serde};
use serde::Serialize;

use crate::{
    error::{Error, Result},
    project::{Api, Project, Sdk, Settings, Webhook},
    versions,
};

/// The version of the templates that this command makes projects from.
pub const NEWEST: u32 = 3;

/// How long the name of a resource may be, as `api.rs` says.
const LONGEST_NAME: usize = 50;

/// The files of a project, by their path in it.
pub type Files = BTreeMap<PathBuf, String>;

/// A template, and the path of what it becomes.
struct Template {
    path: &'static str,
    /// What it was in each version of the templates that changed it, oldest first. What is once released here is never
    /// changed: projects were made from it, and are brought up to date by comparing with it.
    editions: &'static [(u32, &'static str)],
}

impl Template {
    /// What it was in that version; none if it was not there yet.
    fn edition(&self, version: u32) -> Option<&'static str> {
        self.editions.iter().rev().find(|(since, _)| *since <= version).map(|(_, content)| *content)
    }
}

/// A template of version 1; others are added with the version that changed it and its file: `, 2 => "2/base/Makefile"`.
macro_rules! template {
    ($path:literal, $file:literal $(, $since:literal => $later:literal)*) => {
        Template {
            path: $path,
            editions: &[
                (1, include_str!(concat!("../templates/1/", $file))),
                $(($since, include_str!(concat!("../templates/", $later))),)*
            ],
        }
    };
}

/// Once a project.
const BASE: [Template; 9] = [
    template!("wheelhouse.toml", "base/wheelhouse.toml"),
    template!("Cargo.toml", "base/Cargo.toml"),
    template!("Makefile", "base/Makefile"),
    template!("Containerfile", "base/Containerfile", 2 => "2/base/Containerfile", 3 => "3/base/Containerfile"),
    template!("README.md", "base/README.md", 3 => "3/base/README.md"),
    template!("src/main.rs", "base/main.rs"),
    template!("src/lib.rs", "base/lib.rs", 3 => "3/base/lib.rs"),
    template!(".gitignore", "base/gitignore"),
    template!(".dockerignore", "base/dockerignore"),
];

/// Once a workspace: a member has its own only where its workspace has none.
const SETTINGS: [(Settings, Template); 3] = [
    (Settings::Rustfmt, template!("rustfmt.toml", "base/rustfmt.toml")),
    (Settings::Clippy, template!("clippy.toml", "base/clippy.toml")),
    (Settings::Deny, template!("deny.toml", "base/deny.toml")),
];

/// Once a workspace: a member has that of its workspace.
const CI: Template =
    template!(".github/workflows/test.yaml", "base/ci.yaml", 2 => "2/base/ci.yaml", 3 => "3/base/ci.yaml");

/// Once there are kinds.
const TESTS: Template = template!("tests/api_server/main.rs", "base/tests_main.rs");

/// Once a kind.
const API: [Template; 5] = [
    template!("src/{{ api.module }}.rs", "api/mod.rs", 3 => "3/api/mod.rs"),
    template!("src/{{ api.module }}/api.rs", "api/api.rs", 3 => "3/api/api.rs"),
    template!("src/{{ api.module }}/observe.rs", "api/observe.rs"),
    template!("src/{{ api.module }}/analyse.rs", "api/analyse.rs"),
    template!("tests/api_server/{{ api.module }}.rs", "api/test.rs", 3 => "3/api/test.rs"),
];

/// Once a version of a kind.
const SAMPLE: Template =
    template!("config/samples/{{ api.file_group }}_{{ version }}_{{ api.singular }}.yaml", "api/sample.yaml");

/// Once a kind with several versions.
const CONVERSION: Template = template!("src/{{ api.module }}/conversion.rs", "version/conversion.rs");

/// Once a kind with webhooks.
const ADMISSION: Template = template!("src/{{ api.module }}/admission.rs", "webhook/admission.rs");

/// Every template, and what it is now.
#[cfg(test)]
pub(crate) fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let settings = SETTINGS.iter().map(|(_, template)| template);
    let once = [&CI, &TESTS, &SAMPLE, &CONVERSION, &ADMISSION];
    let all = BASE.iter().chain(settings).chain(&API).chain(once);
    all.filter_map(|template| Some((template.path, template.edition(NEWEST)?)))
}

/// What templates know of a kind.
#[derive(Serialize)]
struct ApiContext<'a> {
    kind: &'a str,
    group: &'a str,
    full_group: String,
    file_group: String,
    plural: &'a str,
    singular: String,
    module: String,
    dashed: String,
    /// What names begin with that others are added to.
    short: String,
    sample_name: String,
    cluster_scoped: bool,
    versions: &'a [String],
    /// The version that is stored.
    stored: &'a str,
    /// The other ones.
    others: &'a [String],
    version_list: String,
    webhooks: &'a [Webhook],
    webhook_list: String,
    needs_webhooks: bool,
    /// What people write, as JSON.
    example: String,
}

impl<'a> ApiContext<'a> {
    fn of(api: &'a Api, project: &Project, specs: &BTreeMap<String, String>) -> Self {
        let (stored, others) =
            api.versions.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let module = api.module();
        Self {
            kind: &api.kind,
            group: &api.group,
            full_group: api.full_group(&project.domain),
            file_group: api.file_group(&project.domain),
            plural: &api.plural,
            singular: api.kind.to_ascii_lowercase(),
            dashed: module.replace('_', "-"),
            short: short(&module),
            sample_name: sample_name(&module),
            module,
            cluster_scoped: api.cluster_scoped,
            versions: &api.versions,
            stored,
            others,
            version_list: list(&api.versions),
            webhooks: &api.webhooks,
            webhook_list: list(&api.webhooks),
            needs_webhooks: !api.webhooks.is_empty() || !others.is_empty(),
            example: specs.get(&api.kind).cloned().unwrap_or_else(|| example(api)),
        }
    }
}

/// The name of a sample: no longer than a kind lets it be.
fn sample_name(module: &str) -> String {
    format!("{}-sample", short(module))
}

/// What a kind is called in names that go on, and are at most so long.
fn short(module: &str) -> String {
    let dashed: String = module.replace('_', "-").chars().take(LONGEST_NAME - "-sample".len()).collect();
    dashed.trim_end_matches('-').to_owned()
}

/// What people write of a kind that is as the template made it.
fn example(api: &Api) -> String {
    let namespace = if api.cluster_scoped { r#", "namespace": "default""# } else { "" };
    format!(r#"{{"replicas": 3, "image": "wheelhouse.dev/nginx:0.1.0"{namespace}}}"#)
}

/// Where the sample of a version is.
pub(crate) fn sample_path(api: &Api, domain: &str, version: &str) -> PathBuf {
    let kind = api.kind.to_ascii_lowercase();
    PathBuf::from(format!("config/samples/{}_{version}_{kind}.yaml", api.file_group(domain)))
}

/// A list as TOML has it, which for words is as JSON has it.
fn list(values: &impl Serialize) -> String {
    serde_json::to_string(values).unwrap_or_default().replace("\",\"", "\", \"")
}

/// All files of a project.
///
/// # Errors
/// When a template is wrong, which is a bug.
pub fn render(project: &Project) -> Result<Files> {
    render_with(project, &BTreeMap::new())
}

/// The same, where people write something else by now than what the template made of a kind: as JSON, by kind.
pub(crate) fn render_with(project: &Project, specs: &BTreeMap<String, String>) -> Result<Files> {
    let renderer = Renderer::new(project, specs);
    let mut files = Files::new();
    for template in &BASE {
        renderer.add(&mut files, template, None, "")?;
    }
    for (settings, template) in &SETTINGS {
        if !project.member || project.settings.contains(settings) {
            renderer.add(&mut files, template, None, "")?;
        }
    }
    if !project.member {
        renderer.add(&mut files, &CI, None, "")?;
    }
    if !project.apis.is_empty() {
        renderer.add(&mut files, &TESTS, None, "")?;
    }
    for api in &project.apis {
        let known = ApiContext::of(api, project, specs);
        let stored = known.stored;
        for template in &API {
            renderer.add(&mut files, template, Some(&known), stored)?;
        }
        for version in &api.versions {
            renderer.add(&mut files, &SAMPLE, Some(&known), version)?;
        }
        let module = PathBuf::from("src").join(&known.module);
        for version in known.others {
            let text = files.get(&module.join("api.rs"));
            let other = text.and_then(|text| versions::of_version(text, &known.full_group, stored, version));
            let other = other.ok_or_else(|| Error::Template {
                template: "api/api.rs".to_owned(),
                problem: format!("it does not say `version = \"{stored}\"`"),
            })?;
            files.insert(module.join(format!("{version}.rs")), other);
        }
        if !known.others.is_empty() {
            renderer.add(&mut files, &CONVERSION, Some(&known), stored)?;
        }
        if !api.webhooks.is_empty() {
            renderer.add(&mut files, &ADMISSION, Some(&known), stored)?;
        }
    }
    Ok(files)
}

/// What templates know.
#[derive(Serialize)]
struct Known<'a> {
    project: &'a Project,
    apis: &'a [ApiContext<'a>],
    any_webhooks: bool,
    crate_name: String,
    operator: String,
    settings: String,
    sdk: String,
    sdk_is_git: bool,
    /// What `cargo install` is told of the command.
    command: String,
    /// What the operator's image is called, without the tag.
    image: String,
    wheelhouse: String,
    wheelhouse_testing: String,
    /// The kind that a file is about, if it is about one.
    api: Option<&'a ApiContext<'a>>,
    /// The version that it is about.
    version: &'a str,
}

struct Renderer<'a> {
    environment: Environment<'static>,
    project: &'a Project,
    apis: Vec<ApiContext<'a>>,
}

impl<'a> Renderer<'a> {
    fn new(project: &'a Project, specs: &BTreeMap<String, String>) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let apis = project.apis.iter().map(|api| ApiContext::of(api, project, specs)).collect();
        Self { environment, project, apis }
    }

    fn add(
        &self,
        files: &mut Files,
        template: &Template,
        api: Option<&ApiContext<'_>>,
        version: &str,
    ) -> Result<()> {
        let operator = self.project.operator();
        let known = Value::from(Serde(Known {
            project: self.project,
            apis: &self.apis,
            any_webhooks: self.apis.iter().any(|api| api.needs_webhooks),
            crate_name: operator.replace('-', "_"),
            settings: list(&self.project.settings),
            operator,
            sdk: sdk(&self.project.sdk),
            sdk_is_git: matches!(self.project.sdk, Sdk::Git { .. }),
            command: command(&self.project.sdk),
            image: self.project.image(),
            wheelhouse: self.project.sdk.dependency("wheelhouse"),
            wheelhouse_testing: self.project.sdk.dependency("wheelhouse-testing"),
            api,
            version,
        }));
        let render = |text: &str| {
            self.environment.render_str(text, &known).map_err(|error| Error::Template {
                template: template.path.to_owned(),
                problem: format!("{error:#}"),
            })
        };
        if let Some(content) = template.edition(self.project.template) {
            // The engine takes the last line break away.
            files.insert(PathBuf::from(render(template.path)?), format!("{}\n", render(content)?.trim_end()));
        }
        Ok(())
    }
}

/// Where the command is, as `cargo install` takes it.
fn command(sdk: &Sdk) -> String {
    match sdk {
        Sdk::Path { path } => format!("--path {path}/crates/wheelhouse-cli"),
        Sdk::Git { git, rev: None } => format!("--git {git} wheelhouse-cli"),
        Sdk::Git { git, rev: Some(rev) } => format!("--git {git} --rev {rev} wheelhouse-cli"),
    }
}

/// Where the SDK is, as `wheelhouse.toml` says it.
fn sdk(sdk: &Sdk) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    match sdk {
        Sdk::Path { path } => format!("{{ path = {} }}", quoted(path)),
        Sdk::Git { git, rev: None } => format!("{{ git = {} }}", quoted(git)),
        Sdk::Git { git, rev: Some(rev) } => format!("{{ git = {}, rev = {} }}", quoted(git), quoted(rev)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> Project {
        Project {
            template: NEWEST,
            name: "cdn".to_owned(),
            domain: "anevia.com".to_owned(),
            member: false,
            settings: Vec::new(),
            images: None,
            sdk: Sdk::Path { path: "../wheelhouse".to_owned() },
            apis: Vec::new(),
        }
    }

    fn api(kind: &str) -> Api {
        Api {
            kind: kind.to_owned(),
            group: "cluster".to_owned(),
            plural: crate::naming::plural_of(kind),
            versions: vec!["v1".to_owned()],
            cluster_scoped: false,
            webhooks: Vec::new(),
        }
    }

    fn all(files: &Files) -> String {
        files.iter().map(|(path, content)| format!("=== {}\n{content}", path.display())).collect()
    }

    #[test]
    fn a_new_project_has_what_it_needs_and_no_more() {
        insta::assert_snapshot!(all(&render(&project()).unwrap()));
    }

    #[test]
    fn a_kind_adds_its_module_its_tests_and_a_sample() {
        let mut project = project();
        let before = render(&project).unwrap();
        project.apis.push(api("CdnCluster"));
        let mut after = render(&project).unwrap();
        after.retain(|path, content| before.get(path) != Some(content));
        insta::assert_snapshot!(all(&after));
    }

    /// The generated Deployment lets nobody be root.
    #[test]
    fn what_a_sample_runs_is_an_image_of_this_tree_whose_user_is_not_root() {
        let mut project = project();
        project.apis.push(api("CdnCluster"));
        let files = render(&project).unwrap();
        let image = format!("image: wheelhouse.dev/nginx:{}\n", env!("CARGO_PKG_VERSION"));
        assert!(
            files[&PathBuf::from("config/samples/cluster_v1_cdncluster.yaml")].ends_with(&image),
            "{files:?}"
        );
        let containerfile = include_str!("../../../images/nginx/Containerfile");
        let user = containerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
        assert!(
            user.starts_with(|first: char| ('1'..='9').contains(&first)),
            "the kubelet has to see that {user} is not root"
        );
    }

    #[test]
    fn a_sample_is_not_called_longer_than_its_kind_allows() {
        let longest = crate::naming::module_of("PersistentVolumeSnapshotReplicationPolicyGroupClas");
        for module in [longest.as_str(), "cdn_cluster", &format!("{}_b", "a".repeat(42))] {
            let name = sample_name(module);
            assert!(name.len() <= LONGEST_NAME && name.ends_with("-sample"), "{name}");
            assert!(!name.contains("--"), "{name}");
        }
        let rule = format!("self.metadata.name.size() <= {LONGEST_NAME}");
        let (_, api) = texts().find(|(path, _)| path.ends_with("/api.rs")).unwrap();
        assert!(api.contains(&rule), "{api}");
    }

    #[test]
    fn namespaces_of_tests_are_not_called_longer_than_one_may_be() {
        let mut project = project();
        project.apis.push(api("PersistentVolumeSnapshotReplicationPolicyGroupClas"));
        let files = render(&project).unwrap();
        let module = project.apis[0].module();
        let test = &files[&PathBuf::from(format!("tests/api_server/{module}.rs"))];
        let purposes: Vec<_> =
            test.split("= place(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(purposes.len(), 3);
        for purpose in purposes {
            // Behind it there are a dash and five letters that the API server chooses.
            assert!(purpose.len() + 6 <= 63, "{purpose}");
        }
    }

    #[test]
    fn a_group_may_be_the_domain_alone() {
        let mut project = project();
        let mut api = api("CdnCluster");
        api.group = String::new();
        project.apis.push(api);
        let files = render(&project).unwrap();
        let sample = &files[&PathBuf::from("config/samples/anevia.com_v1_cdncluster.yaml")];
        assert!(sample.starts_with("apiVersion: anevia.com/v1\n"), "{sample}");
        assert!(files[&PathBuf::from("src/cdn_cluster/api.rs")].contains("    group = \"anevia.com\",\n"));
        let read: Project = toml::from_str(&files[&PathBuf::from("wheelhouse.toml")]).unwrap();
        assert_eq!(read, project);
        read.check().unwrap();
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut project = project();
        project.sdk =
            Sdk::Git { git: "https://example.com/w.git".to_owned(), rev: Some("abc\"def".to_owned()) };
        project.member = true;
        project.settings = vec![Settings::Rustfmt, Settings::Deny];
        project.images = Some("registry.example.com/team".to_owned());
        let mut wide = api("Policy");
        wide.cluster_scoped = true;
        wide.versions.push("v2beta1".to_owned());
        wide.webhooks = vec![Webhook::Validating, Webhook::Defaulting];
        project.apis = vec![api("CdnCluster"), wide];
        let files = render(&project).unwrap();
        let read: Project = toml::from_str(&files[&PathBuf::from("wheelhouse.toml")]).unwrap();
        assert_eq!(read, project);
    }

    #[test]
    fn a_template_is_what_it_was_in_the_version_that_a_project_was_made_from() {
        let template = Template { path: "a", editions: &[(2, "two"), (4, "four")] };
        let editions: Vec<_> = (1..=5).map(|version| template.edition(version)).collect();
        assert_eq!(editions, [None, Some("two"), Some("two"), Some("four"), Some("four")]);
    }

    #[test]
    fn no_file_ends_without_a_line_break_or_has_trailing_spaces() {
        let mut project = project();
        let mut second = api("Policy");
        second.versions.push("v2".to_owned());
        second.webhooks = vec![Webhook::Validating];
        project.apis = vec![api("CdnCluster"), second];
        for (path, content) in render(&project).unwrap() {
            assert!(content.ends_with('\n') && !content.ends_with("\n\n"), "{}", path.display());
            let spaces = content.lines().find(|line| line.ends_with(' '));
            assert_eq!(spaces, None, "{}", path.display());
            assert!(!content.contains("\n\n\n"), "{}", path.display());
        }
    }
}
