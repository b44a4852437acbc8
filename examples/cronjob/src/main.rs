//! The program: `cronjob-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    cronjob_operator::manager().main()
}
