//! What an operator would do, did, and why: `plan`, `explain`, `record`, `replay` and `rbac check`.

mod fields;
mod lines;
mod looks;
mod owned;
mod planned;
mod replayed;
mod rules;
mod running;
mod story;
mod whom;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use wheelhouse_local::manifests::Manifest;

use crate::{current_cluster, ended, say};
use lines::Paint;
use replayed::Replayed;
use running::{Kinds, RunningOperator};
use whom::{Here, Whom};

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
    /// The resources, as YAML or JSON; `-` for what is piped in
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    whom: Whom,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// End with the exit code 3 if something would change, and with 0 only if nothing would
    #[arg(long)]
    exit_code: bool,
}

/// What `explain` takes.
#[derive(Args)]
pub(crate) struct Explain {
    /// The kind, its plural or its short name; with its group, as in pages.app.example.com, if there are several
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
    /// The file that it goes into, as JSON [default: to the terminal]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    whom: Whom,
}

/// What `replay` takes.
#[derive(Args)]
pub(crate) struct Replay {
    /// What `record` wrote
    file: PathBuf,
    #[command(flatten)]
    here: Here,
    /// How it is printed
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

/// The verbs of `wheelhouse rbac`.
#[derive(Subcommand)]
pub(crate) enum Rbac {
    /// Compare what the operator may do in the cluster with what its code needs
    #[command(after_help = "\
Examples:
  wheelhouse rbac check
  wheelhouse rbac check --operator target/debug/gordon-operator

Looked at are its roles, what binds them, and what else binds its ServiceAccount by name; not
what everybody in a group may do. The exit code is 3 if something is missing or superfluous.")]
    Check {
        #[command(flatten)]
        here: Here,
        /// How it is printed
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
}

/// What an operator would do about a resource, and which operator that is.
struct Looked {
    operator: String,
    answer: Value,
}

impl Looked {
    /// All that an operator printed.
    fn all(operator: &str, printed: &str) -> Result<Vec<Self>> {
        let answers: Vec<Value> =
            serde_json::from_str(printed).context("what the operator answered is no plan")?;
        Ok(answers.into_iter().map(|answer| Self { operator: operator.to_owned(), answer }).collect())
    }
}

/// Says what would be done about the resources in a file.
pub(crate) async fn plan(plan: Plan) -> Result<ExitCode> {
    let program = plan.whom.program()?;
    // What is piped in can be read once, and the operator's program reads it itself.
    let content = match &program {
        Some(_) if whom::is_piped_in(&plan.file) => String::new(),
        _ => read(&plan.file)?,
    };
    let client = current_cluster::client().await?;
    let (printed, looked) = match &program {
        Some(program) => {
            let printed = whom::printed_about(program, &plan.file).await?;
            // Only who reads it in words is told of owners, and so of names.
            let name = match plan.output {
                Output::Json => String::new(),
                Output::Text => whom::name_of(program).await?,
            };
            let looked = Looked::all(&name, &printed)?;
            (printed, looked)
        }
        None => {
            let manifests = Manifest::read_all(&plan.file, &content)?;
            if manifests.is_empty() {
                bail!("{} has no resource", whom::called(&plan.file));
            }
            let looked = planned_by_who_runs(&client, &manifests).await?;
            let answers: Vec<_> = looked.iter().map(|one| &one.answer).collect();
            (serde_json::to_string_pretty(&answers)?, looked)
        }
    };
    match plan.output {
        Output::Json => say(printed.trim_end())?,
        Output::Text => {
            let paint = Paint::for_the_terminal();
            for Looked { operator, answer } in &looked {
                // First all that has to be read: half a plan looks like a whole one.
                let lines = planned::shown(&client, operator, answer).await?;
                say(format_args!("{} {}", text(answer, "/controller"), text(answer, "/key")))?;
                lines.iter().try_for_each(|line| say(paint.line(line)))?;
            }
        }
    }
    let would_change = looked.iter().any(|one| !list(&one.answer, "/would").is_empty());
    Ok(ended(!(plan.exit_code && would_change)))
}

/// The text of a file, or what is piped in.
fn read(file: &Path) -> Result<String> {
    let read = match whom::is_piped_in(file) {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    read.with_context(|| format!("cannot read {}", whom::called(file)))
}

/// What the operators that run would do about these resources, each about its own.
async fn planned_by_who_runs(client: &Client, manifests: &[Manifest]) -> Result<Vec<Looked>> {
    let kinds = Kinds::of(client).await?;
    let mut looked = Vec::new();
    for question in kinds.questions(manifests, client.default_namespace())? {
        let operator = RunningOperator::of(client, question.kind, question.namespace.as_deref()).await?;
        let arguments: Vec<_> = ["plan", "--json", "-f", "-"].into_iter().chain(operator.scope()).collect();
        let printed = operator.prints(client, &arguments, Some(&question.text())).await?;
        looked.extend(Looked::all(&operator.name, &printed)?);
    }
    Ok(looked)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Says what was seen and decided about a resource lately, and what it waits for.
pub(crate) async fn explain(explain: Explain) -> Result<()> {
    let client = current_cluster::client().await?;
    let namespace = explain.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let kinds = Kinds::of(&client).await?;
    let operator = RunningOperator::of(&client, kinds.called(&explain.kind)?, Some(&namespace)).await?;
    // Of what is not there, an operator knows no decision either, and that reads as if it had made none yet.
    let object = operator.resource(&client, &explain.name, &namespace).await?;
    let resource = format!("{}/{}", operator.kind, explain.name);
    let arguments = ["decisions", &resource, "-n", &namespace, "--url", "http://127.0.0.1:8080", "--json"];
    let printed = operator.prints(&client, &arguments, None).await?;
    if explain.output == Output::Json {
        return say(printed.trim_end());
    }
    let decisions: Vec<Value> =
        serde_json::from_str(&printed).context("what the operator answered are no decisions")?;
    let place = operator.place(&namespace).map_or_else(String::new, |namespace| format!(" in {namespace}"));
    say(format_args!("{resource}{place}, looked after by {}", operator.name))?;
    explained(&decisions, &object, Timestamp::now()).iter().try_for_each(say)
}

/// What was decided about a resource, and what it waits for.
fn explained(decisions: &[Value], object: &Value, now: Timestamp) -> Vec<String> {
    let mut lines = story::told(decisions);
    if decisions.is_empty() {
        lines.push("no decisions yet".to_owned());
    }
    lines.extend(story::waiting(object, now));
    lines
}

/// Writes down what is seen and decided about a resource now.
pub(crate) async fn record(record: Record) -> Result<()> {
    let program = record.whom.program()?;
    let client = current_cluster::client().await?;
    let namespace = record.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let arguments = |kind: &str| [format!("{kind}/{}", record.name), "-n".to_owned(), namespace.clone()];
    let printed = match program {
        Some(program) => {
            let [resource, flag, namespace] = arguments(&record.kind);
            program.prints(&["record", &resource, &flag, &namespace]).await?
        }
        None => {
            let kinds = Kinds::of(&client).await?;
            let operator =
                RunningOperator::of(&client, kinds.called(&record.kind)?, Some(&namespace)).await?;
            let [resource, flag, namespace] = arguments(&operator.kind);
            let arguments: Vec<_> = ["record", resource.as_str(), &flag, &namespace]
                .into_iter()
                .chain(operator.scope())
                .collect();
            operator.prints(&client, &arguments, None).await?
        }
    };
    match record.file {
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
pub(crate) async fn replay(replay: Replay) -> Result<ExitCode> {
    let replayed = Replayed::by(&replay.here.program()?, &replay.file).await?;
    match replay.output {
        Output::Text => say(&replayed)?,
        Output::Json => say(serde_json::to_string_pretty(&replayed)?)?,
    }
    Ok(ended(replayed.differences.is_empty()))
}

/// Compares what the operator may do with what it needs.
pub(crate) async fn rbac(verb: Rbac) -> Result<ExitCode> {
    let Rbac::Check { here, output } = verb;
    let program = here.program()?;
    let client = current_cluster::client().await?;
    let differences = rules::check(&client, &program).await?;
    match output {
        Output::Json => say(serde_json::to_string_pretty(&differences)?)?,
        Output::Text if differences.is_empty() => {
            say("the operator may do what its code needs, and nothing else")?;
        }
        Output::Text => differences.iter().try_for_each(say)?,
    }
    Ok(ended(differences.is_empty()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_about_which_nothing_was_decided_may_wait_all_the_same() {
        let since = "2026-01-02T03:04:05Z";
        let condition = json!({"type": "Ready", "status": "False", "reason": "Deploying", "message": "0 of 1 pods are ready",
            "lastTransitionTime": since});
        let object = json!({"metadata": {"name": "one"}, "status": {"conditions": [condition]}});
        let now: Timestamp = "2026-01-02T03:05:05Z".parse().unwrap();
        insta::assert_snapshot!(explained(&[], &object, now).join("\n"), @r"
        no decisions yet
        Ready is False, for 1m0s already: 0 of 1 pods are ready (Deploying)
        ");
    }
}
