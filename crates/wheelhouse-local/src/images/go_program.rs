//! The program of an image that upstream writes in Go: a folder with a
//! Containerfile, and in it a folder for each version, which is a Go module.
//! This machine's Go compiles it.
//!
//! Invariants:
//! - A version's folder is called as the version is, and so is the tag of its image.
//! - What is compiled is pinned, by the go.mod and the go.sum of the version.
//! - An image is known by the sources, not by the binary: for one that the cache
//!   has, nothing is compiled. Versions are nothing to each other.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    folders_in,
    input::{Input, key},
};
use crate::{
    error::{Error, Result},
    folders::{self, Lock},
    go,
    progress::Progress,
};

/// One version of a program in Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoProgram {
    /// The folder of the image.
    folder: PathBuf,
    /// The name of that folder.
    pub(super) name: String,
    /// The name of the folder in it that is the module.
    pub(super) version: String,
}

impl GoProgram {
    /// Every version that an image's folder has; none where it is of another kind.
    pub(super) fn all_in(folder: &Path, name: &str) -> Result<Vec<Self>> {
        let version = |version| Self { folder: folder.to_owned(), name: name.to_owned(), version };
        Ok(versions_in(folder)?.into_iter().map(version).collect())
    }

    /// What people call this version of it.
    pub(super) fn full_name(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// What it is made of in the tree: all of the folder but its other versions.
    pub(super) fn sources(&self) -> Result<Vec<Input>> {
        let mut others = versions_in(&self.folder)?;
        others.retain(|version| *version != self.version);
        let mut sources = Input::all_in(&self.folder)?;
        sources.retain(|source| !others.iter().any(|version| source.is_in(version)));
        Ok(sources)
    }

    /// What decides, beside the sources, what the binary is.
    pub(super) fn target(&self) -> String {
        format!("{} {}", go::LINKER_FLAGS, std::env::consts::ARCH)
    }

    /// The binary, as the Containerfile expects it.
    pub(super) async fn compile(&self, progress: &Progress) -> Result<Input> {
        let output = folders::cache().join("go-programs").join(self.full_name());
        self.compile_to(&output, progress).await?;
        let content = fs::read(&output).map_err(Error::file("read", &output))?;
        // The image has it, and Go's own cache what it takes to link it again.
        fs::remove_file(&output).map_err(Error::file("remove", &output))?;
        Ok(Input::new("program", content, true))
    }

    /// The binary, for whoever runs it without a container; compiled if the cache does not have it.
    pub(super) async fn kept(&self, progress: &Progress) -> Result<PathBuf> {
        let folder = folders::cache().join("go-programs");
        let name = format!("{}-{}", self.full_name(), key(&self.sources()?, &self.target()));
        let (path, draft) = (folder.join(&name), folder.join(format!("{name}.draft")));
        if path.is_file() {
            return Ok(path);
        }
        let _lock = Lock::in_cache(&self.full_name(), |holder| {
            progress.line(format!("{name} is being compiled by process {holder}; waiting for it"));
        })
        .await?;
        if !path.is_file() {
            self.compile_to(&draft, progress).await?;
            fs::rename(&draft, &path).map_err(Error::file("rename", &draft))?;
        }
        Ok(path)
    }

    async fn compile_to(&self, output: &Path, progress: &Progress) -> Result<()> {
        let user = folders::owner_of_the_cache()?;
        let package = go::Package {
            module: &self.folder.join(&self.version),
            path: ".",
            linker_flags: go::LINKER_FLAGS,
            user: user.as_ref(),
            takes: "once; 2 minutes on two cores, less than one after another version",
        };
        // Go makes the folder, as the user whose the cache is.
        package.compile(output, progress).await
    }
}

/// The names of the folders that are Go modules.
fn versions_in(folder: &Path) -> Result<Vec<String>> {
    let folders = folders_in(folder)?.into_iter();
    Ok(folders.filter(|(_, folder)| folder.join("go.mod").is_file()).map(|(version, _)| version).collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn all_of(name: &str) -> Vec<GoProgram> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images").join(name);
        GoProgram::all_in(&folder, name).unwrap()
    }

    fn etcd() -> Vec<GoProgram> {
        all_of("etcd")
    }

    fn read(program: &GoProgram, file: &str) -> String {
        fs::read_to_string(program.folder.join(&program.version).join(file)).unwrap()
    }

    #[test]
    fn an_etcd_is_of_the_version_that_its_folder_is_called() {
        assert!(!etcd().is_empty());
        for program in etcd() {
            let pins = read(&program, "go.mod");
            for part in ["server", "etcdctl", "etcdutl", "api", "client", "pkg"] {
                let pin = format!("\tgo.etcd.io/etcd/{part}/v3 {}", program.version);
                let is_pinned = pins.lines().any(|line| line.trim_end_matches(" // indirect") == pin);
                assert!(is_pinned, "{} does not pin{pin}", program.full_name());
            }
        }
    }

    #[test]
    fn every_version_has_the_one_main() {
        for program in etcd().into_iter().chain(all_of("s3")) {
            let main = program.folder.join(&program.version).join("main.go");
            assert_eq!(Path::new("../main.go"), fs::read_link(main).unwrap());
        }
    }

    #[test]
    fn an_s3_is_of_the_version_of_rclone_that_its_folder_is_called() {
        assert!(!all_of("s3").is_empty());
        for program in all_of("s3") {
            let pin = format!("github.com/rclone/rclone {}", program.version);
            assert!(read(&program, "go.mod").contains(&pin), "{} does not pin {pin}", program.full_name());
        }
    }

    #[test]
    fn docker_compiles_with_the_same_flags_and_a_go_that_is_new_enough() {
        for program in etcd().into_iter().chain(all_of("s3")) {
            let containerfile = fs::read_to_string(program.folder.join("Containerfile")).unwrap();
            let flags = format!("go build -trimpath -ldflags \"{}\"", go::LINKER_FLAGS);
            assert!(containerfile.contains(&flags), "{flags} is not in: {containerfile}");
            let version = containerfile.split_once("library/golang:").unwrap().1.split('-').next().unwrap();
            let pins = read(&program, "go.mod");
            assert!(pins.contains(&format!("\ngo {version}.")), "{version} is not the Go of: {pins}");
        }
    }

    /// A folder of two versions.
    fn two_versions() -> (tempfile::TempDir, GoProgram) {
        let folder = tempfile::tempdir().unwrap();
        for file in ["Containerfile", "main.go", "v1.0.0/go.mod", "v1.0.1/go.mod", "etc/defaults"] {
            folders::write_file(&folder.path().join(file), "", 0o644).unwrap();
        }
        let mut versions = GoProgram::all_in(folder.path(), "x").unwrap();
        versions.retain(|program| program.version == "v1.0.1");
        (folder, versions.remove(0))
    }

    #[rstest]
    #[case::what_all_share("main.go", true)]
    #[case::how_it_is_packed("Containerfile", true)]
    #[case::what_is_packed_with_it("etc/defaults", true)]
    #[case::its_own_pins("v1.0.1/go.mod", true)]
    #[case::anothers_pins("v1.0.0/go.mod", false)]
    #[case::a_new_version("v1.1.0/go.mod", false)]
    fn a_version_is_made_anew_for_a_change_of_its_own_sources(#[case] file: &str, #[case] anew: bool) {
        let (folder, program) = two_versions();
        let now = || key(&program.sources().unwrap(), &program.target());
        let before = now();
        folders::write_file(&folder.path().join(file), "changed", 0o644).unwrap();
        assert_eq!(anew, before != now());
    }
}
