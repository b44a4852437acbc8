//! Taking a cluster down, and clearing away what is left of one.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Cluster, Kind, Record, lock, record};
use crate::{
    address_plan::AddressPlan,
    cgroups::Trees,
    control_plane::Ports,
    error::{Error, Result},
    folders,
    kubeconfig::{self, Entry, UserKubeconfig},
    network, processes,
    progress::Progress,
};

impl Cluster {
    /// Takes a cluster down: no process, link, control group or file of it remains.
    pub async fn down(name: &str, progress: &Progress) -> Result<()> {
        record::check_name(name)?;
        let _lock = lock(name, progress).await?;
        let cluster = match Self::open(name) {
            // A record that cannot be read must not keep anybody from clearing the rest away.
            Err(Error::Malformed { .. }) => Self::without_record(name),
            Err(Error::UnknownCluster { .. }) if Self::without_record(name).is_anything_left() => {
                Self::without_record(name)
            }
            opened => opened?,
        };
        let stage = progress.stage(format!("taking down cluster {name}"));
        cluster.tear_down().await?;
        stage.done();
        Ok(())
    }

    /// A cluster whose record is gone or unreadable, for clearing away what else there is.
    pub(super) fn without_record(name: &str) -> Self {
        let folder = folders::state().join(name);
        // The slot is unknown. Its link goes with the last process of the control plane.
        let ports = Ports::usual(&AddressPlan::default());
        Self { folder, record: Record::new(name, Kind::ControlPlaneOnly { ports }) }
    }

    /// Whether there is anything of a cluster without a record.
    pub(super) fn is_anything_left(&self) -> bool {
        self.is_anything_running() || (self.folder.exists() && is_empty(&self.folder))
    }

    fn is_anything_running(&self) -> bool {
        !processes::of_cluster(&self.folder).is_empty()
            || Trees::detect().is_ok_and(|trees| trees.exists(&self.group()))
    }

    /// Refuses a folder that has the cluster's name but something else in it.
    pub(super) fn check_folder_is_free(&self) -> Result<()> {
        if !self.folder.exists() || is_empty(&self.folder) || self.is_anything_running() {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{} is there already and is not a cluster's folder: choose another name or another WHEELHOUSE_STATE_DIR",
            self.folder.display()
        )))
    }

    pub(super) async fn tear_down(&self) -> Result<()> {
        let is_ours =
            record::path(&self.folder).exists() || self.is_anything_running() || is_empty(&self.folder);
        let entry = Entry::from_kubeconfig(&self.kubeconfig()).ok();
        processes::end(&self.folder, Duration::ZERO, |_| true).await?;
        if let Kind::Nodes { slot, .. } = &self.record.kind {
            network::disconnect_host(slot, &self.unique_name()).await?;
        }
        let trees = Trees::detect()?;
        if trees.exists(&self.group()) {
            trees.remove(&self.group()).await?;
        }
        if is_ours {
            remove_cluster_folder(&self.folder)?;
        }
        // The folder of all clusters goes with the last one.
        let _ = fs::remove_dir(folders::state());
        // Last, so that a kubeconfig that cannot be changed keeps nothing else from going.
        UserKubeconfig::locate().remove(&kubeconfig::context(self.name()), entry.as_ref()).await
    }
}

/// Whether a folder holds nothing, or only what a killed writer of the record left.
fn is_empty(folder: &Path) -> bool {
    let partial = format!("{}.partial-", record::FILE);
    contents(folder)
        .iter()
        .all(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&partial)))
}

fn contents(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes everything, the record last: whoever is killed in between finds the rest by it.
fn remove_cluster_folder(folder: &Path) -> Result<()> {
    refuse_mounts_below(folder)?;
    let record = record::path(folder);
    for path in contents(folder).into_iter().filter(|path| *path != record) {
        if path.is_dir() && !path.is_symlink() {
            folders::remove_folder(&path)?;
        } else {
            fs::remove_file(&path).map_err(Error::file("remove", &path))?;
        }
    }
    folders::remove_folder(folder)
}

/// Whatever somebody has mounted in there is not ours to delete.
fn refuse_mounts_below(folder: &Path) -> Result<()> {
    let mounts = folders::read_text(Path::new("/proc/self/mountinfo"))?;
    match mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|mount| Path::new(mount).starts_with(folder))
    {
        None => Ok(()),
        Some(mount) => Err(Error::Refused(format!(
            "{mount} is a mount below the cluster's folder, and not one of ours: unmount it, then run `down` again"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_anything_else_in_it_is_not_a_clusters() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_empty(folder.path()));
        fs::write(folder.path().join("cluster.json.partial-17"), "{").unwrap();
        assert!(is_empty(folder.path()));
        fs::write(folder.path().join("photo.jpg"), "").unwrap();
        assert!(!is_empty(folder.path()));
    }

    #[test]
    fn a_clusters_folder_goes_whole_and_links_in_it_are_not_followed() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("kept"), "").unwrap();
        let cluster = folder.path().join("demo");
        fs::create_dir_all(cluster.join("node-1/volumes")).unwrap();
        fs::write(record::path(&cluster), "{}").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), cluster.join("link")).unwrap();
        remove_cluster_folder(&cluster).unwrap();
        assert!(!cluster.exists() && elsewhere.path().join("kept").exists());
    }
}
