//! The program: `workshop-3-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    workshop_3_operator::manager().main()
}
