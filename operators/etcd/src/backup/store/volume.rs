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

/// What follows the name of the file in the names of its drafts.
const DRAFT: &str = ".draft.";

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

    /// What that pod writes: of each its own, so that it can be taken from one, and another goes on. No path of a backup
    /// ends like that.
    pub(super) fn draft(&self, pod: &str) -> PathBuf {
        self.beside(&format!("{DRAFT}{pod}."))
    }

    fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
        Error::failed(format!("cannot {doing} {} on the volume: {error}", path.display()))
    }

    /// The folder of the file, and that it is on the disk.
    pub(super) async fn make_folder(&self) -> Result<()> {
        let mut folder = self.folder().to_owned();
        fs::create_dir_all(&folder).await.map_err(|error| Self::failed("make", &folder, &error))?;
        while folder.starts_with(&self.root) {
            sync(&folder).await?;
            if !folder.pop() {
                break;
            }
        }
        Ok(())
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.root)
    }

    async fn sync_folder(&self) -> Result<()> {
        sync(self.folder()).await
    }

    pub(super) async fn read_note(&self) -> Result<Option<Vec<u8>>> {
        let path = self.beside(SUFFIX);
        match fs::read(&path).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Self::failed("read", &path, &error)),
        }
    }

    pub(super) async fn write_note(&self, content: &[u8], pod: &str) -> Result<()> {
        self.make_folder().await?;
        let (draft, path) = (self.draft(&format!("{pod}.note")), self.beside(SUFFIX));
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

    pub(super) async fn sync_draft(&self, draft: &Path) -> Result<()> {
        let synced = async { File::open(draft).await?.sync_all().await };
        synced.await.map_err(|error| Self::failed("write", draft, &error))
    }

    pub(super) async fn finish(&self, draft: &Path) -> Result<()> {
        let moved = fs::rename(draft, &self.path).await;
        moved.map_err(|error| Self::failed("rename", draft, &error))?;
        self.sync_folder().await
    }

    /// Takes all drafts away: whoever is still at one can make no file of it.
    pub(super) async fn take_back(&self) -> Result<()> {
        let unreadable = |error| Self::failed("read", self.folder(), &error);
        let mut files = match fs::read_dir(self.folder()).await {
            Err(error) if is_absent(&error) => return Ok(()),
            opened => opened.map_err(unreadable)?,
        };
        let drafts = self.beside(DRAFT);
        let drafts = drafts.file_name().unwrap_or_default().as_encoded_bytes();
        while let Some(file) = files.next_entry().await.map_err(unreadable)? {
            let name = file.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(drafts) && name.ends_with(b".") {
                remove_file(&file.path()).await?;
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_taken_back_cannot_be_finished_and_what_others_have_there_stays() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path(), "etcd//db");
        folder.make_folder().await.unwrap();
        let others =
            ["other.draft.one.", "db.draft.txt", "db.json"].map(|name| root.path().join("etcd").join(name));
        let (one, two) = (folder.draft("one"), folder.draft("two"));
        for path in others.iter().chain([&one, &two]) {
            std::fs::write(path, "something").unwrap();
        }
        folder.take_back().await.unwrap();
        assert!(folder.finish(&one).await.is_err() && folder.finish(&two).await.is_err());
        assert_eq!(folder.size().await.unwrap(), None);
        assert!(others.iter().all(|path| path.exists()));
    }
}
