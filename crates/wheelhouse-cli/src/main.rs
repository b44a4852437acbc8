//! The `wheelhouse` command: every verb is a library call.

mod chaos;
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
    #[command(subcommand)]
    Create(project::Create),
    /// Write config/ and deploy/ from the code, or check that they are what it says
    #[command(after_help = "\
Examples:
  wheelhouse manifests
  wheelhouse manifests --check                          for CI: fails if they are out of date")]
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
  wheelhouse deploy --registry registry.example.com/team")]
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
  wheelhouse plan -f resource.yaml --exit-code          for scripts: 2 if something would change")]
    Plan(explaining::Plan),
    /// Say what an operator saw and decided about a resource lately, and what it waits for
    #[command(after_help = "\
Examples:
  wheelhouse explain etcd example-etcd-cluster
  wheelhouse explain cdncluster balancer -n media --output json")]
    Explain(explaining::Explain),
    /// Write down what an operator sees and decides about a resource now
    #[command(
        after_help = "Example:\n  wheelhouse record gordon gordoncluster -o tests/recorded/incident.json"
    )]
    Record(explaining::Record),
    /// Decide again on what was recorded, and say where the plan differs
    #[command(after_help = "Example:\n  wheelhouse replay tests/recorded/incident.json")]
    Replay(explaining::Replay),
    /// What an operator may do
    #[command(subcommand)]
    Rbac(explaining::Rbac),
    /// Look after a project
    #[command(subcommand)]
    Project(project::ProjectVerb),
    /// Print what a shell needs to complete this command's words
    #[command(after_help = "Example:\n  wheelhouse completions bash > /etc/bash_completion.d/wheelhouse")]
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Real upstream Kubernetes on this machine
    #[command(subcommand)]
    Local(local::Verb),
    /// Container images without Docker
    #[command(subcommand)]
    Image(image::Verb),
    /// Kill, stop and cut off what runs in a local cluster, from a seed, and heal it all
    Chaos(chaos::Chaos),
    /// Everything of this tree, running
    #[command(subcommand)]
    Demo(demo::Verb),
}

#[tokio::main]
async fn main() -> ExitCode {
    // What is secret says so itself; what is not, containers of other users must be able to read.
    umask(Mode::from_bits_truncate(0o022));
    let done = |()| ExitCode::SUCCESS;
    let outcome = match Command::parse().verb {
        Verb::Init(init) => project::init(init).map(done),
        Verb::Create(verb) => project::create(verb).map(done),
        Verb::Manifests(settings) => project::manifests(settings).await.map(done),
        Verb::Install(which) => working::install(which).await.map(done),
        Verb::Run(run) => working::run(run).await,
        Verb::Test(test) => working::test(test).await,
        Verb::Deploy(deploy) => working::deploy(deploy).await.map(done),
        Verb::Undeploy { which, keep_crds } => working::undeploy(which, keep_crds).await.map(done),
        Verb::Plan(plan) => explaining::plan(plan).await,
        Verb::Explain(explain) => explaining::explain(explain).await.map(done),
        Verb::Record(record) => explaining::record(record).await.map(done),
        Verb::Replay(replay) => explaining::replay(replay).await.map(done),
        Verb::Rbac(verb) => explaining::rbac(verb).await,
        Verb::Project(verb) => project::project(verb)
            .map(|is_clean| if is_clean { ExitCode::SUCCESS } else { ExitCode::from(2) }),
        Verb::Completions { shell } => {
            let mut command = Command::command();
            clap_complete::generate(shell, &mut command, "wheelhouse", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Local(verb) => local::run(verb).await,
        Verb::Chaos(chaos) => chaos::run(chaos).await.map(done),
        Verb::Demo(verb) => demo::run(verb).await.map(done),
        Verb::Image(verb) => image::run(verb).await.map(done),
    };
    outcome.unwrap_or_else(|error| {
        // Whoever reads our output has enough of it, as `head` does.
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        tell(format_args!("error: {}", sentence(&error)));
        ExitCode::FAILURE
    })
}

/// What went wrong and why; a cause that a message already tells is not told again.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |told, cause| {
        let cause = cause.to_string();
        if told.contains(&cause) { told } else { format!("{told}: {cause}") }
    })
}

/// Prints a line, without the panic that `println!` ends in when nobody reads it.
fn say(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
