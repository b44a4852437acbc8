//! Removes files that an EtcdBackup wrote, whole or not.

use super::{Error, Mounts, Outcome, Result, note::State, store::Store};
use crate::api::backup::{Kept, Place};

/// Removes files of this EtcdBackup: those of backups, and what there is of unfinished ones. What is somebody
/// else's is left alone, and told. What is gone already counts as removed.
///
/// # Errors
/// When one cannot be removed.
pub async fn remove(
    place: &Place,
    mounts: &Mounts,
    backup: &str,
    paths: Vec<String>,
    unfinished: Vec<String>,
) -> Result<Outcome> {
    let (mut removed, mut left, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let all = paths.into_iter().map(|path| (path, true));
    for (path, even_if_whole) in all.chain(unfinished.into_iter().map(|path| (path, false))) {
        match remove_one(&place.at(&path), mounts, backup, even_if_whole).await {
            Ok(None) => removed.push(path),
            Ok(Some(kept)) => whole.push(kept),
            Err(Error::Refused(why)) => {
                tracing::warn!("{why}");
                left.push(path);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Removed { paths: removed, left, whole })
}

/// The note goes last, and says before that the file goes: so whoever comes next knows whose it is. The backup, if
/// it is whole and was not to be.
async fn remove_one(
    place: &Place,
    mounts: &Mounts,
    backup: &str,
    even_if_whole: bool,
) -> Result<Option<Kept>> {
    let store = Store::open(place, mounts)?;
    let path = place.path();
    let Some(mut note) = store.note().await? else {
        return match store.size().await? {
            None => store.take_back(None).await.map(|()| None),
            Some(_) => Err(Error::refused(format!(
                "{path} has no note that says that this EtcdBackup wrote it: it is left alone"
            ))),
        };
    };
    if note.backup != backup {
        return Err(Error::refused(format!("{path} is of another EtcdBackup: it is left alone")));
    }
    if note.state == State::Whole {
        if let (false, Some(content), Some(at)) = (even_if_whole, note.content.clone(), note.at) {
            return Ok(Some(Kept { path: path.to_owned(), scheduled: note.scheduled, at, content }));
        }
        note.state = State::Removing;
        store.write_note(&note).await?;
    }
    store.take_back(note.upload.as_deref()).await?;
    store.remove().await?;
    store.remove_note().await?;
    Ok(None)
}
