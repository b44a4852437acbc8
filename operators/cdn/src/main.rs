//! The program: `cdn-operator --help` says what it can do, and `cdn-operator agent --help`
//! what it does in the pods.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("agent") => cdn_operator::agent::main(std::env::args_os().skip(1)),
        _ => cdn_operator::manager().main(),
    }
}
