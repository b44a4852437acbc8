//! What an operator would do, did, and why: `plan`, `explain`, `record`, `replay` and `rbac check`.

mod fields;
mod looks;
mod rules;
mod running;
mod story;

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use wheelhouse_local::manifests::Manifest;
use wheelhouse_project::Project;

use crate::{operator_program::OperatorProgram, say, working::current_cluster};
use fields::{Line, Sign};
use running::RunningOperator;

/// Which operator is asked.
#[derive(Args)]
pub(crate) struct Whom {
    /// The operator's program [default: that of the project in this folder; elsewhere the operator that runs is asked]
    #[arg(long, value_name = "PROGRAM")]
    operator: Option<PathBuf>,
    /// Ask the operator that runs in the cluster, also in a project
    #[arg(long, conflicts_with = "operator")]
    running: bool,
}

/// How something is printed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What `plan` takes.
#[derive(Args)]
pub(crate) struct Plan {
    /// The resources, as YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    whom: Whom,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// End with the exit code 2 if something would change, and with 0 only if nothing would
    #[arg(long)]
    exit_code: bool,
}

/// What `explain` takes.
#[derive(Args)]
pub(crate) struct Explain {
    /// The kind, its plural or its short name
    kind: String,
    /// The resource's name
    name: String,
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

/// What `record` takes.
#[derive(Args)]
pub(crate) struct Record {
    /// The kind, or its plural
    kind: String,
    /// The resource's name
    name: String,
    /// Its namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Where it goes [default: to the terminal]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    whom: Whom,
}

/// What `replay` takes.
#[derive(Args)]
pub(crate) struct Replay {
    /// What `record` wrote
    file: PathBuf,
    /// The operator's program [default: that of the project in this folder]
    #[arg(long, value_name = "PROGRAM")]
    operator: Option<PathBuf>,
}

/// The verbs of `wheelhouse rbac`.
#[derive(Subcommand)]
pub(crate) enum Rbac {
    /// Compare what the operator may do in the cluster with what its code needs
    #[command(after_help = "\
Examples:
  wheelhouse rbac check
  wheelhouse rbac check --operator target/debug/gordon-operator

The exit code is 2 if something is missing or superfluous.")]
    Check {
        /// The operator's program [default: that of the project in this folder]
        #[arg(long, value_name = "PROGRAM")]
        operator: Option<PathBuf>,
        /// How it is printed
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
}

/// The program to ask, if one is at hand.
fn program(operator: Option<PathBuf>) -> Result<OperatorProgram> {
    match operator {
        Some(path) => Ok(OperatorProgram::Binary(path)),
        None => {
            let found = Project::find(&PathBuf::from("."));
            let (folder, _) =
                found.context("which operator? Say its program with --operator, or go into its project")?;
            Ok(OperatorProgram::Project(folder))
        }
    }
}

impl Whom {
    /// The program that is at hand; none if the operator that runs is to be asked.
    fn program(self) -> Option<OperatorProgram> {
        match (self.running, self.operator) {
            (true, _) => None,
            (false, Some(path)) => Some(OperatorProgram::Binary(path)),
            (false, None) => {
                Project::find(&PathBuf::from(".")).ok().map(|(folder, _)| OperatorProgram::Project(folder))
            }
        }
    }
}

/// Says what would be done about the resources in a file.
pub(crate) async fn plan(plan: Plan) -> Result<ExitCode> {
    let content = std::fs::read_to_string(&plan.file)
        .with_context(|| format!("cannot read {}", plan.file.display()))?;
    let client = current_cluster().await?;
    let printed = match plan.whom.program() {
        Some(program) => {
            let file = plan.file.to_string_lossy();
            program.prints(&["plan", "--json", "-f", &file]).await?
        }
        None => {
            let manifests = Manifest::read_all(&plan.file, &content)?;
            if manifests.is_empty() {
                bail!("{} has no resource", plan.file.display());
            }
            planned_by_who_runs(&client, &manifests).await?
        }
    };
    let looked: Vec<Value> =
        serde_json::from_str(&printed).context("what the operator answered is no plan")?;
    match plan.output {
        Output::Json => say(printed.trim_end())?,
        Output::Text => {
            for one in &looked {
                show_plan(&client, one).await?;
            }
        }
    }
    let would_change = looked.iter().any(|one| !list(one, "/would").is_empty());
    Ok(if plan.exit_code && would_change { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// What the operators that run would do about these resources, each about those in the namespaces that it looks after.
async fn planned_by_who_runs(client: &Client, manifests: &[Manifest]) -> Result<String> {
    let default = client.default_namespace();
    let mut asked: Vec<(String, Vec<Manifest>)> = Vec::new();
    for manifest in manifests {
        let namespace = manifest.object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.unwrap_or(default);
        match asked.iter_mut().find(|(known, _)| known == namespace) {
            Some((_, theirs)) => theirs.push(manifest.clone()),
            None => asked.push((namespace.to_owned(), vec![manifest.clone()])),
        }
    }
    let mut looked: Vec<Value> = Vec::new();
    for (namespace, theirs) in &asked {
        let Some(first) = theirs.first() else { continue };
        let operator = RunningOperator::of(client, first.kind(), namespace).await?;
        let file = operator.in_namespaces(theirs, default);
        let arguments: Vec<_> = ["plan", "--json", "-f", "-"].into_iter().chain(operator.scope()).collect();
        let printed = operator.prints(client, &arguments, Some(&file)).await?;
        let more: Vec<Value> =
            serde_json::from_str(&printed).context("what the operator answered is no plan")?;
        looked.extend(more);
    }
    Ok(serde_json::to_string_pretty(&looked)?)
}

async fn show_plan(client: &Client, looked: &Value) -> Result<()> {
    let paint = Paint::for_the_terminal();
    let key = looked.get("key").and_then(Value::as_str).unwrap_or_default();
    let namespace = key.split_once('/').map(|(namespace, _)| namespace);
    say(format_args!("{} {key}", text(looked, "/controller")))?;
    let would: Vec<_> = list(looked, "/would").iter().filter_map(Value::as_str).collect();
    let words = list(looked, "/words");
    let mut others = 0;
    for (number, planned) in list(looked, "/plan/steps").iter().enumerate() {
        let Some((what, step)) =
            planned.get("step").and_then(Value::as_object).and_then(|step| step.iter().next())
        else {
            continue;
        };
        let lines = match what.as_str() {
            "apply" | "applyForeign" | "create" => object_lines(client, step, namespace).await?,
            "delete" | "evict" => vec![Line::object(Sign::Removed, &reference(step.get("target")))],
            "update" => {
                let mut lines = vec![Line::object(Sign::Changed, &reference(step.get("target")))];
                lines.extend(fields::mentioned(step.get("fields").unwrap_or(&Value::Null)));
                lines
            }
            other => match words.get(number).and_then(Value::as_str) {
                Some(words) if !would.contains(&words) => Vec::new(),
                Some(words) => vec![Line::object(Sign::Action, words)],
                None => vec![Line::action(other, step)],
            },
        };
        if lines.is_empty() {
            others += 1;
            continue;
        }
        for line in lines {
            say(paint.line(&line))?;
        }
        say(format_args!("      because {}", text(planned, "/because")))?;
    }
    if let Some(status) = looked.pointer("/plan/status") {
        let before = status_before(looked).unwrap_or(&Value::Null);
        let changed = fields::difference(status, before);
        if !changed.is_empty() {
            say(paint.line(&Line::heading("status")))?;
            for line in changed {
                say(paint.line(&line))?;
            }
        }
    }
    for event in list(looked, "/plan/events") {
        say(format_args!(
            "  event {} {}: {}",
            text(event, "/kind"),
            text(event, "/reason"),
            text(event, "/note")
        ))?;
    }
    if others > 0 {
        say(format_args!("  and {others} more that are as they are to be"))?;
    }
    match would.is_empty() {
        true => say("  nothing would change"),
        false => say(format_args!("  would {}", would.join(", "))),
    }
}

/// The status of the resource that was looked at: whatever its observation calls it, it is of that name and of a kind.
fn status_before(looked: &Value) -> Option<&Value> {
    let name = text(looked, "/key").rsplit('/').next()?;
    let fields = looked.get("observation")?.as_object()?;
    let resource = fields.values().find(|value| {
        value.get("apiVersion").is_some()
            && value.get("kind").is_some()
            && text(value, "/metadata/name") == name
    });
    resource?.get("status")
}

/// An object that is to be so, beside the one that is there; nothing if it is so.
async fn object_lines(client: &Client, step: &Value, namespace: Option<&str>) -> Result<Vec<Line>> {
    let kind = GroupVersionKind::gvk(
        text(step, "/kind/group"),
        text(step, "/kind/version"),
        text(step, "/kind/kind"),
    );
    let resource = ApiResource::from_gvk_with_plural(&kind, text(step, "/kind/plural"));
    let content = step.get("content").cloned().unwrap_or_default();
    let name = text(&content, "/metadata/name").to_owned();
    let namespace = content.pointer("/metadata/namespace").and_then(Value::as_str).or(namespace);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let there = api.get_opt(&name).await.ok().flatten().and_then(|object| serde_json::to_value(object).ok());
    let title = format!("{} {name}", kind.kind);
    Ok(match there {
        None => {
            let mut lines = vec![Line::object(Sign::Added, &title)];
            lines.extend(fields::in_short(fields::mentioned(&content)));
            lines
        }
        Some(there) => {
            let mut lines = fields::difference(&content, &there);
            if !lines.is_empty() {
                lines.insert(0, Line::object(Sign::Changed, &title));
            }
            lines
        }
    })
}

fn reference(target: Option<&Value>) -> String {
    let target = target.unwrap_or(&Value::Null);
    format!("{} {}", text(target, "/kind/kind"), text(target, "/name"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Colours, where somebody looks at them.
struct Paint {
    is_wanted: bool,
}

impl Paint {
    fn for_the_terminal() -> Self {
        let is_wanted = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { is_wanted }
    }

    fn line(&self, line: &Line) -> String {
        let code = match line.sign {
            _ if !self.is_wanted => return line.text(),
            Sign::Added => "32",
            Sign::Changed => "33",
            Sign::Removed => "31",
            Sign::Action => "36",
            Sign::None => return line.text(),
        };
        format!("\x1b[{code}m{}\x1b[0m", line.text())
    }
}

/// Says what was seen and decided about a resource lately, and what it waits for.
pub(crate) async fn explain(explain: Explain) -> Result<()> {
    let client = current_cluster().await?;
    let namespace = explain.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let operator = RunningOperator::of(&client, &explain.kind, &namespace).await?;
    let resource = format!("{}/{}", operator.kind, explain.name);
    let arguments = ["decisions", &resource, "-n", &namespace, "--url", "http://127.0.0.1:8080", "--json"];
    let printed = operator.prints(&client, &arguments, None).await?;
    if explain.output == Output::Json {
        return say(printed.trim_end());
    }
    let decisions: Vec<Value> =
        serde_json::from_str(&printed).context("what the operator answered are no decisions")?;
    say(format_args!("{resource} in {namespace}, looked after by {}", operator.name))?;
    for line in story::told(&decisions) {
        say(line)?;
    }
    if decisions.is_empty() {
        say("no decisions yet")?;
    }
    let object = operator.resource(&client, &explain.name, &namespace).await?;
    for line in story::waiting(&object, Timestamp::now()) {
        say(line)?;
    }
    Ok(())
}

/// Writes down what is seen and decided about a resource now.
pub(crate) async fn record(record: Record) -> Result<()> {
    let client = current_cluster().await?;
    let namespace = record.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let arguments = |kind: &str| [format!("{kind}/{}", record.name), "-n".to_owned(), namespace.clone()];
    let printed = match record.whom.program() {
        Some(program) => {
            let [resource, flag, namespace] = arguments(&record.kind);
            program.prints(&["record", &resource, &flag, &namespace]).await?
        }
        None => {
            let operator = RunningOperator::of(&client, &record.kind, &namespace).await?;
            let [resource, flag, namespace] = arguments(&operator.kind);
            let arguments: Vec<_> = ["record", resource.as_str(), &flag, &namespace]
                .into_iter()
                .chain(operator.scope())
                .collect();
            operator.prints(&client, &arguments, None).await?
        }
    };
    match record.output {
        None => say(printed.trim_end()),
        Some(path) => {
            std::fs::write(&path, printed).with_context(|| format!("cannot write {}", path.display()))?;
            say(format_args!(
                "wrote {}: `wheelhouse replay {}` decides again",
                path.display(),
                path.display()
            ))
        }
    }
}

/// Decides again on what was recorded.
pub(crate) async fn replay(replay: Replay) -> Result<()> {
    let file = replay.file.to_string_lossy();
    let printed = program(replay.operator)?.prints(&["replay", &file]).await?;
    say(printed.trim_end())
}

/// Compares what the operator may do with what it needs.
pub(crate) async fn rbac(verb: Rbac) -> Result<ExitCode> {
    let Rbac::Check { operator, output } = verb;
    let program = program(operator)?;
    let client = current_cluster().await?;
    let differences = rules::check(&client, &program).await?;
    match output {
        Output::Json => say(serde_json::to_string_pretty(&differences)?)?,
        Output::Text if differences.is_empty() => {
            say("the operator may do what its code needs, and nothing else")?;
        }
        Output::Text => differences.iter().try_for_each(say)?,
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
