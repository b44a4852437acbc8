//! The `wheelhouse` command: every verb is a library call.

mod demo;
mod image;
mod local;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Write, run and look after Kubernetes operators.
#[derive(Parser)]
#[command(name = "wheelhouse", version, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Real upstream Kubernetes on this machine
    #[command(subcommand)]
    Local(local::Verb),
    /// Container images without Docker
    #[command(subcommand)]
    Image(image::Verb),
    /// Everything of this tree, running
    #[command(subcommand)]
    Demo(demo::Verb),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Command::parse().verb {
        Verb::Local(verb) => local::run(verb).await,
        Verb::Demo(verb) => demo::run(verb).await.map(|()| ExitCode::SUCCESS),
        Verb::Image(verb) => image::run(verb).await.map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
