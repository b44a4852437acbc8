//! The `wheelhouse` command: every verb is a library call.

mod chaos;
mod current_cluster;
mod demo;
mod explaining;
mod image;
mod local;
mod operator_program;
mod project;
mod working;

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use nix::sys::stat::{Mode, umask};
use wheelhouse_local::progress::tell;

/// Write, run and look after Kubernetes operators.
#[derive(Parser)]
#[command(name = "wheelhouse", version, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a project for an operator
    #[command(after_help = "\
Examples:
  wheelhouse init --domain example.com                  in this folder, called as the folder is
  wheelhouse init shop --domain example.com --name shop
  wheelhouse init --domain example.com --sdk https://git.example.com/wheelhouse.git#COMMIT")]
    Init(project::Init),
    /// Add a kind or a webhook to a project
    #[command(
        subcommand,
        after_help = "\
Examples:
  wheelhouse create api --group app --version v1 --kind Page
  wheelhouse create webhook --kind Page --validating"
    )]
    Create(project::Create),
    /// Write config/ and deploy/ from the code, or check that they are what it says
    #[command(after_help = "\
Examples:
  wheelhouse manifests
  wheelhouse manifests --check                          for CI: ends with 3 if they are out of date")]
    Manifests(project::Manifests),
    /// Register a project's kinds in the current cluster, and nothing else
    #[command(after_help = "Example:\n  wheelhouse install && kubectl get crds")]
    Install(working::Which),
    /// Run a project's operator from here, against the current cluster
    #[command(after_help = "\
Examples:
  wheelhouse run
  wheelhouse run --watch                                start it anew whenever the sources change
  wheelhouse run -- --namespace team-a --log-level debug")]
    Run(working::Run),
    /// Run a project's tests, against a real API server
    #[command(after_help = "Examples:\n  wheelhouse test\n  wheelhouse test -- --test api_server")]
    Test(working::Test),
    /// Build a project's image, and install the operator into the current cluster
    #[command(after_help = "\
Examples:
  wheelhouse deploy                                     into a local cluster
  wheelhouse deploy --registry registry.example.com/team
  sudo env \"PATH=$PATH\" wheelhouse deploy             for who is not root: cargo runs as themselves

It needs root and buildah, which makes the image.")]
    Deploy(working::Deploy),
    /// Take a project's operator out of the current cluster
    #[command(after_help = "\
Examples:
  wheelhouse undeploy
  wheelhouse undeploy --keep-crds                       the kinds stay, and all resources with them")]
    Undeploy {
        #[command(flatten)]
        which: working::Which,
        /// Leave the kinds, and so all resources, where they are
        #[arg(long)]
        keep_crds: bool,
    },
    /// Say what an operator would do about the resources in a file, and do nothing
    #[command(after_help = "\
Examples:
  wheelhouse plan -f resource.yaml                      asks the project's operator, or the one that runs
  wheelhouse plan -f resource.yaml --running --output json
  wheelhouse plan -f resource.yaml --exit-code          for scripts: 3 if something would change")]
    Plan(explaining::Plan),
    /// Say what an operator saw and decided about a resource lately, and what it waits for
    #[command(after_help = "\
Examples:
  wheelhouse explain etcd example-etcd-cluster
  wheelhouse explain cdncluster balancer -n media --output json")]
    Explain(explaining::Explain),
    /// Write down what an operator sees and decides about a resource now
    #[command(
        after_help = "Example:\n  wheelhouse record gordon gordoncluster -f tests/recorded/incident.json"
    )]
    Record(explaining::Record),
    /// Decide again on what was recorded, and say where the plan differs
    #[command(after_help = "\
Examples:
  wheelhouse replay tests/recorded/incident.json
  wheelhouse replay tests/recorded/incident.json --output json

The exit code is 3 if the plan is another one.")]
    Replay(explaining::Replay),
    /// What an operator may do
    #[command(subcommand, after_help = "Example:\n  wheelhouse rbac check")]
    Rbac(explaining::Rbac),
    /// Look after a project
    #[command(subcommand, after_help = "Example:\n  wheelhouse project upgrade && git diff")]
    Project(project::ProjectVerb),
    /// Print what a shell needs to complete this command's words
    #[command(after_help = "Example:\n  wheelhouse completions bash > /etc/bash_completion.d/wheelhouse")]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Real upstream Kubernetes on this machine
    #[command(
        subcommand,
        after_help = "\
Examples:
  wheelhouse local up dev --nodes 3
  wheelhouse local kubectl get nodes
  wheelhouse local down dev"
    )]
    Local(local::Verb),
    /// Container images without Docker
    #[command(subcommand, after_help = "Example:\n  wheelhouse image build nginx")]
    Image(image::Verb),
    /// Kill, stop and cut off what runs in a local cluster, from a seed, and heal it all
    Chaos(chaos::Chaos),
    /// Everything of this tree, running
    #[command(
        subcommand,
        after_help = "\
Examples:
  wheelhouse demo up
  wheelhouse demo down"
    )]
    Demo(demo::Verb),
}

#[tokio::main]
async fn main() -> ExitCode {
    // What is secret says so itself; what is not, containers of other users must be able to read.
    umask(Mode::from_bits_truncate(0o022));
    let done = |()| ExitCode::SUCCESS;
    let outcome = match Command::parse().verb {
        Verb::Init(init) => project::init(init),
        Verb::Create(verb) => project::create(verb),
        Verb::Manifests(settings) => project::manifests(settings).await,
        Verb::Install(which) => working::install(which).await.map(done),
        Verb::Run(run) => working::run(run).await,
        Verb::Test(test) => working::test(test).await,
        Verb::Deploy(deploy) => working::deploy(deploy).await.map(done),
        Verb::Undeploy { which, keep_crds } => working::undeploy(which, keep_crds).await.map(done),
        Verb::Plan(plan) => explaining::plan(plan).await,
        Verb::Explain(explain) => explaining::explain(explain).await.map(done),
        Verb::Record(record) => explaining::record(record).await.map(done),
        Verb::Replay(replay) => explaining::replay(replay).await,
        Verb::Rbac(verb) => explaining::rbac(verb).await,
        Verb::Project(verb) => project::project(verb),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Command::command(), "wheelhouse", &mut script);
            say(String::from_utf8_lossy(&script).trim_end()).map(done)
        }
        Verb::Local(verb) => local::run(verb).await,
        Verb::Chaos(chaos) => chaos::run(chaos).await.map(done),
        Verb::Demo(verb) => demo::run(verb).await.map(done),
        Verb::Image(verb) => image::run(verb).await.map(done),
    };
    outcome.unwrap_or_else(|error| {
        tell(format_args!("error: {}", sentence(&error)));
        ExitCode::FAILURE
    })
}

/// How a verb ends that did what it was asked for: whoever asked whether something differs, or is to look at something, is
/// told so by a code of its own. 1 is for what could not be done, 2 for wrong words.
fn ended(is_all_as_it_should_be: bool) -> ExitCode {
    if is_all_as_it_should_be { ExitCode::SUCCESS } else { ExitCode::from(3) }
}

/// What went wrong and why; a cause that a message already tells is not told again.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |told, cause| {
        let cause = cause.to_string();
        if told.contains(&cause) { told } else { format!("{told}: {cause}") }
    })
}

/// Whether whoever was reading has enough.
fn nobody_reads(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Prints a line. Whoever reads may have enough of it, as `head` does: what is being done goes on all the same, and ends
/// with the code that it has without a reader, too.
fn say(line: impl Display) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if nobody_reads(&error) => Ok(()),
        said => said.context("cannot print"),
    }
}
