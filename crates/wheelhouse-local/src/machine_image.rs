//! The one image that every node needs before it can run any pod: the pause
//! container, and a shell for the storage provisioner's helper pods.
//!
//! It is put together from two static programs of the host, in the format of
//! `docker save`, so that no image builder and no registry is needed for `up`.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    binaries::hex,
    error::{Error, Result},
    folders,
};

/// What the image is called on every node.
pub(crate) const NAME: &str = "wheelhouse.dev/machine:local";

/// The programs that the image is made of: where they are on the host and in the image, and the
/// Debian package that brings them.
pub(crate) const PROGRAMS: [(&str, &str, &str); 2] =
    [("/usr/bin/catatonit", "pause", "catatonit"), ("/usr/bin/busybox", "bin/busybox", "busybox-static")];

/// The commands that the helper pods' scripts use.
const SHELL_COMMANDS: [&str; 4] = ["sh", "mkdir", "nsenter", "rm"];

/// Writes the image to `path`, unless it is there.
pub(crate) fn ensure(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let programs = PROGRAMS
        .into_iter()
        .map(|(host, inside, _)| {
            let host = on_host(host);
            Ok((inside, fs::read(&host).map_err(Error::file("read", &host))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let archive = archive(&programs).map_err(Error::file("put together the image", path))?;
    folders::write_file(path, archive, 0o644)
}

/// Some releases have /usr merged and some name the file by its old place.
pub(crate) fn on_host(path: &str) -> PathBuf {
    let merged = PathBuf::from(path);
    let old = PathBuf::from(path.replacen("/usr/", "/", 1));
    if merged.exists() { merged } else { old }
}

fn archive(programs: &[(&str, Vec<u8>)]) -> std::io::Result<Vec<u8>> {
    let layer = layer(programs)?;
    let layer_digest = hex(&Sha256::digest(&layer));
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/pause", "-P"], "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    })
    .to_string();
    let config_file = format!("{}.json", hex(&Sha256::digest(&config)));
    let layer_file = format!("{layer_digest}.tar");
    let manifest = json!([{"Config": config_file, "RepoTags": [NAME], "Layers": [layer_file]}]).to_string();

    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, &config_file, config.as_bytes(), 0o644)?;
    add(&mut archive, &layer_file, &layer, 0o644)?;
    add(&mut archive, "manifest.json", manifest.as_bytes(), 0o644)?;
    archive.into_inner()
}

fn layer(programs: &[(&str, Vec<u8>)]) -> std::io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for (name, content) in programs {
        add(&mut layer, name, content, 0o755)?;
    }
    for command in SHELL_COMMANDS {
        let mut header = header(0o777, 0);
        header.set_entry_type(tar::EntryType::Symlink);
        layer.append_link(&mut header, format!("bin/{command}"), "busybox")?;
    }
    layer.into_inner()
}

fn add<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    content: &[u8],
    mode: u32,
) -> std::io::Result<()> {
    archive.append_data(&mut header(mode, content.len() as u64), name, content)
}

/// The same each time: an image is named by its content.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_programs_make_the_same_image() {
        let programs = [("pause", b"one".to_vec())];
        assert_eq!(archive(&programs).unwrap(), archive(&programs).unwrap());
    }

    #[test]
    fn the_manifest_names_the_image_and_its_layer_by_digest() {
        let bytes = archive(&[("pause", b"one".to_vec())]).unwrap();
        let mut names = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            if name == "manifest.json" {
                let manifest: serde_json::Value = serde_json::from_reader(&mut entry).unwrap();
                assert_eq!(NAME, manifest[0]["RepoTags"][0]);
                assert!(names.contains(&manifest[0]["Layers"][0].as_str().unwrap().to_owned()));
            }
            names.push(name);
        }
        assert_eq!(3, names.len());
    }
}
