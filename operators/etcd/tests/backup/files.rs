//! What a file has to be.

use std::{fs, path::Path};

use etcd_operator::backup::snapshot::{Refusal, verify};

use super::etcd::Etcd;

fn verify_with(good: &[u8], folder: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Refusal {
    let mut content = good.to_vec();
    change(&mut content);
    let file = folder.join("changed");
    fs::write(&file, content).unwrap();
    verify(&file).unwrap_err()
}

#[tokio::test]
async fn a_whole_snapshot_is_told_from_every_other_file() {
    let etcd = Etcd::start().await;
    let folder = etcd.folder.path();
    let file = folder.join("snapshot");

    etcd.snapshot(&file).await;
    assert_eq!(verify(&file).unwrap().revision, 1, "of an etcd in which nothing was written");

    let revision = etcd.fill(400).await;
    etcd.snapshot(&file).await;
    let content = verify(&file).unwrap();
    assert_eq!(content.revision, revision);
    assert_eq!(content.size, fs::metadata(&file).unwrap().len());
    assert_eq!(content.sha256.len(), 64);
    assert_eq!(content.etcd_version.map(|version| (version.major, version.minor)), Some((3, 6)));

    let good = fs::read(&file).unwrap();
    for kept in [good.len() - 1, good.len() - 32, good.len() - 512, good.len() / 2, 20_000, 4096 + 80] {
        let said = verify_with(&good, folder, |content| content.truncate(kept));
        assert!(matches!(said, Refusal::Truncated(_)), "of {} bytes {kept} are left: {said}", good.len());
    }
    for at in [17, 5000, good.len() / 2, good.len() - 1] {
        let said = verify_with(&good, folder, |content| content[at] ^= 1);
        let is_told =
            matches!(said, Refusal::Altered(_)) || (at == 17 && matches!(said, Refusal::Foreign(_)));
        assert!(is_told, "byte {at}: {said}");
    }
    let foreign = [
        verify_with(&good, folder, Vec::clear),
        verify_with(&good, folder, |content| *content = b"-- PostgreSQL database dump".repeat(1000)),
        verify_with(&good, folder, |content| *content = vec![0; 1 << 16]),
        verify_with(&good, folder, |content| *content = vec![0; (1 << 16) + 32]),
    ];
    for said in foreign {
        assert!(matches!(said, Refusal::Foreign(_)), "{said}");
    }
    let own_file = folder.join("data/member/snap/db");
    let said = verify(&own_file).unwrap_err();
    assert!(said.to_string().contains("it has no checksum at its end"), "{said}");
}

#[tokio::test]
async fn what_was_deleted_and_compacted_counts_for_the_revision() {
    let etcd = Etcd::start().await;
    etcd.fill(1).await;
    let revision = etcd.delete_and_compact("key-0").await;
    let file = etcd.folder.path().join("snapshot");
    etcd.snapshot(&file).await;
    assert_eq!(verify(&file).unwrap().revision, revision);
}
