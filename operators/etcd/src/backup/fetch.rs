//! Verifies a backup where it is, and fetches it.

use std::path::{Path, PathBuf};

use tokio::fs;
use wheelhouse::jiff::Timestamp;

use super::{
    Error, Mounts, Outcome, Result,
    note::{Note, State},
    progress::Telling,
    snapshot::{self, Refusal},
    store::Store,
};
use crate::api::backup::{Content, Place, Stage};

/// Verifies a backup, and changes nothing.
///
/// # Errors
/// When it cannot be read, or is refused.
pub async fn check(place: &Place, mounts: &Mounts) -> Result<Outcome> {
    let store = Store::open(place, mounts)?;
    let note = store.note().await?;
    check_note(note.as_ref())?;
    stored(&store, place, note.as_ref(), mounts, &Telling::default()).await
}

/// Verifies what is stored, as it is there.
pub(super) async fn stored(
    store: &Store,
    place: &Place,
    note: Option<&Note>,
    mounts: &Mounts,
    telling: &Telling,
) -> Result<Outcome> {
    let copy = mounts.scratch.join("stored");
    let file = store.local(&copy, Stage::ReadingBack, telling).await?;
    let content = verify(&file, note).await?;
    Ok(good(place, note, content))
}

fn good(place: &Place, note: Option<&Note>, content: Content) -> Outcome {
    Outcome::Good {
        path: place.path().to_owned(),
        scheduled: note.map(|note| note.scheduled),
        at: note.and_then(|note| note.at).unwrap_or_else(Timestamp::now),
        content,
    }
}

/// Copies a backup to a local file and verifies it; the file is there only if it is good.
///
/// # Errors
/// When it cannot be read, or is refused.
pub async fn fetch(place: &Place, mounts: &Mounts, to: &Path, sha256: Option<&str>) -> Result<Outcome> {
    let store = Store::open(place, mounts)?;
    let note = store.note().await?;
    check_note(note.as_ref())?;
    let mut draft = to.to_owned().into_os_string();
    draft.push(".draft");
    let draft = PathBuf::from(draft);
    store.copy_to(&draft, Stage::Receiving, &Telling::default()).await?;
    let content = match verify(&draft, note.as_ref()).await {
        Ok(content) if sha256.is_none_or(|sha256| sha256 == content.sha256) => content,
        outcome => {
            // What is not good is nothing to keep.
            let _ = fs::remove_file(&draft).await;
            let content = outcome?;
            return Err(Error::refused(format!(
                "another backup is there than the one that was checked: its SHA-256 is {}, and {} is to be restored",
                content.sha256,
                sha256.unwrap_or_default()
            )));
        }
    };
    let moved = fs::rename(&draft, to).await;
    moved.map_err(|error| Error::failed(format!("cannot write {}: {error}", to.display())))?;
    Ok(good(place, note.as_ref(), content))
}

/// A backup without a note may be somebody's own, taken with etcdctl: etcd's checksum is in it. What a note
/// says to be unfinished is none.
fn check_note(note: Option<&Note>) -> Result<()> {
    match note.map(|note| note.state) {
        None | Some(State::Whole) => Ok(()),
        Some(State::Writing) => {
            Err(Error::refused("the backup was never finished: its note says that it is being written"))
        }
        Some(State::Removing) => Err(Error::refused("the backup is being removed: its note says so")),
    }
}

/// What is in a file, if it is a snapshot of etcd's, and the one that its note is about.
pub(super) async fn verify(path: &Path, note: Option<&Note>) -> Result<Content> {
    let file = path.to_owned();
    let verified = tokio::task::spawn_blocking(move || snapshot::verify(&file)).await;
    let verified = verified.map_err(|error| Error::failed(format!("cannot verify the backup: {error}")))?;
    let mut found = verified.map_err(|refusal| match refusal {
        Refusal::Unreadable(_) => Error::failed(refusal.to_string()),
        _ => Error::refused(refusal.to_string()),
    })?;
    if let Some(noted) = note.and_then(|note| note.content.as_ref()) {
        if noted.sha256 != found.sha256 || noted.size != found.size || noted.revision != found.revision {
            return Err(Error::refused(format!(
                "this is another backup than its note is about: it has {} bytes, revision {} and SHA-256 {}, and the note says {} bytes, revision {} and {}",
                found.size, found.revision, found.sha256, noted.size, noted.revision, noted.sha256
            )));
        }
        found.etcd_version = noted.etcd_version.or(found.etcd_version);
        found.cluster_id = noted.cluster_id;
    }
    Ok(found)
}
