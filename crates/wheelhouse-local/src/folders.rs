//! Where things are kept: the cache (what can be made again), the state (what a
//! cluster is), and the locks that keep two commands out of each other's way.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::{Uid, User, geteuid},
};

use crate::error::{Error, Result};

/// The folder for whatever can be made again: `WHEELHOUSE_CACHE_DIR`, or else
/// `wheelhouse` in the user's cache folder.
pub fn cache() -> PathBuf {
    from_env("WHEELHOUSE_CACHE_DIR").unwrap_or_else(|| {
        from_env("XDG_CACHE_HOME").unwrap_or_else(|| home().join(".cache")).join("wheelhouse")
    })
}

/// Whose the cache is, where root runs this for somebody: compilers are called as them, because what
/// root puts there, they could not replace.
pub(crate) fn owner_of_the_cache() -> Result<Option<User>> {
    let cache = cache();
    create_folder(&cache)?;
    let owner = fs::metadata(&cache).map_err(Error::file("look at", &cache))?.uid();
    let is_anothers = geteuid().is_root() && owner != geteuid().as_raw();
    Ok(is_anothers.then(|| User::from_uid(Uid::from_raw(owner)).ok().flatten()).flatten())
}

/// The folder of the clusters: `WHEELHOUSE_STATE_DIR`, or else
/// `/var/lib/wheelhouse` for root and the user's state folder for anybody else.
pub fn state() -> PathBuf {
    from_env("WHEELHOUSE_STATE_DIR").unwrap_or_else(|| {
        if geteuid().is_root() {
            PathBuf::from("/var/lib/wheelhouse")
        } else {
            from_env("XDG_STATE_HOME").unwrap_or_else(|| home().join(".local/state")).join("wheelhouse")
        }
    })
}

/// The folder that a user's files go to: `HOME`, or the root folder for who has none.
pub fn home() -> PathBuf {
    from_env("HOME").unwrap_or_else(|| PathBuf::from("/"))
}

/// A folder that a variable names; none where it is empty or not set.
pub(crate) fn from_env(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(one_name(Path::new(&value)))
}

/// The one name of a folder, whatever links and dots lead there: processes are marked with it. What
/// does not exist yet keeps its name as it is.
fn one_name(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|each| Some((each, fs::canonicalize(each).ok()?)));
    let path = match existing {
        Some((given, real)) => absolute.strip_prefix(given).map_or(real.clone(), |rest| real.join(rest)),
        None => absolute,
    };
    // Where all of it exists, nothing was joined, and that leaves a slash at the end.
    path.components().collect()
}

/// An exclusive lock, held until dropped and let go by the kernel when the
/// process ends in whatever way. Its file goes with it.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: Flock<File>,
}

impl Lock {
    /// For what is in the cache; `on_wait` hears once who holds it, if anybody does.
    pub async fn in_cache(name: &str, on_wait: impl FnOnce(&str)) -> Result<Self> {
        let folder = cache().join("locks");
        create_folder(&folder)?;
        Self::take(folder.join(format!("{name}.lock")), on_wait).await
    }

    /// For what there is only one of on this host, whatever folders a user has chosen.
    pub async fn on_host(name: &str, on_wait: impl FnOnce(&str)) -> Result<Self> {
        // Each user has a folder of their own for them: in a shared one, anybody could hold root up.
        let folder = if geteuid().is_root() {
            PathBuf::from("/run")
        } else {
            let state = state();
            from_env("XDG_RUNTIME_DIR").unwrap_or_else(|| state.parent().unwrap_or(&state).to_owned())
        };
        create_folder(&folder)?;
        Self::take(folder.join(format!("wheelhouse-{name}.lock")), on_wait).await
    }

    async fn take(path: PathBuf, on_wait: impl FnOnce(&str)) -> Result<Self> {
        let mut on_wait = Some(on_wait);
        loop {
            let file = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .custom_flags(nix::libc::O_NOFOLLOW)
                .open(&path)
                .map_err(Error::file("open the lock", &path))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) if is_at(&file, &path) => {
                    // Only a note for who waits; the lock itself is the kernel's.
                    let noted = file.set_len(0).and_then(|()| write!(&*file, "{}", std::process::id()));
                    noted.map_err(Error::file("write the lock", &path))?;
                    return Ok(Self { path, _file: file });
                }
                // Its last holder removed the file between our two steps.
                Ok(_) => {}
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                    if let Some(tell) = on_wait.take() {
                        tell(&fs::read_to_string(&path).unwrap_or_default());
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err((_, errno)) => return Err(Error::file("lock", &path)(errno.into())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still held: who waits for it sees that the file is gone and makes a new one.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the open file is still the one of this name.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Creates a folder and whatever is missing above it.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::file("create the folder", path))
}

/// Writes a file so that readers see the old content or the new, never half of it.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    write_file_of(path, content, mode, None)
}

/// The same, for a file that belongs to this user and group.
pub(crate) fn write_file_of(
    path: &Path,
    content: impl AsRef<[u8]>,
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<()> {
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&partial)
        .and_then(|mut file| {
            if let Some((user, group)) = owner {
                fchown(&file, Some(user), Some(group))?;
            }
            file.write_all(content.as_ref())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&partial, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&partial);
        Error::file("write", path)(source)
    })
}

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

/// Removes a folder with all that is in it; one that is not there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove the folder", path)(error))
        }
        _ => Ok(()),
    }
}

/// The bytes that a user may still write to the file system that `path` is, or will be, on.
pub(crate) fn free_bytes(path: &Path) -> Result<u64> {
    let existing = path.ancestors().find(|each| each.exists()).unwrap_or(Path::new("/"));
    let stat = nix::sys::statvfs::statvfs(existing)
        .map_err(|errno| Error::file("look at the free space of", existing)(errno.into()))?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_name_however_it_is_reached() {
        let base = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(base.path()).unwrap().join("real");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, base.path().join("link")).unwrap();
        for way in ["real", "link", "real/../link/./"] {
            assert_eq!(real.join("state/x"), one_name(&base.path().join(way).join("state/x")));
            // As text: paths are equal with and without a slash at the end.
            assert_eq!(real.as_os_str(), one_name(&base.path().join(way)).as_os_str());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_lock_is_held_by_one_at_a_time_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let counter = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let takers = (0..20).map(|_| {
            let (path, counter) = (path.clone(), counter.clone());
            tokio::spawn(async move {
                let _lock = Lock::take(path, |_| {}).await.unwrap();
                assert_eq!(0, counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
                tokio::time::sleep(Duration::from_millis(3)).await;
                counter.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            })
        });
        for taker in takers.collect::<Vec<_>>() {
            taker.await.unwrap();
        }
        assert_eq!(0, fs::read_dir(folder.path()).unwrap().count());
    }
}
