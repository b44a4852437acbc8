//! Projects of operators: `init`, `create`, `manifests`, `test` and `project upgrade`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use wheelhouse_project::{
    Project, Sdk, Webhook,
    change::Change,
    manifests,
    verbs::{self, New, NewApi, Place},
};

use crate::{explaining::Output, operator_program::OperatorProgram, say, working::version_of};

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
}

/// The verbs of `wheelhouse create`.
#[derive(Subcommand)]
pub(crate) enum Create {
    /// Add a kind, or another version of one
    #[command(after_help = "\
Examples:
  wheelhouse create api --group cluster --version v1 --kind CdnCluster
  wheelhouse create api --group cluster --version v2 --kind CdnCluster     another version, and a conversion
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
    where_: Where,
}

/// What `create webhook` takes.
#[derive(Args)]
pub(crate) struct CreateWebhook {
    /// The kind
    #[arg(long)]
    kind: String,
    /// Whether a resource may be let in
    #[arg(long, required_unless_present = "defaulting")]
    validating: bool,
    /// What is filled in where people left it out
    #[arg(long)]
    defaulting: bool,
    #[command(flatten)]
    where_: Where,
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
        Place { folder: self.project.clone(), allow_dirty: self.allow_dirty }
    }
}

/// The verbs of `wheelhouse project`.
#[derive(Subcommand)]
pub(crate) enum ProjectVerb {
    /// Bring a project up to date with the newest template, by a three-way merge
    #[command(after_help = "\
Example:
  wheelhouse project upgrade && git diff

Where you and the template changed the same lines both are kept, between marks as git has them, and the exit
code is 2.")]
    Upgrade {
        #[command(flatten)]
        where_: Where,
    },
}

/// What `manifests` takes.
#[derive(Args)]
pub(crate) struct Manifests {
    /// Write nothing; fail if what is there is not what the code says
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
pub(crate) fn init(init: Init) -> Result<()> {
    let sdk = sdk(init.sdk.as_deref(), &init.folder)?;
    let new = New { folder: init.folder, name: init.name, domain: init.domain, sdk, member: init.member };
    let (project, change) = verbs::init(&new)?;
    tell(&change)?;
    if let (Sdk::Path { path }, false) = (&project.sdk, project.member) {
        wheelhouse_local::progress::tell(format_args!(
            "note: the SDK is the folder {path} of this machine: CI finds it nowhere else. --sdk takes a repository's URL, too"
        ));
    }
    say(format_args!("{} is there. Next:", project.operator()))?;
    let folder = new.folder.display();
    if new.folder != Path::new(".") {
        say(format_args!("  cd {folder}"))?;
    }
    say("  wheelhouse create api --group app --version v1 --kind Page")
}

/// Where a new project finds the SDK.
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
    let project = std::path::absolute(project)?;
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
pub(crate) fn create(verb: Create) -> Result<()> {
    let (project, change) = match verb {
        Create::Api(api) => {
            let new = NewApi {
                group: api.group,
                version: api.version,
                kind: api.kind,
                plural: api.plural,
                cluster_scoped: api.cluster_scoped,
            };
            verbs::create_api(&api.where_.place(), &new)?
        }
        Create::Webhook(webhook) => {
            let wanted =
                [(webhook.validating, Webhook::Validating), (webhook.defaulting, Webhook::Defaulting)];
            let wanted: Vec<_> =
                wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, webhook)| webhook).collect();
            verbs::create_webhook(&webhook.where_.place(), &webhook.kind, &wanted)?
        }
    };
    tell(&change)?;
    say(format_args!(
        "Next: `wheelhouse test` (checks {} on a real API server), `wheelhouse manifests` (writes config/ and deploy/)",
        project.operator()
    ))
}

/// Brings a project up to date. Whether nothing has to be looked at.
pub(crate) fn project(verb: ProjectVerb) -> Result<bool> {
    let ProjectVerb::Upgrade { where_ } = verb;
    let (project, change) = verbs::upgrade(&where_.place())?;
    if change.is_empty() {
        say(format_args!("{} is up to date (template {})", project.operator(), project.template))?;
        return Ok(true);
    }
    tell(&change)?;
    for path in &change.kept {
        say(format_args!(
            "  kept      {} (the template has it no more, and you changed it)",
            path.display()
        ))?;
    }
    for path in &change.conflicts {
        say(format_args!("  conflict  {} (look for <<<<<<<)", path.display()))?;
    }
    Ok(change.conflicts.is_empty())
}

/// Writes what the operator prints into `config/` and `deploy/`, or compares it with what is there.
pub(crate) async fn manifests(settings: Manifests) -> Result<()> {
    let (folder, project) = Project::find(&settings.project)?;
    let program = OperatorProgram::of_project(&folder);
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
    if settings.output == Output::Json {
        say(as_json(&change))?;
    }
    if settings.check {
        if change.is_empty() {
            return in_text(settings.output, "the manifests are what the code says");
        }
        let all: Vec<_> = [&change.added, &change.changed, &change.removed].into_iter().flatten().collect();
        let names: Vec<_> = all.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "not what the code says any more: {}: run `wheelhouse manifests` and commit it",
            names.join(", ")
        );
    }
    if change.is_empty() {
        return in_text(settings.output, "the manifests are up to date");
    }
    change.carry_out(&folder)?;
    match settings.output {
        Output::Text => tell(&change),
        Output::Json => Ok(()),
    }
}

fn in_text(output: Output, line: &str) -> Result<()> {
    match output {
        Output::Text => say(line),
        Output::Json => Ok(()),
    }
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
}
