//! The commands that the book shows, run as they stand.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use support::{Wheelhouse, host::Host, page, tree};

#[test]
fn the_page_on_local_clusters_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/local-kubernetes.md", &["nginx"]);
}

#[test]
fn the_page_on_extending_the_api_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/extending-the-api.md", &[]);
}

#[test]
fn the_page_on_gordon_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/gordon.md", &["gordon", "gordon-operator"]);
}

#[test]
fn the_page_on_explaining_can_be_followed_from_top_to_bottom() {
    let images = ["gordon", "gordon-operator", "nginx", "cdn-operator", "etcd-v3.6.16", "etcd-operator"];
    can_be_followed("docs/explaining.md", &images);
}

#[test]
fn the_page_on_the_cdn_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/cdn.md", &["nginx", "cdn-operator"]);
}

#[test]
fn the_page_on_etcd_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/etcd.md", &["etcd-v3.6.16", "etcd-operator"]);
}

fn can_be_followed(page: &str, images: &[&str]) {
    // Two pages at once would find each other's clusters.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = std::fs::read_to_string(tree().join(page)).unwrap();
    let script = page::script(&text);
    assert!(script.lines().count() >= 5, "the page shows too few commands: {script}");
    for image in images {
        support::image(image);
    }
    let before = Host::now();
    let wheelhouse = Wheelhouse::new();
    let said = page::follow(&wheelhouse, &script, &tree());
    let left = page::clusters_left(&wheelhouse);
    let wrong = page::wrongly_shown(&text, &said.ok());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left.is_empty(), "the page leaves clusters behind: {left:?}");
    assert_eq!("", Host::left_since(&before));
}
