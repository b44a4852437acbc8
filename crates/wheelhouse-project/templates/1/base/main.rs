//! The program: `{{ operator }} --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    {{ crate_name }}::manager().main()
}
