//! The program: `gordon-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    gordon_operator::manager().main()
}
