//! The program: `workshop-2-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    workshop_2_operator::manager().main()
}
