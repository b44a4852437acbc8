//! Starts processes from a thread that lives as long as this process.
//!
//! The parent-death signal comes when the *thread* that started a child ends,
//! not when its process does, and the threads of tests and of their runtimes
//! come and go.

use std::{
    io,
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

/// Starts `command` as a child of the thread that never ends.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (reply, started) = mpsc::channel();
    let no_thread = || io::Error::other("the thread that starts processes could not be made");
    SPAWNER.send((command, reply)).map_err(|_| no_thread())?;
    started.recv().map_err(|_| no_thread())?
}
