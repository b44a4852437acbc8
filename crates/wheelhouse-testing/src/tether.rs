//! Starts programs that end when this process does, in whatever way.
//!
//! The parent-death signal comes when the *thread* that started a child ends,
//! not when its process does, and the threads of tests and of their runtimes
//! come and go. So one thread starts them all, and lives as long as this process.

use std::{
    io,
    path::Path,
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

type Order = (Command, mpsc::Sender<io::Result<Child>>);

static SPAWNER: LazyLock<mpsc::Sender<Order>> = LazyLock::new(|| {
    let (orders, incoming) = mpsc::channel::<Order>();
    // If the thread cannot be made, `incoming` is dropped and every order fails.
    let _ = thread::Builder::new().name("wheelhouse-spawner".to_owned()).spawn(move || {
        for (mut command, reply) in incoming {
            let _ = reply.send(command.spawn());
        }
    });
    orders
});

/// Starts a program that the kernel kills when this process ends, in whatever way; `prepare` adds
/// arguments, environment and files. The child is the program itself, by its pid.
///
/// It needs `setpriv` (of util-linux) and `sh`.
pub fn spawn_tethered(program: &Path, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
    let mut command = tethered(std::process::id(), program);
    prepare(&mut command);
    let (reply, started) = mpsc::channel();
    let no_thread = || io::Error::other("the thread that starts processes could not be made");
    SPAWNER.send((command, reply)).map_err(|_| no_thread())?;
    started.recv().map_err(|_| no_thread())?
}

/// The parent's pid is looked at after its end was arranged to be the program's: should it have ended
/// just before, the program has another parent by now and does not even begin.
fn tethered(parent: u32, program: &Path) -> Command {
    let unless_orphaned = r#"[ "$PPID" = "$0" ] || exit 1; exec "$@""#;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", unless_orphaned]);
    command.arg(parent.to_string()).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_parent_ended_before_it_began_does_not_begin() {
        let run = |parent| tethered(parent, Path::new("true")).status().unwrap().success();
        assert!(run(std::process::id()));
        assert!(!run(1));
    }
}
