//! Backups on a volume: what is there at every moment, and that nothing of others is touched.

use std::{fs, path::PathBuf};

use etcd_operator::{
    api::backup::{Content, Place, VolumePlace},
    backup::{Error, Mounts, Outcome, Saving, Source, check, fetch, remove, save},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use wheelhouse::jiff::Timestamp;
use wheelhouse_testing::eventually;

use super::etcd::Etcd;

struct Pod {
    folder: TempDir,
    mounts: Mounts,
    place: Place,
}

impl Pod {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounts = Mounts {
            aws: folder.path().join("aws"),
            authorities: folder.path().join("authorities"),
            volume: folder.path().join("volume"),
            scratch: folder.path().join("scratch"),
        };
        for folder in [&mounts.volume, &mounts.scratch] {
            fs::create_dir(folder).unwrap();
        }
        let place = Place::Volume(VolumePlace { claim: "backups".to_owned(), path: "etcd/db".to_owned() });
        Self { folder, mounts, place }
    }

    fn file(&self) -> PathBuf {
        self.mounts.volume.join("etcd/db")
    }

    fn note(&self) -> PathBuf {
        self.mounts.volume.join("etcd/db.json")
    }

    /// What there is on the volume.
    fn files(&self) -> Vec<String> {
        let folder = fs::read_dir(self.mounts.volume.join("etcd")).unwrap();
        let mut names: Vec<_> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn save(&self, etcd: &Etcd, backup: &str) -> Result<Content, Error> {
        content(save(&self.place, &self.mounts, &etcd.source(), &saving(backup)).await)
    }

    async fn remove(&self, backup: &str) -> Outcome {
        let paths = vec![self.place.path().to_owned()];
        remove(&self.place, &self.mounts, backup, paths, Vec::new()).await.unwrap()
    }

    /// As what was begun and given up.
    async fn remove_unfinished(&self) -> Outcome {
        let paths = vec![self.place.path().to_owned()];
        remove(&self.place, &self.mounts, "uid", Vec::new(), paths).await.unwrap()
    }

    async fn check(&self) -> Result<Content, Error> {
        content(check(&self.place, &self.mounts).await)
    }
}

pub fn saving(backup: &str) -> Saving {
    Saving { backup: backup.to_owned(), pod: "pod".to_owned(), scheduled: Timestamp::UNIX_EPOCH }
}

/// For the same backup, in a pod of its own.
pub fn saving_in(pod: &str) -> Saving {
    Saving { pod: pod.to_owned(), ..saving("uid") }
}

/// A pod that takes a backup, on its own.
pub fn begun(
    place: &Place,
    mounts: &Mounts,
    source: Source,
    pod: &str,
) -> JoinHandle<Result<Outcome, Error>> {
    let (place, mounts, saving) = (place.clone(), mounts.clone(), saving_in(pod));
    tokio::spawn(async move { save(&place, &mounts, &source, &saving).await })
}

pub fn removed(paths: &[&str], left: &[&str]) -> Outcome {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    Outcome::Removed { paths: owned(paths), left: owned(left), whole: Vec::new() }
}

pub fn content(outcome: Result<Outcome, Error>) -> Result<Content, Error> {
    match outcome? {
        Outcome::Good { content, .. } => Ok(content),
        other => panic!("{other:?}"),
    }
}

pub fn refusal(outcome: Result<impl std::fmt::Debug, Error>) -> String {
    match outcome {
        Err(Error::Refused(why)) => why,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_backup_is_verified_where_it_is_and_taken_once() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let revision = etcd.fill(50).await;
    let saved = pod.save(&etcd, "uid").await.unwrap();
    assert_eq!((saved.revision, saved.size), (revision, fs::metadata(pod.file()).unwrap().len()));
    assert!(saved.cluster_id.is_some() && saved.etcd_version.is_some());
    assert_eq!(pod.files(), ["db", "db.json"]);
    assert_eq!(pod.check().await.unwrap(), saved);

    etcd.fill(5).await;
    assert_eq!(pod.save(&etcd, "uid").await.unwrap(), saved, "a pod that is started again finds it");

    let to = pod.folder.path().join("restored");
    let fetched = content(fetch(&pod.place, &pod.mounts, &to, Some(&saved.sha256)).await).unwrap();
    assert_eq!(fetched, saved);
    assert_eq!(fs::read(&to).unwrap(), fs::read(pod.file()).unwrap());
    let other = fetch(&pod.place, &pod.mounts, &pod.folder.path().join("other"), Some("00")).await;
    assert!(refusal(other).contains("another backup is there than the one that was checked"));
    assert!(!pod.folder.path().join("other").exists());
}

#[tokio::test]
async fn whatever_a_killed_pod_left_the_next_one_goes_on() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let saved = pod.save(&etcd, "uid").await.unwrap();
    let whole = fs::read_to_string(pod.note()).unwrap();
    let writing = whole.replace("Whole", "Writing");

    // After the first note.
    fs::remove_file(pod.file()).unwrap();
    fs::write(pod.note(), &writing).unwrap();
    fs::write(pod.mounts.volume.join("etcd/db.draft."), "half").unwrap();
    assert!(refusal(pod.check().await).contains("never finished"));
    assert_eq!(pod.save(&etcd, "uid").await.unwrap().revision, saved.revision);
    assert_eq!(pod.files(), ["db", "db.json"]);

    // After the file became one, and before its note says so.
    fs::write(pod.note(), &writing).unwrap();
    assert!(refusal(pod.check().await).contains("never finished"));
    pod.save(&etcd, "uid").await.unwrap();

    // Something happened to the file since.
    fs::write(pod.file(), "garbage").unwrap();
    refusal(pod.check().await);
    pod.save(&etcd, "uid").await.unwrap();
    pod.check().await.unwrap();
}

#[tokio::test]
async fn who_was_given_up_and_runs_on_changes_nothing_of_what_another_took_instead() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let (source, told) = etcd.source_later();
    let first = begun(&pod.place, &pod.mounts, source, "first");
    eventually("the first pod is at it", async || pod.note().exists()).await;
    let saved = content(save(&pod.place, &pod.mounts, &etcd.source(), &saving_in("second")).await).unwrap();
    etcd.fill(5).await;
    told.notify_one();
    let said = first.await.unwrap();
    assert!(matches!(&said, Err(Error::Failed(_))), "{said:?}");
    assert_eq!(pod.check().await.unwrap(), saved);
    assert_eq!(pod.files(), ["db", "db.json"]);
}

#[tokio::test]
async fn files_of_others_are_neither_written_over_nor_removed() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    fs::create_dir(pod.mounts.volume.join("etcd")).unwrap();
    fs::write(pod.file(), "theirs").unwrap();
    let gone = async |backup: &str| pod.remove(backup).await;
    assert!(refusal(pod.save(&etcd, "uid").await).contains("no EtcdBackup wrote it"));
    assert_eq!(gone("uid").await, removed(&[], &["etcd/db"]));
    assert_eq!(fs::read_to_string(pod.file()).unwrap(), "theirs");

    fs::remove_file(pod.file()).unwrap();
    let saved = pod.save(&etcd, "uid").await.unwrap();
    assert!(refusal(pod.save(&etcd, "another").await).contains("of another EtcdBackup"));
    assert_eq!(gone("another").await, removed(&[], &["etcd/db"]));
    assert_eq!(pod.check().await.unwrap(), saved);

    for _ in 0..2 {
        assert_eq!(gone("uid").await, removed(&["etcd/db"], &[]));
        assert_eq!(pod.files(), [""; 0]);
    }
    assert!(refusal(pod.check().await).contains("there is no backup"));
}

#[tokio::test]
async fn what_was_half_removed_is_no_backup_and_is_removed_the_next_time() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    pod.save(&etcd, "uid").await.unwrap();
    let note = fs::read_to_string(pod.note()).unwrap();
    fs::write(pod.note(), note.replace("Whole", "Removing")).unwrap();
    assert!(refusal(pod.check().await).contains("being removed"));
    fs::remove_file(pod.file()).unwrap();
    assert_eq!(pod.remove("uid").await, removed(&["etcd/db"], &[]));
    assert_eq!(pod.files(), [""; 0]);
}

#[tokio::test]
async fn what_was_given_up_goes_unless_it_is_whole_after_all() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let saved = pod.save(&etcd, "uid").await.unwrap();
    match pod.remove_unfinished().await {
        Outcome::Removed { paths, whole, .. } => {
            assert_eq!((paths.len(), &whole[0].content), (0, &saved));
        }
        other => panic!("{other:?}"),
    }
    pod.check().await.unwrap();
    let note = fs::read_to_string(pod.note()).unwrap();
    fs::write(pod.note(), note.replace("Whole", "Writing")).unwrap();
    fs::write(pod.mounts.volume.join("etcd/db.draft."), "half").unwrap();
    assert_eq!(pod.remove_unfinished().await, removed(&["etcd/db"], &[]));
    assert_eq!(pod.files(), [""; 0]);
}

#[tokio::test]
async fn a_backup_without_a_note_is_somebodys_own_and_can_be_restored_from() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let revision = etcd.fill(3).await;
    fs::create_dir(pod.mounts.volume.join("etcd")).unwrap();
    etcd.snapshot(&pod.file()).await;
    let checked = pod.check().await.unwrap();
    assert_eq!(checked.revision, revision);
    assert_eq!(checked.etcd_version.map(|version| version.minor), Some(6));
}

#[tokio::test]
async fn an_etcd_that_nobody_reaches_is_told_and_leaves_nothing_that_looks_like_a_backup() {
    let (etcd, pod) = (Etcd::start().await, Pod::new());
    let source = etcd.source();
    drop(etcd);
    let said = save(&pod.place, &pod.mounts, &source, &saving("uid")).await.unwrap_err();
    assert!(
        matches!(&said, Error::Failed(why) if why.contains("no member of etcd can be backed up")),
        "{said}"
    );
    refusal(pod.check().await);
}
