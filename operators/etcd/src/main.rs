//! The program: `etcd-operator --help` says what it can do, and `etcd-operator supervisor --help` and
//! `etcd-operator backup --help` what it does in the pods.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("supervisor") => etcd_operator::supervisor::main(std::env::args_os().skip(1)),
        Some("backup") => etcd_operator::backup::main(std::env::args_os().skip(1)),
        _ => etcd_operator::manager(etcd_operator::Scope::from_arguments()).main(),
    }
}
