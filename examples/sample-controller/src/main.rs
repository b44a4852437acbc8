//! The program: `sample-controller-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    sample_controller_operator::manager().main()
}
