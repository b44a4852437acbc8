//! The `wheelhouse` command: every verb is a library call.

mod chaos;
mod demo;
mod image;
mod local;

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
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
    let outcome = match Command::parse().verb {
        Verb::Local(verb) => local::run(verb).await,
        Verb::Chaos(chaos) => chaos::run(chaos).await.map(|()| ExitCode::SUCCESS),
        Verb::Demo(verb) => demo::run(verb).await.map(|()| ExitCode::SUCCESS),
        Verb::Image(verb) => image::run(verb).await.map(|()| ExitCode::SUCCESS),
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
