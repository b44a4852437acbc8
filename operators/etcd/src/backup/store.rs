//! One file and its note at a [`Place`]: in a bucket, or on a volume.

mod credentials;
mod http;
mod s3;
mod volume;

use std::path::{Path, PathBuf};

use tokio::{
    fs::{self, File},
    io::AsyncWriteExt as _,
};

use self::{s3::Bucket, volume::Folder};
use super::{
    Error, Result,
    note::{Note, SUFFIX},
    progress::Telling,
};
use crate::api::backup::{Place, Stage};

/// Where pods have what belongs to a place.
#[derive(Clone, Debug)]
pub struct Mounts {
    /// The Secret with the credentials.
    pub aws: PathBuf,
    /// The Secret with the authorities.
    pub authorities: PathBuf,
    /// The volume.
    pub volume: PathBuf,
    /// Room for a file on its way.
    pub scratch: PathBuf,
}

impl Default for Mounts {
    fn default() -> Self {
        let folder = Path::new(FOLDER);
        Self {
            aws: folder.join("aws"),
            authorities: folder.join("authorities"),
            volume: folder.join("volume"),
            scratch: folder.join("scratch"),
        }
    }
}

/// Where all of that is in pods.
const FOLDER: &str = "/var/run/etcd-backup";

/// One file and its note.
pub(super) enum Store {
    /// In a bucket.
    S3(Bucket),
    /// On a volume.
    Volume(Folder),
}

impl Store {
    pub(super) fn open(place: &Place, mounts: &Mounts) -> Result<Self> {
        Ok(match place {
            Place::S3(place) => Self::S3(Bucket::open(place, mounts)?),
            Place::Volume(place) => Self::Volume(Folder::open(&mounts.volume, &place.path)),
        })
    }

    /// Where that pod writes a file first that is to be stored.
    pub(super) fn draft(&self, mounts: &Mounts, pod: &str) -> PathBuf {
        match self {
            Self::S3(_) => mounts.scratch.join("snapshot"),
            Self::Volume(folder) => folder.draft(pod),
        }
    }

    /// The note, if there is one.
    pub(super) async fn note(&self) -> Result<Option<Note>> {
        let content = match self {
            Self::S3(bucket) => bucket.read_note().await?,
            Self::Volume(folder) => folder.read_note().await?,
        };
        let note = content.map(|content| serde_json::from_slice(&content)).transpose();
        note.map_err(|error| {
            Error::refused(format!(
                "{SUFFIX} beside the file is no note of a backup, so it is left alone: {error}: choose another path"
            ))
        })
    }

    /// Writes the note, over the one before.
    pub(super) async fn write_note(&self, note: &Note) -> Result<()> {
        let content = serde_json::to_vec_pretty(note).map_err(|error| Error::failed(error.to_string()))?;
        match self {
            Self::S3(bucket) => bucket.write_note(content).await,
            Self::Volume(folder) => folder.write_note(&content, &note.pod).await,
        }
    }

    /// The size of the file, if it is there.
    pub(super) async fn size(&self) -> Result<Option<u64>> {
        match self {
            Self::S3(bucket) => bucket.size().await,
            Self::Volume(folder) => folder.size().await,
        }
    }

    /// Begins to put a file there, with a draft that is empty. What names the beginning goes into the note, so that it can
    /// be taken back: whoever began it cannot finish it then.
    pub(super) async fn begin(&self, draft: &Path) -> Result<Option<String>> {
        let upload = match self {
            Self::S3(bucket) => Some(bucket.begin().await?),
            Self::Volume(folder) => folder.make_folder().await.map(|()| None)?,
        };
        File::create(draft).await.map_err(cannot_write(draft))?;
        Ok(upload)
    }

    /// Takes back what this pod began, and nothing of others.
    pub(super) async fn leave(&self, draft: &Path, upload: Option<&str>) -> Result<()> {
        match (self, upload) {
            (Self::S3(bucket), Some(upload)) => bucket.take_back(upload).await,
            _ => fs::remove_file(draft).await.map_err(cannot_write(draft)),
        }
    }

    /// Sends the draft, and makes nothing of it yet.
    pub(super) async fn send(&self, draft: &Path, upload: Option<&str>, telling: &Telling) -> Result<Sent> {
        match self {
            Self::S3(bucket) => {
                bucket.send(draft, upload.unwrap_or_default(), telling).await.map(Sent::Parts)
            }
            Self::Volume(folder) => folder.sync_draft(draft).await.map(|()| Sent::Draft),
        }
    }

    /// Makes the file of what was sent, in one step.
    pub(super) async fn finish(&self, draft: &Path, upload: Option<&str>, sent: Sent) -> Result<()> {
        match (self, sent) {
            (Self::S3(bucket), Sent::Parts(parts)) => bucket.finish(upload.unwrap_or_default(), parts).await,
            (Self::Volume(folder), _) => folder.finish(draft).await,
            (Self::S3(_), Sent::Draft) => Err(Error::failed("nothing was sent".to_owned())),
        }
    }

    /// Takes back what was begun and never finished.
    pub(super) async fn take_back(&self, upload: Option<&str>) -> Result<()> {
        match (self, upload) {
            (Self::S3(bucket), Some(upload)) => bucket.take_back(upload).await,
            (Self::S3(_), None) => Ok(()),
            (Self::Volume(folder), _) => folder.take_back().await,
        }
    }

    /// A local file with what is stored: on a volume the file itself, else a copy at `copy`.
    pub(super) async fn local(&self, copy: &Path, stage: Stage, telling: &Telling) -> Result<PathBuf> {
        match self {
            Self::Volume(folder) => folder.there().await,
            Self::S3(_) => self.copy_to(copy, stage, telling).await.map(|()| copy.to_owned()),
        }
    }

    /// Copies the file, as it is there, to a local one; that is on the disk then.
    pub(super) async fn copy_to(&self, path: &Path, stage: Stage, telling: &Telling) -> Result<()> {
        let cannot = cannot_write(path);
        let mut file = File::create(path).await.map_err(&cannot)?;
        match self {
            Self::S3(bucket) => bucket.copy_to(&mut file, path, stage, telling).await?,
            Self::Volume(folder) => folder.copy_to(&mut file, path, stage, telling).await?,
        }
        file.flush().await.map_err(&cannot)?;
        file.sync_all().await.map_err(cannot)
    }

    /// Removes the file, if it is there.
    pub(super) async fn remove(&self) -> Result<()> {
        match self {
            Self::S3(bucket) => bucket.remove().await,
            Self::Volume(folder) => folder.remove().await,
        }
    }

    /// Removes the note, if it is there.
    pub(super) async fn remove_note(&self) -> Result<()> {
        match self {
            Self::S3(bucket) => bucket.remove_note().await,
            Self::Volume(folder) => folder.remove_note().await,
        }
    }
}

pub(super) fn cannot_write(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::failed(format!("cannot write {}: {error}", path.display()))
}

/// What was sent, and is no file yet.
pub(super) enum Sent {
    /// Parts of an upload.
    Parts(Vec<object_store::multipart::PartId>),
    /// A draft on the same volume.
    Draft,
}
