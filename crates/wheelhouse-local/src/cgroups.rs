//! Control groups, in both versions: each machine of a cluster gets a group of
//! its own, under which its daemons and its pods live.
//!
//! Version 1 has one tree for each controller, version 2 one for all. A group
//! here is a path that is made, filled and removed in every tree alike.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::{
    error::{Error, Result},
    folders, processes,
};

/// What kubelet cannot do without, whichever the version.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// What it uses where it is there.
const USED: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/// Where the control groups of this host are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trees {
    /// Each mounted tree, and the controllers that are there.
    V1 {
        /// The folders that the trees are mounted on.
        mounts: Vec<PathBuf>,
        /// What can be controlled.
        controllers: BTreeSet<String>,
    },
    /// One tree.
    V2 {
        /// The folder that it is mounted on.
        mount: PathBuf,
        /// What can be controlled.
        controllers: BTreeSet<String>,
    },
}

impl Trees {
    /// Those of this host.
    pub(crate) fn detect() -> Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        let trees = Self::from_mounts(&folders::read_text(path)?);
        Ok(match trees {
            Self::V2 { mount, .. } => {
                let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
                Self::V2 { mount, controllers: controllers.split_whitespace().map(str::to_owned).collect() }
            }
            v1 => v1,
        })
    }

    /// Reads `/proc/PID/mountinfo`; the controllers of version 2 are not in there.
    fn from_mounts(mountinfo: &str) -> Self {
        let mut mounts = Vec::new();
        let mut controllers = BTreeSet::new();
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(mount) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup2") if mount == Path::new("/sys/fs/cgroup") => {
                    return Self::V2 { mount, controllers: BTreeSet::new() };
                }
                Some("cgroup") => {
                    let options = right.nth(1).unwrap_or_default();
                    controllers.extend(options.split(',').map(str::to_owned));
                    mounts.push(mount);
                }
                // A tree without controllers beside those of version 1: runc uses it all the same.
                Some("cgroup2") => mounts.push(mount),
                _ => {}
            }
        }
        Self::V1 { mounts, controllers }
    }

    /// The controllers that are needed and not there.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let (Self::V1 { controllers, .. } | Self::V2 { controllers, .. }) = self;
        NEEDED.into_iter().filter(|needed| !controllers.contains(*needed)).collect()
    }

    /// The folder of a group in each tree.
    fn folders(&self, group: &str) -> Vec<PathBuf> {
        match self {
            Self::V1 { mounts, .. } => mounts.iter().map(|mount| mount.join(group)).collect(),
            Self::V2 { mount, .. } => vec![mount.join(group)],
        }
    }

    /// Makes a group, and whatever is missing above it, ready to hold processes or other groups.
    pub(crate) fn create(&self, group: &str) -> Result<()> {
        let mut path = PathBuf::new();
        for part in Path::new(group) {
            if let Self::V2 { mount, .. } = self {
                pass_on_controllers(&mount.join(&path))?;
            }
            path.push(part);
            for folder in self.folders(&path.to_string_lossy()) {
                folders::create_folder(&folder)?;
                inherit_cpuset(&folder)?;
            }
        }
        Ok(())
    }

    /// Puts a process into a group, in every tree.
    pub(crate) fn add(&self, group: &str, pid: i32) -> Result<()> {
        for folder in self.folders(group) {
            let file = folder.join("cgroup.procs");
            fs::write(&file, pid.to_string()).map_err(Error::file("put a process into", &file))?;
        }
        Ok(())
    }

    /// Whether the group exists in any tree.
    pub(crate) fn exists(&self, group: &str) -> bool {
        self.folders(group).iter().any(|folder| folder.exists())
    }

    /// Ends whatever is left in a group and removes it with all groups in it.
    pub(crate) async fn remove(&self, group: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut left = None;
            for folder in self.folders(group) {
                if let Err((path, error)) = remove_tree(&folder) {
                    left = Some(Error::file("remove the control group", path)(error));
                }
            }
            match left {
                None => return Ok(()),
                // A process that was just killed takes a moment to leave its group.
                Some(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error),
                Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Version 2: lets the groups in `folder` have every controller that it has itself and that kubelet uses.
fn pass_on_controllers(folder: &Path) -> Result<()> {
    let available = folders::read_text(&folder.join("cgroup.controllers"))?;
    let file = folder.join("cgroup.subtree_control");
    let passed_on = folders::read_text(&file)?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|each| each == name);
    for controller in USED.into_iter().filter(|name| has(&available, name) && !has(&passed_on, name)) {
        fs::write(&file, format!("+{controller}")).map_err(Error::file("pass controllers on with", &file))?;
    }
    Ok(())
}

/// Version 1: a new group has no processors and no memory to run on until it is told so.
fn inherit_cpuset(folder: &Path) -> Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let file = folder.join(name);
        let is_v1 = folder.join("cpuset.cpu_exclusive").exists();
        if is_v1
            && folders::read_text(&file)?.trim().is_empty()
            && let Some(parent) = folder.parent()
        {
            let value = folders::read_text(&parent.join(name))?;
            fs::write(&file, value.trim()).map_err(Error::file("fill", &file))?;
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> Result<(), (PathBuf, std::io::Error)> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err((folder.to_owned(), error)),
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    for pid in fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default().lines() {
        // 0 is a process of another pid namespace, and as a target of `kill` it would be ourselves.
        if let Some(pid) = pid.parse().ok().filter(|pid| *pid > 0) {
            processes::signal(pid, Signal::SIGKILL);
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err((folder.to_owned(), error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
35 30 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    const UNIFIED: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn version_1_is_every_tree_and_the_unified_one_beside_them() {
        let trees = Trees::from_mounts(HYBRID);
        assert_eq!(vec!["pids"], trees.missing());
        assert_eq!(
            vec![
                PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/x/y"),
                PathBuf::from("/sys/fs/cgroup/cpuset/x/y"),
                PathBuf::from("/sys/fs/cgroup/memory/x/y"),
                PathBuf::from("/sys/fs/cgroup/systemd/x/y"),
                PathBuf::from("/sys/fs/cgroup/unified/x/y"),
            ],
            trees.folders("x/y")
        );
    }

    #[test]
    fn version_2_is_one_tree() {
        let trees = Trees::from_mounts(UNIFIED);
        assert_eq!(vec![PathBuf::from("/sys/fs/cgroup/x")], trees.folders("x"));
    }

    #[test]
    fn version_2_passes_on_what_is_there_and_not_yet_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        // Here a file; in the kernel every write adds one controller.
        fs::write(folder.path().join("cgroup.subtree_control"), "cpu pids\n").unwrap();
        pass_on_controllers(folder.path()).unwrap();
        assert_eq!("+memory", fs::read_to_string(folder.path().join("cgroup.subtree_control")).unwrap());
    }

    #[test]
    fn a_host_without_control_groups_lacks_every_controller() {
        assert_eq!(NEEDED.to_vec(), Trees::from_mounts("").missing());
    }
}
