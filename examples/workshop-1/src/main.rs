//! The program: `workshop-1-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    workshop_1_operator::manager().main()
}
