//! What a machine must have before a cluster is started on it: everything that
//! is missing is named in one message, with the command that installs it.

use std::path::Path;

use crate::{
    cgroups::Trees,
    command::is_installed,
    error::{Error, Result},
    folders, machine_image,
};

/// A program that nodes need, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 12] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setsid", "util-linux"),
    ("mount", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("hostname", "hostname"),
    ("catatonit", "catatonit"),
];
const NETWORK_PLUGINS: [&str; 3] = ["ptp", "host-local", "portmap"];

/// Room for the images and writable layers of a few pods on a node.
const ROOM_FOR_A_NODE: u64 = 1 << 30;
/// Room for etcd's data and the logs.
const ROOM_FOR_A_CONTROL_PLANE: u64 = 512 << 20;

/// Whether a control plane alone can be started here.
pub(crate) fn control_plane_only() -> Result<()> {
    let missing = [install(missing_packages(&[("setsid", "util-linux")])), room(ROOM_FOR_A_CONTROL_PLANE)];
    verdict("a control plane", missing.into_iter().flatten())
}

/// Whether nodes can be started here; what controls their groups.
///
/// Room is asked for where new ones are to be made.
pub(crate) fn nodes(new: Option<u8>) -> Result<Trees> {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push(
            "nodes need root: run it with sudo, or ask for `--control-plane-only`, which does not need it"
                .to_owned(),
        );
    }
    missing.extend(install([missing_packages(&PROGRAMS), missing_node_packages()].concat()));
    let trees = Trees::detect()?;
    let controllers = trees.missing();
    if !controllers.is_empty() {
        missing.push(format!(
            "the control group controllers {} are not available: mount them, or enable them on the kernel's command line (for memory: cgroup_enable=memory)",
            controllers.join(", ")
        ));
    }
    missing.extend(new.and_then(|new| room(ROOM_FOR_A_CONTROL_PLANE + u64::from(new) * ROOM_FOR_A_NODE)));
    verdict("a cluster with nodes", missing).map(|()| trees)
}

/// The packages of the programs that are missing.
fn missing_packages(programs: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    programs.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect()
}

/// The packages of what a node needs beside programs: network plugins, and static programs for its image.
fn missing_node_packages() -> Vec<&'static str> {
    let mut names = Vec::new();
    if NETWORK_PLUGINS.iter().any(|plugin| !Path::new("/usr/lib/cni").join(plugin).is_file()) {
        names.push("containernetworking-plugins");
    }
    for (path, _, package) in machine_image::PROGRAMS {
        let file = machine_image::on_host(path);
        if !std::fs::read(&file).is_ok_and(|content| is_static(&content)) {
            names.push(package);
        }
    }
    names
}

/// Whether a program needs no loader: no segment of its ELF file names one. Debian's plain
/// `busybox` does, and would not start in an image of its own.
fn is_static(elf: &[u8]) -> bool {
    const NAMES_A_LOADER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let segments = || -> Option<Vec<u64>> {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|index| number(usize::try_from(start + index * size).ok()?, 4)).collect()
    };
    let is_elf_64 = elf.starts_with(b"\x7fELF\x02");
    is_elf_64 && segments().is_some_and(|kinds| !kinds.contains(&u64::from(NAMES_A_LOADER)))
}

/// One sentence for all packages, because one command installs them.
fn install(mut packages: Vec<&str>) -> Option<String> {
    packages.sort_unstable();
    packages.dedup();
    (!packages.is_empty())
        .then(|| format!("install what is missing with `apt-get install -y {}`", packages.join(" ")))
}

fn room(needed: u64) -> Option<String> {
    let folder = folders::state();
    let free = folders::free_bytes(&folder).ok()?;
    (free < needed).then(|| {
        format!(
            "{} has {} MiB of free disk and {} are needed: make room, or set WHEELHOUSE_STATE_DIR to a folder with more",
            folder.display(),
            free >> 20,
            needed >> 20
        )
    })
}

fn verdict(goal: &str, missing: impl IntoIterator<Item = String>) -> Result<()> {
    let missing: Vec<_> = missing.into_iter().collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::Preflight { goal: goal.to_owned(), missing }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_missing_is_named_in_one_sentence() {
        let error = verdict("a cluster", ["nodes need root".to_owned(), "make room".to_owned()]).unwrap_err();
        assert_eq!("this machine is not ready for a cluster: nodes need root; make room", error.to_string());
    }

    #[test]
    fn packages_are_named_once_and_by_the_command_that_installs_them() {
        let missing = missing_packages(&[
            ("no-such-program", "a-package"),
            ("no-such-other", "a-package"),
            ("sh", "dash"),
        ]);
        assert_eq!(
            Some("install what is missing with `apt-get install -y a-package`".to_owned()),
            install(missing)
        );
        assert_eq!(None, install(Vec::new()));
    }

    #[test]
    fn a_program_that_needs_a_loader_is_not_static() {
        assert!(!is_static(&std::fs::read("/bin/sh").unwrap()), "Debian's shell is linked dynamically");
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(b"\x7fELF\x02"));
    }
}
