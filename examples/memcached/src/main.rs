//! The program: `memcached-operator --help` says what it can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    memcached_operator::manager().main()
}
