//! The programs of Kubernetes: built once from `kubernetes/`, kept in the cache.
//!
//! Invariants:
//! - An entry of the cache is named by a hash of everything that went into it,
//!   appears by one rename, and carries the checksums of its files; one that
//!   does not match them is built anew, never used.
//! - Of two callers at once, one builds and the other waits.
//! - With the entry there, nothing is built and nothing is fetched.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    error::{Error, Result},
    folders::{self, Lock},
    go,
    progress::Progress,
};

/// The version of Kubernetes that is built: the one that go.mod pins.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// What is compiled: the same files that lie in `kubernetes/`.
const SOURCES: [(&str, &str); 5] = [
    ("main.go", include_str!("../../../kubernetes/main.go")),
    ("go.mod", include_str!("../../../kubernetes/go.mod")),
    ("go.sum", include_str!("../../../kubernetes/go.sum")),
    ("provisioner/go.mod", include_str!("../../../kubernetes/provisioner/go.mod")),
    ("provisioner/go.sum", include_str!("../../../kubernetes/provisioner/go.sum")),
];

/// The multi-call binary, and the names it answers to.
const KUBERNETES: &str = "kubernetes";
const PROGRAMS: [&str; 8] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "etcd",
    "coredns",
];
const PROVISIONER: &str = "local-path-provisioner";
const CHECKSUMS: &str = "checksums.json";

/// A build needs this much room for Go's own caches and the result.
const ROOM_TO_BUILD: u64 = 6 << 30;

/// A folder with the programs of Kubernetes in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// The programs, built if the cache does not have them.
    pub async fn ensure(progress: &Progress) -> Result<Self> {
        let folder = entry();
        if intact(&folder) {
            return Ok(Self { folder });
        }
        let _lock = Lock::in_cache("kubernetes", |holder| {
            progress.line(format!("Kubernetes is being built by process {holder}; waiting for it"));
        })
        .await?;
        if !intact(&folder) {
            if folder.exists() {
                progress.line(format!("{} is incomplete or damaged: building it anew", folder.display()));
                folders::remove_folder(&folder)?;
            }
            build(&folder, progress).await?;
        }
        Ok(Self { folder })
    }

    /// The programs, built if they are not there. Whether they are as they were built is not looked
    /// at, which takes a fraction of a second: `up` did that.
    pub async fn ensure_there(progress: &Progress) -> Result<Self> {
        let folder = entry();
        if folder.join(CHECKSUMS).exists() { Ok(Self { folder }) } else { Self::ensure(progress).await }
    }

    /// The programs for a test's control plane: those of `KUBEBUILDER_ASSETS`
    /// where that is set, our own otherwise.
    pub async fn for_tests(progress: &Progress) -> Result<Self> {
        match std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()) {
            Some(folder) => Self::from_assets(PathBuf::from(folder)),
            None => Self::ensure(progress).await,
        }
    }

    fn from_assets(folder: PathBuf) -> Result<Self> {
        let missing: Vec<_> = ["kube-apiserver", "etcd"]
            .into_iter()
            .filter(|program| !folder.join(program).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(Self { folder });
        }
        Err(Error::Refused(format!(
            "KUBEBUILDER_ASSETS is {}, which has no {}: correct it, or unset it to use the Kubernetes that wheelhouse builds",
            folder.display(),
            missing.join(" and no ")
        )))
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder that has them all.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The linker flags: what `kubectl version` and the API server say of themselves.
fn linker_flags() -> String {
    let mut flags = go::LINKER_FLAGS.to_owned();
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", KUBERNETES_VERSION), ("gitMajor", major), ("gitMinor", minor)] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

/// Where this build of Kubernetes is, or will be.
fn entry() -> PathBuf {
    folders::cache().join("kubernetes").join(key())
}

/// Names an entry of the cache by everything that goes into it.
fn key() -> String {
    let mut hash = Sha256::new();
    for (name, content) in SOURCES {
        hash.update(format!("{name} {}\n", content.len()));
        hash.update(content);
    }
    hash.update(linker_flags());
    hash.update(std::env::consts::ARCH);
    let digest = hash.finalize();
    format!("{KUBERNETES_VERSION}-{}", hex(&digest).get(..12).unwrap_or_default())
}

#[derive(Serialize, Deserialize)]
struct Checksums {
    files: Vec<(String, String)>,
}

/// Whether the entry has every file, as it was built.
fn intact(folder: &Path) -> bool {
    let read = || -> Option<bool> {
        let checksums: Checksums = serde_json::from_slice(&fs::read(folder.join(CHECKSUMS)).ok()?).ok()?;
        let files = checksums
            .files
            .iter()
            .all(|(name, expected)| checksum(&folder.join(name)).is_ok_and(|found| found == *expected));
        Some(files && PROGRAMS.iter().all(|program| folder.join(program).exists()))
    };
    read().unwrap_or(false)
}

/// What a file's content hashes to.
pub(crate) fn checksum(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path).map_err(Error::file("open", path))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(Error::file("read", path))? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn build(folder: &Path, progress: &Progress) -> Result<()> {
    let cache = folder.parent().unwrap_or(folder);
    let free = folders::free_bytes(cache)?;
    if free < ROOM_TO_BUILD {
        return Err(Error::Refused(format!(
            "building Kubernetes needs {} GiB of free disk and {} has {:.1}: make room, or set WHEELHOUSE_CACHE_DIR and GOCACHE to folders with more",
            ROOM_TO_BUILD >> 30,
            cache.display(),
            free as f64 / f64::from(1 << 30)
        )));
    }
    remove_partials(cache)?;
    let partial = Partial(cache.join(format!("partial-{}", std::process::id())));
    for (name, content) in SOURCES {
        folders::write_file(&partial.0.join("source").join(name), content, 0o644)?;
    }
    build_in(&partial.0, progress).await?;
    folders::remove_folder(&partial.0.join("source"))?;
    fs::rename(&partial.0, folder).map_err(Error::file("put the finished build at", folder))
}

/// A folder that is removed when the build fails or is interrupted.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = folders::remove_folder(&self.0);
    }
}

/// What a killed build left; the lock says that no build is running.
fn remove_partials(cache: &Path) -> Result<()> {
    folders::create_folder(cache)?;
    for entry in fs::read_dir(cache).map_err(Error::file("list", cache))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("partial-") {
            folders::remove_folder(&entry.path())?;
        }
    }
    Ok(())
}

async fn build_in(folder: &Path, progress: &Progress) -> Result<()> {
    let source = folder.join("source");
    let takes = "once; all of it takes about ten minutes on two cores";
    let kubernetes =
        go::Package { module: &source, path: ".", linker_flags: &linker_flags(), user: None, takes };
    kubernetes.compile(&folder.join(KUBERNETES), progress).await?;
    let provisioner = go::Package {
        module: &source.join("provisioner"),
        path: "github.com/rancher/local-path-provisioner",
        linker_flags: go::LINKER_FLAGS,
        user: None,
        takes,
    };
    provisioner.compile(&folder.join(PROVISIONER), progress).await?;

    for program in PROGRAMS {
        let link = folder.join(program);
        std::os::unix::fs::symlink(KUBERNETES, &link).map_err(Error::file("link", &link))?;
    }
    let files = [KUBERNETES, PROVISIONER]
        .into_iter()
        .map(|name| Ok((name.to_owned(), checksum(&folder.join(name))?)))
        .collect::<Result<_>>()?;
    let checksums = serde_json::to_vec_pretty(&Checksums { files }).unwrap_or_default();
    folders::write_file(&folder.join(CHECKSUMS), checksums, 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in [KUBERNETES, PROVISIONER].into_iter().chain(PROGRAMS) {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let files = [KUBERNETES, PROVISIONER]
            .map(|name| (name.to_owned(), checksum(&folder.path().join(name)).unwrap()))
            .to_vec();
        fs::write(folder.path().join(CHECKSUMS), serde_json::to_vec(&Checksums { files }).unwrap()).unwrap();
        folder
    }

    #[test]
    fn an_entry_with_all_files_as_built_is_intact() {
        assert!(intact(entry().path()));
    }

    #[rstest::rstest]
    #[case::cut_short(KUBERNETES, Some("kube"))]
    #[case::altered(PROVISIONER, Some("local-path-provisionex"))]
    #[case::missing_binary(PROVISIONER, None)]
    #[case::missing_name("kubelet", None)]
    #[case::half_written_checksums(CHECKSUMS, Some("{\"files\":["))]
    #[case::no_checksums(CHECKSUMS, None)]
    fn a_damaged_entry_is_not_used(#[case] file: &str, #[case] content: Option<&str>) {
        let folder = entry();
        let path = folder.path().join(file);
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        assert!(!intact(folder.path()));
    }

    #[test]
    fn the_version_stamp_is_the_pinned_version() {
        let pinned = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(SOURCES.iter().any(|(name, content)| *name == "go.mod" && content.contains(&pinned)));
    }

    #[test]
    fn assets_without_an_api_server_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let refused = Binaries::from_assets(folder.path().to_owned()).unwrap_err().to_string();
        assert!(refused.contains("has no kube-apiserver:"), "{refused}");
    }
}
