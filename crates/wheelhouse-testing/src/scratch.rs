//! The folder of one control plane, which goes away with whoever made it.
//!
//! Three things see to that, each for the case that the one before it does not
//! cover:
//! - dropping it;
//! - a guardian, when this process ends without dropping it, SIGKILL included:
//!   a shell that waits for the end of a pipe that only this process holds;
//! - a sweep by the next one who makes such a folder, when the guardian was
//!   killed too.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::geteuid,
};

use crate::error::{Error, Result};

const PREFIX: &str = "wheelhouse-testing-";

/// Held by the owner for as long as it lives; the kernel lets go of it.
const LOCK: &str = "lock";

/// A folder without a lock this young may be just about to get it.
const YOUNG: Duration = Duration::from_secs(60);

/// Collects the pids of the servers, one a line; at the end of the pipe waits
/// until they are gone, which the kernel sees to, and removes the folder.
///
/// `exe` tells the living from zombies, which a container without a proper
/// init keeps for ever; the wait is bounded since a pid can be given anew.
const GUARDIAN: &str = r#"
trap '' HUP INT TERM
while read -r pid; do set -- "$@" "$pid"; done
tries=0
for pid; do
    while [ -e "/proc/$pid/exe" ] && [ "$tries" -lt 100 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
done
rm -rf -- "$0"
"#;

/// A temporary folder with a guardian.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    guardian: Child,
    _lock: Flock<File>,
}

impl Scratch {
    /// Makes one under the system's folder for temporary files.
    pub(crate) fn create() -> Result<Self> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        loop {
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(&parent)
                .map_err(Error::file("make a temporary folder in", &parent))?;
            let path = folder.path().join(LOCK);
            let file = File::create(&path).map_err(Error::file("create", &path))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) if path.exists() => {
                    let guardian = guardian(folder.path())?;
                    return Ok(Self { path: folder.keep(), guardian, _lock: lock });
                }
                // Somebody's sweep came between the two lines above, or is at it.
                Ok(_) | Err((_, nix::errno::Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(Error::file("lock", &path)(errno.into())),
            }
        }
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder is to stay until this process is gone.
    pub(crate) fn outlives(&mut self, pid: u32) -> Result<()> {
        match &mut self.guardian.stdin {
            Some(pipe) => writeln!(pipe, "{pid}").map_err(Error::file("tell the guardian of", &self.path)),
            None => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The end of the pipe is the guardian's cue.
        self.guardian.stdin = None;
        let _ = self.guardian.wait();
    }
}

fn guardian(folder: &Path) -> Result<Child> {
    Command::new("sh")
        .args(["-c", GUARDIAN])
        .arg(folder)
        .current_dir("/")
        .stdin(Stdio::piped())
        // Whoever waits for the end of a test's output is not to wait for the guardian.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C and test runners end whole process groups.
        .process_group(0)
        .spawn()
        .map_err(|source| Error::Start { program: "sh", source })
}

/// Removes the folders whose owners are dead. What cannot be removed is left to
/// the next sweep: it is somebody else's, or being removed already.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Another user's folder is theirs to sweep, and may hold anything.
        let ours =
            entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw());
        if named && ours {
            sweep_one(&entry.path());
        }
    }
}

fn sweep_one(folder: &Path) {
    match File::open(folder.join(LOCK)) {
        Ok(file) => {
            // Held while removing, so that a folder that is just being made is given up by its maker.
            if let Ok(_abandoned) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                let _ = fs::remove_dir_all(folder);
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound && !is_young(folder) => {
            let _ = fs::remove_dir_all(folder);
        }
        Err(_) => {}
    }
}

fn is_young(folder: &Path) -> bool {
    let age = fs::metadata(folder).and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
    // A time in the future is a clock that was set back: not known to be old.
    !matches!(age, Ok(Ok(age)) if age > YOUNG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_away_when_it_is_dropped() {
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_stays_until_the_processes_in_it_are_gone() {
        let mut scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        let mut server = Command::new("sleep").arg("60").spawn().unwrap();
        scratch.outlives(server.id()).unwrap();
        let dropped = std::thread::spawn(move || drop(scratch));
        std::thread::sleep(Duration::from_millis(300));
        assert!(path.exists());
        server.kill().unwrap();
        server.wait().unwrap();
        dropped.join().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_sweep_takes_what_the_dead_left_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let dead = folder("wheelhouse-testing-dead");
        File::create(dead.join(LOCK)).unwrap();
        let alive = folder("wheelhouse-testing-alive");
        let lock = File::create(alive.join(LOCK)).unwrap();
        let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
        let being_made = folder("wheelhouse-testing-young");
        let foreign = folder("something-else");
        sweep(parent.path());
        assert!(!dead.exists());
        assert!(alive.exists() && being_made.exists() && foreign.exists());
    }
}
