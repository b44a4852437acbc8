//! Working on an operator: `install`, `run`, `test`, `deploy` and `undeploy`.

mod undeploy;

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::process::Child;
use wheelhouse_local::{Progress, demo::wait_until_available, images::Image, manifests::Manifest};
use wheelhouse_project::Project;

pub(crate) use undeploy::undeploy;

use crate::{
    current_cluster,
    local::interruption,
    operator_program::{OperatorProgram, check_cargo, start_cargo},
    say,
};

/// Which build of its image a pod was made for: a new one has the name of the old one.
const BUILD: &str = "wheelhouse.dev/build";
/// How often the sources are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Which project is meant.
#[derive(Args)]
pub(crate) struct Which {
    /// A folder of the project
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    project: PathBuf,
}

/// What `run` takes.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    which: Which,
    /// Start it anew whenever the sources change
    #[arg(long)]
    watch: bool,
    /// What else the operator is told, behind `--`: see `--help` of the operator's own `run`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// What `test` takes.
#[derive(Args)]
pub(crate) struct Test {
    #[command(flatten)]
    which: Which,
    /// What else `cargo test` is told, behind `--`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// What `deploy` takes.
#[derive(Args)]
pub(crate) struct Deploy {
    #[command(flatten)]
    which: Which,
    /// The registry that the image goes through, for a cluster that is not local
    #[arg(long, value_name = "HOST/PATH")]
    registry: Option<String>,
    /// How many copies run: one leads, the others are warm
    #[arg(long, default_value_t = 2)]
    replicas: u32,
}

/// Registers the kinds in the current cluster, and nothing else.
pub(crate) async fn install(which: Which) -> Result<()> {
    let (folder, project) = Project::find(&which.project)?;
    let client = current_cluster::client().await?;
    let printed = OperatorProgram::of_project(&folder, &project).prints(&["crds"]).await?;
    for manifest in Manifest::read_all(Path::new("crds"), &printed)? {
        manifest.apply(&client).await?;
        say(format_args!("registered {}", manifest.name()))?;
    }
    Ok(())
}

/// Runs the project's tests.
pub(crate) async fn test(test: Test) -> Result<ExitCode> {
    let (folder, _) = Project::find(&test.which.project)?;
    let mut cargo = tokio::process::Command::new("cargo");
    cargo.args(["test", "--manifest-path"]).arg(folder.join("Cargo.toml")).args(&test.arguments);
    let status = start_cargo(&mut cargo, &folder)?.wait().await.context("cannot wait for cargo to end")?;
    Ok(exit_code(status))
}

/// Runs the operator from here, against the current cluster.
pub(crate) async fn run(run: Run) -> Result<ExitCode> {
    let (folder, project) = Project::find(&run.which.project)?;
    current_cluster::client().await?;
    let program = OperatorProgram::of_project(&folder, &project);
    let mut arguments = run.arguments;
    if !says(&arguments, "--webhook-url") {
        arguments.extend(where_webhooks_are(&program).await?);
    }
    let mut stop = std::pin::pin!(interruption()?);
    loop {
        let sources = newest_change(&folder);
        let mut child = start(&program, &arguments)?;
        let outcome = tokio::select! {
            () = &mut stop => Outcome::Stopped,
            status = child.wait() => Outcome::Ended(status?),
            () = change_since(&folder, sources), if run.watch => Outcome::Changed,
        };
        match outcome {
            Outcome::Stopped => {
                end(&mut child).await?;
                return Ok(ExitCode::SUCCESS);
            }
            Outcome::Changed => {
                end(&mut child).await?;
                say("the sources changed: starting anew")?;
            }
            Outcome::Ended(status) if run.watch => {
                say(format_args!("it ended ({status}): waiting for a change"))?;
                tokio::select! {
                    () = &mut stop => return Ok(ExitCode::SUCCESS),
                    () = change_since(&folder, sources) => {}
                }
            }
            Outcome::Ended(status) => return Ok(exit_code(status)),
        }
    }
}

enum Outcome {
    Stopped,
    Ended(ExitStatus),
    Changed,
}

fn exit_code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// In a process group of its own: a Ctrl-C at the terminal is for us, and we end it as Kubernetes would.
fn start(program: &OperatorProgram, arguments: &[String]) -> Result<Child> {
    let mut all = vec!["run", "--install-crds", "--no-leader-election", "--listen", "127.0.0.1:8080"];
    if says(arguments, "--listen") {
        all.truncate(3);
    }
    all.extend(arguments.iter().map(String::as_str));
    program.start(program.command(&all).process_group(0).kill_on_drop(true))
}

fn says(arguments: &[String], flag: &str) -> bool {
    arguments.iter().any(|argument| argument == flag || argument.starts_with(&format!("{flag}=")))
}

/// How the API server finds the webhooks of an operator that runs here: there is no Service in front of it. A local cluster
/// reaches this machine; of another one nobody knows, and it would refuse whatever the webhooks are to be asked about.
async fn where_webhooks_are(program: &OperatorProgram) -> Result<Vec<String>> {
    if current_cluster::local()?.is_some() {
        return Ok(vec!["--webhook-url".to_owned(), "self".to_owned()]);
    }
    let printed = program.prints(&["manifests"]).await?;
    let manifests = Manifest::read_all(Path::new("manifests"), &printed)?;
    // Only an operator with webhooks has one.
    if manifests.iter().any(|manifest| manifest.kind() == "Service") {
        bail!(
            "this operator has webhooks, and the cluster of the current context may not reach this machine: say where it does, as in \
             `wheelhouse run -- --webhook-url https://ADDRESS:9443`; or `wheelhouse deploy`; or bring a cluster up here with \
             `wheelhouse local up`"
        );
    }
    Ok(Vec::new())
}

/// Asks it to end, and lets it finish what it is doing.
async fn end(child: &mut Child) -> Result<()> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(-pid), Signal::SIGTERM);
    }
    child.wait().await.context("cannot wait for the operator to end")?;
    Ok(())
}

async fn change_since(folder: &Path, before: Option<SystemTime>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if newest_change(folder) != before {
            return;
        }
    }
}

/// When a source was changed last.
fn newest_change(folder: &Path) -> Option<SystemTime> {
    let mut newest = None;
    let mut open = vec![folder.join("src"), folder.join("Cargo.toml")];
    while let Some(path) = open.pop() {
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        newest = newest.max(metadata.modified().ok());
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    newest
}

/// Builds the image and installs the operator into the current cluster.
pub(crate) async fn deploy(deploy: Deploy) -> Result<()> {
    let (folder, project) = Project::find(&deploy.which.project)?;
    let client = current_cluster::client().await?;
    let program = OperatorProgram::of_project(&folder, &project);
    let progress = Progress::shown();
    let local = current_cluster::local()?;
    let version = version_of(&folder)?;
    let image = Image::of_package(&project.operator(), &folder, &version);
    // The image is made with it, too, but says so in other words.
    check_cargo(&folder).await?;
    let registry = deploy.registry.or_else(|| project.images.clone().filter(|_| local.is_none()));
    let (archive, registry) = match (&registry, &local) {
        (Some(registry), _) => (image.push(registry, &progress).await?, Some(registry)),
        (None, Some(cluster)) => {
            let archive = image.ensure(&progress).await?;
            cluster.load(&archive).await?;
            (archive, None)
        }
        (None, None) => bail!(
            "the current context is of no local cluster: say which registry it takes images from, as in `wheelhouse deploy \
             --registry registry.example.com/team`; or bring one up with `wheelhouse local up`"
        ),
    };
    let reference = registry.map_or_else(|| image.reference(), |registry| image.reference_in(registry));
    progress.clear();
    let replicas = deploy.replicas.to_string();
    let printed = program.prints(&["manifests", "--image", &reference, "--replicas", &replicas]).await?;
    let build = archive.file_stem().unwrap_or_default().to_string_lossy();
    let mut manifests = Manifest::read_all(Path::new("manifests"), &printed)?;
    for manifest in manifests.iter_mut().filter(|manifest| manifest.kind() == "Deployment") {
        name_build(&mut manifest.object, &build, registry.is_some());
    }
    let stage = progress.stage(format!("installing {}", project.operator()));
    for manifest in &manifests {
        manifest.apply(&client).await?;
    }
    wait_until_available(&client, &manifests).await?;
    stage.done();
    progress.clear();
    say(deployed(&project.operator(), &reference, &folder))
}

/// What `deploy` says in the end.
fn deployed(operator: &str, reference: &str, folder: &Path) -> String {
    format!("{operator} runs ({reference}){}", next(folder))
}

/// What one does next: applies the samples. In their folder is a list of them, which is for kustomize only.
fn next(folder: &Path) -> String {
    let samples = folder.join("config/samples");
    let here = std::env::current_dir().ok();
    let shown =
        here.as_deref().and_then(|here| samples.strip_prefix(here).ok()).unwrap_or(&samples).display();
    match (samples.join("kustomization.yaml").is_file(), samples.is_dir()) {
        (true, _) => format!(". Next: `kubectl apply -k {shown}`"),
        (false, true) => format!(". Next: `kubectl apply -f {shown}`"),
        (false, false) => String::new(),
    }
}

/// Says in a Deployment which build it is of: with another one its pods are replaced, and with the same one they are left
/// alone. What is in a registry may have changed since a node fetched it under this name.
fn name_build(deployment: &mut Value, build: &str, is_in_a_registry: bool) {
    let Some(template) = deployment.pointer_mut("/spec/template").and_then(Value::as_object_mut) else {
        return;
    };
    let metadata = template.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut()
        && let Some(annotations) = metadata.entry("annotations").or_insert_with(|| json!({})).as_object_mut()
    {
        annotations.insert(BUILD.to_owned(), build.into());
    }
    let containers = deployment.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    let containers = containers.into_iter().flatten().filter_map(Value::as_object_mut);
    for container in containers.filter(|_| is_in_a_registry) {
        container.insert("imagePullPolicy".to_owned(), "Always".into());
    }
}

/// The version in a package's `Cargo.toml`.
pub(crate) fn version_of(folder: &Path) -> Result<String> {
    let path = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("{} is damaged", path.display()))?;
    let version =
        table.get("package").and_then(|package| package.get("version")).and_then(toml::Value::as_str);
    Ok(version.context("Cargo.toml has no package.version")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(build: &str, is_in_a_registry: bool) -> Value {
        let mut deployment = json!({"spec": {"replicas": 2, "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "shop-operator"}},
            "spec": {"containers": [{"name": "operator", "image": "wheelhouse.dev/shop-operator:0.1.0"}]},
        }}});
        name_build(&mut deployment, build, is_in_a_registry);
        deployment
    }

    #[test]
    fn samples_are_applied_with_the_list_of_them_where_there_is_one() {
        let project = tempfile::tempdir().unwrap();
        let samples = project.path().join("config/samples");
        let said = || {
            let said = deployed("shop-operator", "wheelhouse.dev/shop-operator:0.1.0", project.path());
            said.replace(&project.path().display().to_string(), "HERE")
        };
        let runs = "shop-operator runs (wheelhouse.dev/shop-operator:0.1.0)";
        assert_eq!(said(), runs);
        std::fs::create_dir_all(&samples).unwrap();
        assert_eq!(said(), format!("{runs}. Next: `kubectl apply -f HERE/config/samples`"));
        std::fs::write(samples.join("kustomization.yaml"), "").unwrap();
        assert_eq!(said(), format!("{runs}. Next: `kubectl apply -k HERE/config/samples`"));
    }

    #[test]
    fn pods_are_replaced_for_another_build_under_the_same_name_and_for_nothing_else() {
        let first = deployment("shop-operator-0123456789ab", false);
        assert_ne!(first, deployment("shop-operator-ba9876543210", false));
        assert_eq!(first, deployment("shop-operator-0123456789ab", false));
        let named = &first["spec"]["template"]["metadata"]["annotations"][BUILD];
        assert_eq!(named, "shop-operator-0123456789ab");
        let labels = &first["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &json!({"app.kubernetes.io/name": "shop-operator"}));
    }

    #[test]
    fn what_is_in_a_registry_is_fetched_anew_and_what_is_in_the_nodes_is_not() {
        let policy = |is_in_a_registry| {
            deployment("x", is_in_a_registry)["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"]
                .clone()
        };
        assert_eq!((policy(true), policy(false)), (json!("Always"), Value::Null));
    }
}
