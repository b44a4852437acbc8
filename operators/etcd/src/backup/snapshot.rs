//! Whether a file is a snapshot of etcd's, whole and as etcd sent it; and what is in it.
//!
//! etcd appends the SHA-256 of its data to what it sends, and so tells by itself whether anything is
//! missing or was changed. What is not whole is refused in words that say which of the two it is.

use std::{
    fs::File,
    io::{BufReader, Read as _},
    path::Path,
};

use sha2::{Digest as _, Sha256};

use super::bolt::{Bolt, Flaw};
use crate::{api::backup::Content, etcd::Id, version::Version};

/// What etcd appends.
const SUM: usize = 32;
/// Data comes in multiples of this, whatever the size of pages; by it etcd, too, knows whether a sum is appended.
const BLOCK: u64 = 512;

/// Why a file is not restored from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A part of it is missing.
    #[error("the backup is truncated: {0}")]
    Truncated(String),
    /// It is something else.
    #[error("this is no snapshot of etcd's: {0}")]
    Foreign(String),
    /// It is not as it was written.
    #[error("the backup was altered after it was made: {0}")]
    Altered(String),
    /// The disk did not let it be read.
    #[error("the backup cannot be read: {0}")]
    Unreadable(String),
}

impl From<Flaw> for Refusal {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Foreign(why) => Self::Foreign(why),
            Flaw::Broken(why) => Self::Altered(why),
            Flaw::Short(why) => Self::Truncated(why),
            Flaw::Unreadable(why) => Self::Unreadable(why),
        }
    }
}

/// A SHA-256 as people write it.
pub(crate) fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the whole file, and says what is in it. Takes its time: not for where others wait.
///
/// # Errors
/// When it is not a whole snapshot of etcd's.
pub fn verify(path: &Path) -> Result<Content, Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let sums = Sums::of(&file).map_err(unreadable)?;
    let appended = size % BLOCK == SUM as u64;
    let data = if appended { size - SUM as u64 } else { size };
    // First what it is: of something else nobody wants to hear that its end is missing.
    let bolt = Bolt::open(&file, data)?;
    if !appended {
        return Err(Refusal::Truncated(match size % BLOCK {
            0 => "it has no checksum at its end: that is missing, or this is a copy of a member's own file, which never has one (take it with `etcdctl snapshot save`)".to_owned(),
            _ => format!("it has {size} bytes, and ends within its data or its checksum"),
        }));
    }
    if sums.data != sums.appended {
        return Err(Refusal::Altered(format!(
            "the SHA-256 of its data is {}, and etcd appended {}",
            hex(&sums.data),
            hex(&sums.appended)
        )));
    }
    let facts = read(&bolt)?;
    Ok(Content {
        size,
        sha256: hex(&sums.whole),
        revision: facts.revision,
        etcd_version: facts.version,
        cluster_id: None::<Id>,
    })
}

/// The last revision in the data of etcd, with or without a sum behind it.
///
/// # Errors
/// When that cannot be read.
pub(crate) fn revision_of(path: &Path) -> Result<i64, Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let bolt = Bolt::open(&file, size - size % BLOCK)?;
    Ok(read(&bolt)?.revision)
}

/// The sums of a file, and the one at its end.
struct Sums {
    whole: [u8; SUM],
    /// Of all but the last bytes, as many as a sum has.
    data: [u8; SUM],
    appended: [u8; SUM],
}

impl Sums {
    fn of(file: &File) -> std::io::Result<Self> {
        let (mut whole, mut data) = (Sha256::new(), Sha256::new());
        let mut reader = BufReader::with_capacity(1 << 20, file);
        // What has been read, and may be the end.
        let mut held = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = reader.read(&mut buffer)?;
            let Some(new) = buffer.get(..read).filter(|new| !new.is_empty()) else { break };
            whole.update(new);
            held.extend_from_slice(new);
            let settled = held.len().saturating_sub(SUM);
            data.update(held.get(..settled).unwrap_or_default());
            held.drain(..settled);
        }
        let mut appended = [0; SUM];
        for (to, from) in appended.iter_mut().zip(&held) {
            *to = *from;
        }
        Ok(Self { whole: whole.finalize().into(), data: data.finalize().into(), appended })
    }
}

struct Facts {
    revision: i64,
    version: Option<Version>,
}

/// What etcd would take from the data: as `etcdutl snapshot status`, and as etcd itself when it starts.
fn read(bolt: &Bolt<'_>) -> Result<Facts, Refusal> {
    let missing =
        |bucket: &str| Refusal::Foreign(format!("a database, but not etcd's: it has no bucket {bucket}"));
    let keys = bolt.bucket("key")?.ok_or_else(|| missing("key"))?;
    let meta = bolt.bucket("meta")?.ok_or_else(|| missing("meta"))?;
    // A store in which nothing was ever written is at 1.
    let mut revision = 1;
    bolt.each(&keys, |key, _| {
        let main = revision_in(key).ok_or_else(|| Flaw::Broken("a key is no revision".to_owned()))?;
        revision = revision.max(main);
        Ok(())
    })?;
    // What was deleted and then compacted has left no key.
    if let Some(compacted) = bolt.get(&meta, b"finishedCompactRev")? {
        revision = revision.max(revision_in(&compacted).unwrap_or_default());
    }
    let version = match bolt.bucket("cluster")? {
        Some(cluster) => bolt.get(&cluster, b"clusterVersion")?,
        None => None,
    };
    let version = version.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    Ok(Facts { revision, version })
}

/// The main part of a revision as etcd writes it: `MAIN_SUB`, with a `t` behind it where something was deleted.
fn revision_in(key: &[u8]) -> Option<i64> {
    let is_one = matches!(key.len(), 17 | 18) && key.get(8) == Some(&b'_');
    let main = key.get(..8).filter(|_| is_one)?;
    main.try_into().ok().map(i64::from_be_bytes)
}
