//! The data folder of a member, and whose it is.
//!
//! Beside etcd's own folder on the volume lies a mark that says which member of which cluster the
//! data is of. It is written before etcd starts for the first time, and read before it starts again.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::log;
use crate::{etcd::Id, version::Version};

/// Which member of which cluster a volume belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The UID of the EtcdCluster.
    pub cluster_uid: String,
    /// The name of the member.
    pub member: String,
    /// What etcd called both, once the record says so too.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// The version of etcd that served with it last.
    #[serde(default)]
    pub version: Option<Version>,
}

/// What etcd calls a member and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The cluster.
    pub cluster: Id,
    /// The member.
    pub member: Id,
}

/// What is in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// No log of etcd's: it begins anew wherever it finds none, whatever else is there.
    Empty,
    /// The data of this member.
    Ours(Mark),
    /// Data of somebody else.
    Foreign(String),
    /// Data of this member that etcd would not notice is broken.
    Corrupt(String),
}

/// The volume of a member.
#[derive(Clone, Debug)]
pub struct Volume {
    root: PathBuf,
}

impl Volume {
    /// The volume that is mounted there.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// etcd's own folder.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Where data is made ready. Only a rename takes it from there to [`prepared`](Self::prepared).
    pub fn preparing(&self) -> PathBuf {
        self.root.join("preparing")
    }

    /// Data that lies ready for a member that is to begin with it.
    pub fn prepared(&self) -> PathBuf {
        self.root.join("prepared")
    }

    /// A copy of what a survivor has left.
    pub fn salvaged(&self) -> PathBuf {
        self.root.join("salvaged")
    }

    /// Whether what a member is to begin with lies ready.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn is_prepared(&self) -> io::Result<bool> {
        Ok(!log::files(&self.prepared())?.is_empty())
    }

    /// What was being made ready is complete; it is on the disk when this returns.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn finish_preparing(&self) -> io::Result<()> {
        remove(&self.prepared())?;
        fs::rename(self.preparing(), self.prepared())?;
        self.sync()
    }

    /// What was made ready becomes the data.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn take_prepared(&self) -> io::Result<()> {
        fs::rename(self.prepared(), self.data())?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.root)?.sync_all()
    }

    fn mark_file(&self) -> PathBuf {
        self.root.join("member.json")
    }

    /// What is there, for this member of this cluster.
    ///
    /// # Errors
    /// When it cannot be read: then nobody knows, and nothing may be started.
    pub fn look(&self, cluster_uid: &str, member: &str) -> io::Result<Folder> {
        let files = log::files(&self.data())?;
        if files.is_empty() {
            return Ok(Folder::Empty);
        }
        let Some(mark) = self.mark()? else {
            return Ok(Folder::Foreign("there is data, and nothing says whose it is".to_owned()));
        };
        if mark.cluster_uid != cluster_uid || mark.member != member {
            return Ok(Folder::Foreign(format!(
                "the data is that of member {} of the cluster with the UID {}",
                mark.member, mark.cluster_uid
            )));
        }
        Ok(log::nonsense(&files)?.map_or(Folder::Ours(mark), Folder::Corrupt))
    }

    /// Whose data is on the volume, if anything says so.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn mark(&self) -> io::Result<Option<Mark>> {
        match fs::read(self.mark_file()) {
            Ok(content) => serde_json::from_slice(&content).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes whose the data is; it is on the disk when this returns.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn write_mark(&self, mark: &Mark) -> io::Result<()> {
        let new = self.root.join("member.json.new");
        let mut file = fs::File::create(&new)?;
        io::Write::write_all(&mut file, &serde_json::to_vec(mark).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&new, self.mark_file())?;
        self.sync()
    }

    /// Takes away what a start that came to nothing may have left, none of which is a log.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn clear(&self) -> io::Result<()> {
        remove(&self.data())
    }
}

/// Removes a folder that may not be there.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(member: &str) -> Mark {
        Mark { cluster_uid: "uid".to_owned(), member: member.to_owned(), identity: None, version: None }
    }

    fn with_log(volume: &Volume) {
        let logs = volume.data().join("member/wal");
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("0000000000000000-0000000000000000.wal"), [0; 64]).unwrap();
    }

    #[test]
    fn a_folder_without_a_log_is_empty_whatever_else_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::at(folder.path());
        assert_eq!(volume.look("uid", "a-0").unwrap(), Folder::Empty);
        fs::create_dir_all(volume.data().join("member/wal")).unwrap();
        fs::create_dir_all(volume.data().join("member/snap")).unwrap();
        fs::write(volume.data().join("member/snap/db"), "pages").unwrap();
        volume.write_mark(&mark("a-0")).unwrap();
        assert_eq!(volume.look("uid", "a-0").unwrap(), Folder::Empty);
    }

    #[test]
    fn data_is_of_the_member_that_the_mark_says_and_of_nobody_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::at(folder.path());
        with_log(&volume);
        assert!(matches!(volume.look("uid", "a-0").unwrap(), Folder::Foreign(_)));
        volume.write_mark(&mark("a-0")).unwrap();
        assert_eq!(volume.look("uid", "a-0").unwrap(), Folder::Ours(mark("a-0")));
        assert!(matches!(volume.look("uid", "a-1").unwrap(), Folder::Foreign(_)));
        assert!(matches!(volume.look("another", "a-0").unwrap(), Folder::Foreign(_)));
        fs::write(volume.data().join("member/wal/0000000000000001-0000000000000001.wal"), [0x55; 64])
            .unwrap();
        assert!(matches!(volume.look("uid", "a-0").unwrap(), Folder::Corrupt(_)));
    }

    #[test]
    fn what_lies_ready_is_no_data_before_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::at(folder.path());
        let logs = volume.preparing().join("member/wal");
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("0000000000000000-0000000000000000.wal"), [0; 64]).unwrap();
        assert!(!volume.is_prepared().unwrap(), "it was not finished");
        volume.finish_preparing().unwrap();
        assert!(volume.is_prepared().unwrap());
        assert_eq!(volume.look("uid", "a-0").unwrap(), Folder::Empty);
        volume.write_mark(&mark("a-0")).unwrap();
        volume.take_prepared().unwrap();
        assert_eq!(volume.look("uid", "a-0").unwrap(), Folder::Ours(mark("a-0")));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_empty() {
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::at(folder.path());
        fs::create_dir_all(volume.data().join("member")).unwrap();
        fs::write(volume.data().join("member/wal"), "a file where a folder should be").unwrap();
        assert!(volume.look("uid", "a-0").is_err());
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::at(folder.path());
        with_log(&volume);
        fs::write(folder.path().join("member.json"), "{").unwrap();
        assert!(volume.look("uid", "a-0").is_err());
    }
}
