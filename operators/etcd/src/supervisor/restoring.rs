//! Makes the data ready with which another incarnation of a cluster begins: from a backup, or from what a
//! survivor has left.
//!
//! What is there is only read. What is made is put together beside etcd's own folder, and can be made again
//! from the beginning at any time.

use std::{
    fs, io,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::process::Command;

use super::{
    folder::{Volume, remove},
    process::Etcd,
};
use crate::{
    backup::snapshot::revision_of,
    etcd::{Client, Tcp},
    incarnation::Source,
    layout,
};

/// Every incarnation has so many revisions of its own, where clients know those of others: what it begins from is moved
/// there, so that it is ahead of all that anybody has seen, whichever backup it is. At 10,000 writes a second, it takes thirty
/// years to write as many.
const REVISIONS: u64 = 10_000_000_000_000;
/// Where etcd listens, for nobody but this program, while it reads what a survivor has left.
const CLIENT_PORT: u16 = 12379;
const PEER_PORT: u16 = 12380;
/// How long that may take.
const READS_WITHIN: Duration = Duration::from_secs(600);
/// How long it may then take to write everything down.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Whom the data is made for.
#[derive(Clone, Debug)]
pub(super) struct For<'a> {
    pub(super) volume: &'a Volume,
    /// The UID of the EtcdCluster.
    pub(super) cluster_uid: &'a str,
    pub(super) member: &'a str,
    pub(super) peer_url: String,
    pub(super) incarnation: u32,
}

/// Makes the data ready, unless it is.
///
/// # Errors
/// When that cannot be done, in words.
pub(super) async fn prepare(whom: &For<'_>, source: &Source) -> Result<(), String> {
    let cannot = |error: io::Error| format!("cannot make the data ready in {}: {error}", layout::VOLUME);
    if whom.volume.is_prepared().map_err(cannot)? {
        return Ok(());
    }
    remove(&whom.volume.preparing()).map_err(cannot)?;
    match source {
        Source::Backup { moves_revisions, .. } => {
            let snapshot = Path::new(layout::SNAPSHOT);
            if !snapshot.exists() {
                return Err(format!("the backup is not at {}", layout::SNAPSHOT));
            }
            let moved = if *moves_revisions { Some(moved(whom, snapshot).await?) } else { None };
            restore(whom, snapshot, moved, true).await?;
        }
        Source::Survivor { member, .. } => {
            let copy = salvage(whom, member).await?;
            let data = copy.join("member/snap/db");
            let moved = moved(whom, &data).await?;
            restore(whom, &data, Some(moved), false).await?;
        }
    }
    whom.volume.finish_preparing().map_err(cannot)?;
    // Not needed any more; if they stay, nothing is wrong.
    let _ = remove(&whom.volume.salvaged());
    let _ = fs::remove_file(layout::SNAPSHOT);
    Ok(())
}

/// Has etcd read a copy of what a survivor has left, alone, and write down all of it. Where the copy is.
async fn salvage(whom: &For<'_>, member: &str) -> Result<std::path::PathBuf, String> {
    let survivor = Volume::at(layout::SURVIVOR);
    let found = survivor
        .look(whom.cluster_uid, member)
        .map_err(|error| format!("cannot read the volume of {member}: {error}"))?;
    if !matches!(found, super::folder::Folder::Ours(_)) {
        return Err(format!("the volume of {member} does not have its data: {found:?}"));
    }
    let copy = whom.volume.salvaged();
    let copying = {
        let (from, to) = (survivor.data(), copy.clone());
        tokio::task::spawn_blocking(move || {
            remove(&to)?;
            copy_folder(&from, &to)
        })
    };
    match copying.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(format!("cannot copy the data of {member}: {error}")),
        Err(error) => return Err(format!("cannot copy the data of {member}: {error}")),
    }
    read_alone(whom, &copy).await?;
    Ok(copy)
}

/// Everybody else is dropped from the copy's list of members, so that what is committed can be read without them.
async fn read_alone(whom: &For<'_>, data: &Path) -> Result<(), String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let flags = [
        ("name", whom.member.to_owned()),
        ("data-dir", data.display().to_string()),
        ("listen-client-urls", url(CLIENT_PORT)),
        ("advertise-client-urls", url(CLIENT_PORT)),
        ("listen-peer-urls", url(PEER_PORT)),
        ("initial-advertise-peer-urls", url(PEER_PORT)),
        ("initial-cluster", format!("{}={}", whom.member, url(PEER_PORT))),
        ("force-new-cluster", "true".to_owned()),
    ];
    let arguments: Vec<_> = flags.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
    let mut etcd = Etcd::start("etcd", &arguments)
        .map_err(|error| format!("cannot start etcd, which the image must have: {error}"))?;
    let serving = tokio::select! {
        serving = serves() => serving,
        ended = etcd.ended() => {
            Err(format!("etcd cannot read what is left ({}): {}", ended.how, ended.last_lines.join(" ")))
        }
    };
    serving?;
    match etcd.end_within(ENDS_WITHIN).await {
        true => Ok(()),
        false => Err("etcd did not write down what it had read".to_owned()),
    }
}

async fn serves() -> Result<(), String> {
    let begun = Instant::now();
    let address = format!("127.0.0.1:{CLIENT_PORT}");
    loop {
        let asking = async {
            Client::connect(Arc::new(Tcp), &address, Duration::from_secs(2)).await?.get("health").await
        };
        match asking.await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_only_locked() => return Ok(()),
            Err(error) if begun.elapsed() > READS_WITHIN => {
                return Err(format!("etcd does not get to the end of what is left: {error}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// By how much the revisions of a snapshot are to be moved forward.
async fn moved(whom: &For<'_>, snapshot: &Path) -> Result<u64, String> {
    let path = snapshot.to_owned();
    let read = tokio::task::spawn_blocking(move || revision_of(&path)).await;
    let revision = read.map_err(|error| error.to_string())?.map_err(|refusal| refusal.to_string())?;
    Ok(moved_by(u64::try_from(revision).unwrap_or_default(), whom.incarnation))
}

/// To the revisions of that incarnation. What is there already, as in a backup of somebody else's cluster, moves on by as many.
fn moved_by(revision: u64, incarnation: u32) -> u64 {
    let of = revision / REVISIONS;
    u64::from(incarnation).checked_sub(of).filter(|ahead| *ahead > 0).unwrap_or(1) * REVISIONS
}

/// Makes a data folder of a snapshot, with this member as the only one, under a token that no other incarnation had.
async fn restore(
    whom: &For<'_>,
    snapshot: &Path,
    moved_by: Option<u64>,
    has_checksum: bool,
) -> Result<(), String> {
    let mut command = Command::new("etcdutl");
    command.args(["snapshot", "restore"]).arg(snapshot);
    command.args(restore_flags(whom, moved_by, has_checksum));
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "etcdutl cannot restore {} ({}): {}",
            snapshot.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("cannot start etcdutl, which the image must have: {error}")),
    }
}

fn restore_flags(whom: &For<'_>, moved_by: Option<u64>, has_checksum: bool) -> Vec<String> {
    let mut flags = vec![
        format!("--name={}", whom.member),
        format!("--initial-cluster={}={}", whom.member, whom.peer_url),
        format!("--initial-advertise-peer-urls={}", whom.peer_url),
        format!("--initial-cluster-token={}-{}", whom.cluster_uid, whom.incarnation),
        format!("--data-dir={}", whom.volume.preparing().display()),
    ];
    if let Some(moved_by) = moved_by {
        flags.extend([format!("--bump-revision={moved_by}"), "--mark-compacted".to_owned()]);
    }
    if !has_checksum {
        flags.push("--skip-hash-check".to_owned());
    }
    flags
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_incarnation_has_a_token_of_its_own_and_clients_notice_where_they_knew_later_revisions() {
        let volume = Volume::at("/var/etcd");
        let flags = |incarnation, moved_by, has_checksum| {
            let whom = For {
                volume: &volume,
                cluster_uid: "uid",
                member: "db-7",
                peer_url: "http://db-7.db.n.svc:2380".to_owned(),
                incarnation,
            };
            restore_flags(&whom, moved_by, has_checksum)
        };
        let has = |flags: &[String], flag: &str| flags.iter().any(|one| one == flag);
        let in_place = flags(2, Some(7), false);
        assert!(has(&in_place, "--initial-cluster-token=uid-2"), "{in_place:?}");
        assert!(has(&in_place, "--bump-revision=7") && has(&in_place, "--mark-compacted"));
        assert!(has(&in_place, "--skip-hash-check"), "what a survivor left has no checksum");
        assert!(has(&in_place, "--initial-cluster=db-7=http://db-7.db.n.svc:2380"), "it is alone at first");
        let new = flags(1, None, true);
        assert!(has(&new, "--initial-cluster-token=uid-1"), "{new:?}");
        let others = ["--bump-revision", "--mark-compacted", "--skip-hash-check"];
        assert!(!new.iter().any(|flag| others.iter().any(|other| flag.starts_with(other))), "{new:?}");
    }
    /// Whichever backup is restored, and however often: clients that knew later revisions see that those are gone.
    #[test]
    fn revisions_only_go_forward_from_one_incarnation_to_the_next() {
        let after = |revision: u64, incarnation| revision + moved_by(revision, incarnation);
        let backup = 700;
        let first = after(backup, 1);
        assert!(first > backup);
        let again = after(backup, 2);
        assert!(again > first + 1_000_000_000, "the same backup once more: {again}");
        let survivor = after(again + 5, 3);
        assert!(survivor > again + 5);
        assert!(after(first + 9, 4) > survivor + 1_000_000_000, "a backup of between");
        let foreign = 50 * REVISIONS + 3;
        assert!(after(foreign, 5) > foreign);
    }
}
