//! The program: `crontab-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    crontab_operator::manager().main()
}
