//! The commands that the book shows, run as they stand.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::process::Command;

use support::{Wheelhouse, host::Host, tree};

/// The blocks of a page that a reader is meant to run: those fenced with `sh`.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&mut open, line.trim()) {
            (None, "```sh") => open = Some(String::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), _) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

#[test]
fn the_page_on_local_clusters_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/local-kubernetes.md", &["nginx"]);
}

#[test]
fn the_page_on_gordon_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/gordon.md", &["gordon", "gordon-operator"]);
}

#[test]
fn the_page_on_explaining_can_be_followed_from_top_to_bottom() {
    can_be_followed("docs/explaining.md", &["gordon", "gordon-operator"]);
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
    let page = std::fs::read_to_string(tree().join(page)).unwrap();
    let blocks = blocks(&page);
    assert!(blocks.len() >= 5, "the page shows {} blocks of commands", blocks.len());
    for image in images {
        support::image(image);
    }
    let before = Host::now();
    let wheelhouse = Wheelhouse::new();
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_wheelhouse")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // One shell for the whole page, because a reader has one too.
    let mut shell = Command::new("bash");
    wheelhouse.in_this_world(&mut shell);
    let output = shell
        .args(["-eux", "-O", "expand_aliases", "-c", &blocks.join("\n")])
        .env("PATH", path)
        .current_dir(tree())
        .output()
        .unwrap();
    let said = support::Said::from(output);
    let names: Vec<_> = std::fs::read_dir(wheelhouse.state())
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    for name in &names {
        wheelhouse.local(&["down", &name.to_string_lossy()]).ok();
    }
    said.ok();
    assert!(names.is_empty(), "the page leaves clusters behind: {names:?}");
    assert_eq!("", Host::left_since(&before));
}
