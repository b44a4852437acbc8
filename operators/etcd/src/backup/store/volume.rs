//! On a volume: a draft beside the file, which becomes the file in one step, and is on the disk by then.

use std::path::{Path, PathBuf};

use tokio::{
    fs::{self, File},
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::super::{Error, Result, note::SUFFIX, progress::Telling};
use crate::api::backup::Stage;

/// How much is copied at once.
const PIECE: usize = 1 << 20;

/// A file in a folder.
pub(in crate::backup) struct Folder {
    root: PathBuf,
    path: PathBuf,
}

impl Folder {
    pub(super) fn open(root: &Path, path: &str) -> Self {
        Self { root: root.to_owned(), path: root.join(path) }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    /// No path of a backup ends like that.
    pub(super) fn draft(&self) -> PathBuf {
        self.beside(".draft.")
    }

    fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
        Error::failed(format!("cannot {doing} {} on the volume: {error}", path.display()))
    }

    /// The folder of the file, and that it is on the disk.
    async fn make_folder(&self) -> Result<()> {
        let mut folder = self.path.parent().unwrap_or(&self.root).to_owned();
        fs::create_dir_all(&folder).await.map_err(|error| Self::failed("make", &folder, &error))?;
        while folder.starts_with(&self.root) {
            sync(&folder).await?;
            if !folder.pop() {
                break;
            }
        }
        Ok(())
    }

    async fn sync_folder(&self) -> Result<()> {
        sync(self.path.parent().unwrap_or(&self.root)).await
    }

    pub(super) async fn read_note(&self) -> Result<Option<Vec<u8>>> {
        let path = self.beside(SUFFIX);
        match fs::read(&path).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Self::failed("read", &path, &error)),
        }
    }

    pub(super) async fn write_note(&self, content: &[u8]) -> Result<()> {
        self.make_folder().await?;
        let (draft, path) = (self.beside(".note.draft."), self.beside(SUFFIX));
        let written = async {
            let mut file = File::create(&draft).await?;
            file.write_all(content).await?;
            file.flush().await?;
            file.sync_all().await?;
            fs::rename(&draft, &path).await
        };
        written.await.map_err(|error| Self::failed("write", &path, &error))?;
        self.sync_folder().await
    }

    pub(super) async fn size(&self) -> Result<Option<u64>> {
        match fs::metadata(&self.path).await {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
            Ok(_) => Err(Error::refused(format!("{} on the volume is no file", self.path.display()))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Self::failed("look at", &self.path, &error)),
        }
    }

    /// Where the file is.
    pub(super) async fn there(&self) -> Result<PathBuf> {
        match self.size().await? {
            Some(_) => Ok(self.path.clone()),
            None => Err(self.is_missing()),
        }
    }

    fn is_missing(&self) -> Error {
        let path = self.path.strip_prefix(&self.root).unwrap_or(&self.path);
        Error::refused(format!("there is no backup at {} on the volume", path.display()))
    }

    pub(super) async fn sync_draft(&self) -> Result<()> {
        let draft = self.draft();
        let synced = async { File::open(&draft).await?.sync_all().await };
        synced.await.map_err(|error| Self::failed("write", &draft, &error))
    }

    pub(super) async fn finish(&self) -> Result<()> {
        let draft = self.draft();
        let moved = fs::rename(&draft, &self.path).await;
        moved.map_err(|error| Self::failed("rename", &draft, &error))?;
        self.sync_folder().await
    }

    pub(super) async fn take_back(&self) -> Result<()> {
        remove_file(&self.draft()).await
    }

    pub(super) async fn copy_to(
        &self,
        to: &mut File,
        path: &Path,
        stage: Stage,
        telling: &Telling,
    ) -> Result<()> {
        let unreadable = |error: std::io::Error| Self::failed("read", &self.path, &error);
        let mut from = match File::open(&self.path).await {
            Err(error) if is_absent(&error) => return Err(self.is_missing()),
            opened => opened.map_err(unreadable)?,
        };
        let total = from.metadata().await.map_err(unreadable)?.len();
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        loop {
            let read = from.read(&mut piece).await.map_err(unreadable)?;
            let Some(new) = piece.get(..read).filter(|new| !new.is_empty()) else { return Ok(()) };
            let written = to.write_all(new).await;
            written.map_err(|error| Error::failed(format!("cannot write {}: {error}", path.display())))?;
            done += new.len() as u64;
            telling.tell(stage, done, total);
        }
    }

    pub(super) async fn remove(&self) -> Result<()> {
        remove_file(&self.path).await?;
        self.sync_folder().await
    }

    pub(super) async fn remove_note(&self) -> Result<()> {
        remove_file(&self.beside(SUFFIX)).await?;
        self.sync_folder().await
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

async fn sync(folder: &Path) -> Result<()> {
    let synced = async { File::open(folder).await?.sync_all().await };
    match synced.await {
        // Where there is no folder, nothing of it was changed.
        Err(error) if is_absent(&error) => Ok(()),
        synced => synced.map_err(|error| Folder::failed("write", folder, &error)),
    }
}

async fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path).await {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed.map_err(|error| Folder::failed("remove", path, &error)),
    }
}
