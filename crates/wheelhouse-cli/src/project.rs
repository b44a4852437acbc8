//! Projects of operators: `init`, `create`, `manifests`, `test` and `project upgrade`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use wheelhouse_project::{
    Project, Sdk, Webhook,
    change::{Change, OnConflict},
    folder::one_name,
    manifests,
    verbs::{self, New, NewApi, Place},
    workspace::Workspace,
};

use crate::{ended, explaining::Output, operator_program::OperatorProgram, say, working::version_of};

/// The tree that this command was built from, where the SDK is as long as it is not published.
const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What `init` takes.
#[derive(Args)]
pub(crate) struct Init {
    /// The folder; made if it is not there
    #[arg(default_value = ".", value_name = "FOLDER")]
    folder: PathBuf,
    /// The domain that the groups of your kinds belong to
    #[arg(long, value_name = "DOMAIN")]
    domain: String,
    /// What the project is called; the operator is NAME-operator [default: as the folder]
    #[arg(long)]
    name: Option<String>,
    /// Where the SDK is: a tree of Wheelhouse, or a repository's URL, if need be with `#COMMIT` [default: the tree that
    /// this command was built from]
    #[arg(long, value_name = "FOLDER|URL")]
    sdk: Option<String>,
    /// Make it a member of the Cargo workspace that is around it
    #[arg(long)]
    member: bool,
    #[command(flatten)]
    conflicts: Conflicts,
}

/// What to do where files of people's are in the way.
#[derive(Args)]
pub(crate) struct Conflicts {
    /// Where you wrote or changed the same lines keep both, between marks, and end with 3 [default: change nothing at all]
    #[arg(long)]
    mark_conflicts: bool,
}

impl Conflicts {
    fn what_to_do(&self) -> OnConflict {
        if self.mark_conflicts { OnConflict::Mark } else { OnConflict::Refuse }
    }
}

/// The verbs of `wheelhouse create`.
#[derive(Subcommand)]
pub(crate) enum Create {
    /// Add a kind, or another version of one
    #[command(after_help = "\
Examples:
  wheelhouse create api --group cluster --version v1 --kind CdnCluster
  wheelhouse create api --group cluster --version v2 --kind CdnCluster   # and a conversion
  wheelhouse create api --group infra --version v1 --kind Zone --cluster-scoped")]
    Api(CreateApi),
    /// Have the API server ask the operator before it takes a resource
    #[command(after_help = "\
Examples:
  wheelhouse create webhook --kind CdnCluster --validating
  wheelhouse create webhook --kind CdnCluster --validating --defaulting")]
    Webhook(CreateWebhook),
}

/// What `create api` takes.
#[derive(Args)]
pub(crate) struct CreateApi {
    /// The first part of the group; the domain is added to it
    #[arg(long)]
    group: String,
    /// The version, such as v1 or v1beta1
    #[arg(long)]
    version: String,
    /// The kind, such as CdnCluster
    #[arg(long)]
    kind: String,
    /// Its plural, where the English one would be wrong
    #[arg(long)]
    plural: Option<String>,
    /// Its resources are in no namespace
    #[arg(long)]
    cluster_scoped: bool,
    #[command(flatten)]
    merging: Merging,
}

/// What `create webhook` takes.
#[derive(Args)]
pub(crate) struct CreateWebhook {
    /// The kind
    #[arg(long)]
    kind: String,
    #[command(flatten)]
    webhooks: Webhooks,
    #[command(flatten)]
    merging: Merging,
}

/// Which webhooks.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Webhooks {
    /// Whether a resource may be let in
    #[arg(long)]
    validating: bool,
    /// What is filled in where people left it out
    #[arg(long)]
    defaulting: bool,
}

impl Webhooks {
    fn wanted(&self) -> Vec<Webhook> {
        let all = [(self.validating, Webhook::Validating), (self.defaulting, Webhook::Defaulting)];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, webhook)| webhook).collect()
    }
}

/// Which project gets more, and how that meets what people wrote.
#[derive(Args)]
pub(crate) struct Merging {
    #[command(flatten)]
    where_: Where,
    #[command(flatten)]
    conflicts: Conflicts,
}

impl Merging {
    fn place(&self) -> Place {
        Place { on_conflict: self.conflicts.what_to_do(), ..self.where_.place() }
    }
}

/// Which project is meant.
#[derive(Args)]
pub(crate) struct Where {
    /// A folder of the project
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    project: PathBuf,
    /// Go on although there are changes that are not committed
    #[arg(long)]
    allow_dirty: bool,
}

impl Where {
    fn place(&self) -> Place {
        let folder = self.project.clone();
        Place { folder, allow_dirty: self.allow_dirty, on_conflict: OnConflict::Mark }
    }
}

/// The verbs of `wheelhouse project`.
#[derive(Subcommand)]
pub(crate) enum ProjectVerb {
    /// Bring a project up to date with the newest template, by a three-way merge
    #[command(after_help = "\
Examples:
  wheelhouse project upgrade && git diff
  wheelhouse project upgrade --sdk https://git.example.com/wheelhouse.git#COMMIT

Where you and the template changed the same lines both are kept, between marks as git has
them, and the exit code is 3. It is 3, too, if a file that was to change is not there.")]
    Upgrade {
        #[command(flatten)]
        where_: Where,
        /// Where the SDK is from now on, as `init` takes it; all files say so then [default: where it is]
        #[arg(long, value_name = "FOLDER|URL")]
        sdk: Option<String>,
    },
}

/// What `manifests` takes.
#[derive(Args)]
pub(crate) struct Manifests {
    /// Write nothing; end with the exit code 3 if what is there is not what the code says
    #[arg(long)]
    check: bool,
    /// How what was done, or would have to be, is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// A folder of the project
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    project: PathBuf,
}

/// Makes a project.
pub(crate) fn init(init: Init) -> Result<ExitCode> {
    let on_conflict = init.conflicts.what_to_do();
    let sdk = sdk(init.sdk.as_deref(), &init.folder)?;
    let new = New {
        folder: init.folder,
        name: init.name,
        domain: init.domain,
        sdk,
        member: init.member,
        on_conflict,
    };
    let (project, change) = verbs::init(&new)?;
    tell(&change)?;
    if let (Sdk::Path { path }, false) = (&project.sdk, project.member) {
        wheelhouse_local::progress::tell(format_args!(
            "note: the SDK is the folder {path} of this machine: CI and Docker find it nowhere else. --sdk takes a repository's URL, too, also that of `wheelhouse project upgrade`"
        ));
    }
    say(format_args!("{} is there. Next:", project.operator()))?;
    let unlisted =
        new.member.then(|| Workspace::around(&new.folder)).transpose()?.filter(|found| !found.is_listed);
    if let Some(Workspace { manifest, member, .. }) = unlisted {
        say(format_args!("  add {member:?} to `members` in {}", manifest.display()))?;
    }
    let folder = new.folder.display();
    if new.folder != Path::new(".") {
        say(format_args!("  cd {folder}"))?;
    }
    say("  wheelhouse create api --group app --version v1 --kind Page")?;
    say("  wheelhouse manifests, and commit what it writes: `make test` checks it")?;
    Ok(ended(change.is_all_done()))
}

/// Where a project finds the SDK.
fn sdk(said: Option<&str>, project: &Path) -> Result<Sdk> {
    if let Some(said) = said
        && let git @ Sdk::Git { .. } = Sdk::parse(said)
    {
        return Ok(git);
    }
    let folder = PathBuf::from(said.unwrap_or(BUILT_FROM));
    if !folder.join("crates/wheelhouse/Cargo.toml").is_file() {
        match said {
            Some(said) => bail!("{said} is no tree of Wheelhouse: it has no crates/wheelhouse"),
            None => bail!("say where the SDK is with --sdk: a tree of Wheelhouse, or a repository's URL"),
        }
    }
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let project = one_name(project)?;
    Ok(Sdk::Path { path: seen_from(&project, &folder).display().to_string() })
}

/// A folder as it is seen from one that is in it; from elsewhere, its whole path.
fn seen_from(from: &Path, folder: &Path) -> PathBuf {
    match from.strip_prefix(folder) {
        Ok(inside) => inside.components().map(|_| "..").collect(),
        Err(_) => folder.to_owned(),
    }
}

/// Adds to a project.
pub(crate) fn create(verb: Create) -> Result<ExitCode> {
    let (project, change) = match verb {
        Create::Api(api) => {
            let new = NewApi {
                group: api.group,
                version: api.version,
                kind: api.kind,
                plural: api.plural,
                cluster_scoped: api.cluster_scoped,
            };
            verbs::create_api(&api.merging.place(), &new)?
        }
        Create::Webhook(webhook) => {
            verbs::create_webhook(&webhook.merging.place(), &webhook.kind, &webhook.webhooks.wanted())?
        }
    };
    tell(&change)?;
    say(format_args!(
        "Next: `wheelhouse test` (checks {} on a real API server), `wheelhouse manifests` (writes config/ and deploy/, to be committed)",
        project.operator()
    ))?;
    Ok(ended(change.is_all_done()))
}

/// Brings a project up to date.
pub(crate) fn project(verb: ProjectVerb) -> Result<ExitCode> {
    let ProjectVerb::Upgrade { where_, sdk: said } = verb;
    let sdk = match said {
        None => None,
        Some(said) => Some(sdk(Some(&said), &Project::find(&where_.project)?.0)?),
    };
    let (project, change) = verbs::upgrade(&where_.place(), sdk)?;
    if change.is_empty() {
        say(format_args!("{} is up to date (template {})", project.operator(), project.template))?;
        return Ok(ended(true));
    }
    tell(&change)?;
    for path in &change.kept {
        say(format_args!(
            "  kept      {} (the template has it no more, and you changed it)",
            path.display()
        ))?;
    }
    Ok(ended(change.is_all_done()))
}

/// Writes what the operator prints into `config/` and `deploy/`, or compares it with what is there.
pub(crate) async fn manifests(settings: Manifests) -> Result<ExitCode> {
    let (folder, project) = Project::find(&settings.project)?;
    let program = OperatorProgram::of_project(&folder, &project);
    let printed = match project.images {
        // The operator's own is `wheelhouse.dev/NAME:VERSION`.
        None => program.prints(&["manifests"]).await?,
        Some(_) => {
            let image = format!("{}:{}", project.image(), version_of(&folder)?);
            program.prints(&["manifests", "--image", &image]).await?
        }
    };
    let files = manifests::files(&project, &folder, &printed)?;
    let change = manifests::change(&folder, &files)?;
    // What was not done is not told.
    if !settings.check {
        change.carry_out(&folder)?;
    }
    match (settings.output, settings.check) {
        (Output::Json, _) => say(as_json(&change))?,
        (Output::Text, true) => tell_of_check(&change)?,
        (Output::Text, false) if change.is_empty() => say("the manifests are up to date")?,
        (Output::Text, false) => tell(&change)?,
    }
    Ok(ended(!settings.check || change.is_empty()))
}

/// What is not as the code says.
fn tell_of_check(change: &Change) -> Result<()> {
    if change.is_empty() {
        return say("the manifests are what the code says");
    }
    let Change { added, changed, removed, .. } = change;
    let outdated: Vec<_> = [changed, removed].into_iter().flatten().collect();
    let kinds = [("not written yet", added.iter().collect()), ("not what the code says any more", outdated)];
    for (what, paths) in kinds.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        say(format_args!("{what}: {}: run `wheelhouse manifests` and commit it", names.join(", ")))?;
    }
    Ok(())
}

fn as_json(change: &Change) -> String {
    let Change { added, changed, removed, .. } = change;
    format!("{:#}", json!({"added": added, "changed": changed, "removed": removed}))
}

/// What happened to which files.
fn tell(change: &Change) -> Result<()> {
    let kinds = [("added", &change.added), ("changed", &change.changed), ("removed", &change.removed)];
    for (what, paths) in kinds {
        for path in paths.iter().filter(|path| !change.conflicts.contains(path)) {
            say(format_args!("  {what:<9} {}", path.display()))?;
        }
    }
    for path in &change.conflicts {
        say(format_args!("  conflict  {} (look for <<<<<<<)", path.display()))?;
    }
    for path in &change.missing {
        say(format_args!("  missing   {} (it was to change, and is not there)", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_is_seen_from_a_project_in_its_tree_without_the_path_of_a_machine() {
        let tree = Path::new("/home/me/wheelhouse");
        assert_eq!(seen_from(&tree.join("examples/memcached"), tree), Path::new("../.."));
        assert_eq!(seen_from(Path::new("/home/me/shop"), tree), tree);
    }

    /// As whoever is in the root of the tree says it.
    #[test]
    fn a_project_beside_the_tree_of_the_sdk_is_not_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().canonicalize().unwrap().join("wheelhouse");
        std::fs::create_dir_all(tree.join("crates/wheelhouse")).unwrap();
        std::fs::write(tree.join("crates/wheelhouse/Cargo.toml"), "").unwrap();
        let said = tree.display().to_string();
        let found = |project: &str| sdk(Some(&said), &tree.join(project)).unwrap();
        assert_eq!(found("../shop"), Sdk::Path { path: said.clone() });
        assert_eq!(found("examples/../shop"), Sdk::Path { path: "..".to_owned() });
    }
}
