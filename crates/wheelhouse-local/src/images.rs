//! Container images without Docker, built with buildah. There are three kinds:
//!
//! - Every `images/NAME/Containerfile` is built on a Debian base that mmdebstrap
//!   makes.
//! - Where there are Go modules beside it, as in `images/NAME/v1.2.3/go.mod`, each
//!   becomes an image on that base, with what this machine's Go makes of it.
//! - Every package in `images/`, and every operator, becomes an image of one
//!   static binary. They share `images/Containerfile`.
//!
//! The same files build with `docker build` on public base images: build
//! arguments are all that differs.
//!
//! A finished image is an archive in the cache, in the format of `docker save`,
//! named by a hash of everything that went into it. What did not change is not
//! built again.

mod go_program;
mod input;
mod program;

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use go_program::GoProgram;
use input::{Input, files};
use program::Program;

use crate::{
    address_plan::{self, Range},
    binaries::checksum,
    command::{Call, is_installed},
    error::{Error, Result},
    folders::{self, Lock},
    progress::Progress,
};

/// Images are called `wheelhouse.dev/NAME:VERSION`, unless they go to a registry.
pub const REGISTRY: &str = "wheelhouse.dev";
/// The version of every image that this tree builds, but of those of upstream's programs: they have
/// the versions of these.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const BUILDAH: &str = "buildah";
const CONTAINERFILE: &str = "Containerfile";
/// That of every image of one static binary: the same file that lies in `images/`.
const PROGRAM_CONTAINERFILE: &str = include_str!("../../../images/Containerfile");

/// The release of Debian that images are based on.
const SUITE: &str = "trixie";
/// A build needs room for the base, the layers and the archive.
const ROOM_TO_BUILD: u64 = 2 << 30;

/// An image that can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its short name: that of its folder in `images/`, followed by the version where it has several
    /// (`etcd-v3.6.16`), or `NAME-operator` for `operators/NAME`.
    pub name: String,
    content: Content,
}

/// What an image is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// A folder with a Containerfile, on the Debian base.
    Folder(PathBuf),
    /// A version of a program in Go, on the Debian base.
    GoProgram(GoProgram),
    /// One static binary, and nothing else; and its version.
    Program(Program, String),
}

impl Image {
    /// Every image of a tree.
    pub fn all_of(tree: &Path) -> Result<Vec<Self>> {
        let (images, operators) = (tree.join("images"), tree.join("operators"));
        let mut all = Vec::new();
        for (name, folder) in folders_in(&images)? {
            if folder.join("Cargo.toml").is_file() {
                all.push(Self::of_program(name, folder));
            } else if folder.join(CONTAINERFILE).is_file() {
                let versions = GoProgram::all_in(&folder, &name)?;
                if versions.is_empty() {
                    all.push(Self { name, content: Content::Folder(folder) });
                }
                all.extend(versions.into_iter().map(Self::of_go_program));
            }
        }
        if operators.is_dir() {
            for (name, folder) in folders_in(&operators)? {
                if folder.join("src/main.rs").is_file() {
                    all.push(Self::of_program(format!("{name}-operator"), folder));
                }
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        share_what_is_compiled(tree, &mut all);
        Ok(all)
    }

    /// The binary has the image's name.
    fn of_program(name: String, package: PathBuf) -> Self {
        Self::of_package(&name, &package, VERSION)
    }

    /// The image of a package's binary, wherever the package is; the binary has the image's name.
    pub fn of_package(name: &str, package: &Path, version: &str) -> Self {
        let program = Program { package: package.to_owned(), name: name.to_owned(), beside: Vec::new() };
        Self { content: Content::Program(program, version.to_owned()), name: name.to_owned() }
    }

    /// The program of an image that is one in Go, for whoever runs it without a container; compiled if the cache
    /// does not have it.
    ///
    /// # Errors
    /// When it is no such image, or cannot be compiled.
    pub async fn program(&self, progress: &Progress) -> Result<PathBuf> {
        match &self.content {
            Content::GoProgram(program) => program.kept(progress).await,
            _ => Err(Error::Refused(format!("{} is no program in Go", self.name))),
        }
    }

    fn of_go_program(program: GoProgram) -> Self {
        Self { name: program.full_name(), content: Content::GoProgram(program) }
    }

    /// What pods call it.
    pub fn reference(&self) -> String {
        self.reference_in(REGISTRY)
    }

    /// What pods call it when it is in a registry.
    pub fn reference_in(&self, registry: &str) -> String {
        let (name, version) = match &self.content {
            Content::GoProgram(program) => (&program.name, program.version.as_str()),
            Content::Program(_, version) => (&self.name, version.as_str()),
            Content::Folder(_) => (&self.name, VERSION),
        };
        format!("{}/{name}:{version}", registry.trim_end_matches('/'))
    }

    /// The archive of the image as it is now; built if the cache does not have it.
    pub async fn ensure(&self, progress: &Progress) -> Result<PathBuf> {
        if let Content::Program(..) = self.content {
            // Which image it is only its binary says: whoever cannot make one of that is not to wait until it is compiled.
            check_tools(self.tools())?;
        }
        let _lock = Lock::in_cache("images", |holder| {
            progress.line(format!("process {holder} is building images; waiting for it"));
        })
        .await?;
        let mut inputs = self.inputs(progress).await?;
        let key = input::key(&inputs, &self.basis());
        let archive = folders::cache().join("images").join(format!("{}-{key}.tar", self.name));
        if !is_intact(&archive) {
            check_tools(self.tools())?;
            check_room()?;
            remove_partials()?;
            if let Content::GoProgram(program) = &self.content {
                inputs.push(program.compile(progress).await?);
            }
            let stage = progress.stage(format!("building the image {} (half a minute at most)", self.name));
            let built = self.build(&inputs, &archive).await;
            clear_storage().await?;
            built?;
            self.remove_older(&archive)?;
            stage.done();
        }
        Ok(archive)
    }

    /// Puts the image into a registry, under the name that [`Self::reference_in`] gives; its archive.
    pub async fn push(&self, registry: &str, progress: &Progress) -> Result<PathBuf> {
        let archive = self.ensure(progress).await?;
        check_tools(&[BUILDAH])?;
        let _lock = Lock::in_cache("images", |_| {}).await?;
        let stage = progress.stage(format!("pushing {}", self.reference_in(registry)));
        let pushed = push_archive(&archive, &self.reference_in(registry)).await;
        clear_storage().await?;
        pushed?;
        stage.done();
        Ok(archive)
    }

    /// The programs that it is made with.
    fn tools(&self) -> &'static [&'static str] {
        match self.content {
            Content::Folder(_) | Content::GoProgram(_) => &[BUILDAH, "mmdebstrap"],
            // It is built on nothing.
            Content::Program(..) => &[BUILDAH],
        }
    }

    /// What the image is built on and for, as opposed to what it is made of.
    fn basis(&self) -> String {
        match &self.content {
            Content::GoProgram(program) => format!("{SUITE} {} {}", program.version, program.target()),
            Content::Program(_, version) => format!("{SUITE} {version}"),
            Content::Folder(_) => format!("{SUITE} {VERSION}"),
        }
    }

    /// All that decides what this image is, of this tree.
    async fn inputs(&self, progress: &Progress) -> Result<Vec<Input>> {
        match &self.content {
            Content::Folder(folder) => Input::all_in(folder),
            Content::GoProgram(program) => program.sources(),
            Content::Program(program, _) => Ok(vec![
                Input::new(CONTAINERFILE, PROGRAM_CONTAINERFILE, false),
                Input::new("program", program.compile(progress).await?, true),
            ]),
        }
    }

    async fn build(&self, inputs: &[Input], archive: &Path) -> Result<()> {
        let doing = format!("build the image {}", self.name);
        let context = storage().join("context");
        for input in inputs {
            input.write_to(&context)?;
        }
        let build = buildah(&doing).args(["bud", "--isolation", "chroot", "--network", "host"]);
        let build = match &self.content {
            Content::Folder(_) | Content::GoProgram(_) => {
                import_base(&doing).await?;
                build.args(["--build-arg", &format!("BASE={BASE_IMAGE}")])
            }
            // Without the time of the build, the same binary is the same image.
            Content::Program(..) => build.args(["--timestamp", "0"]),
        };
        let build = match &self.content {
            Content::Folder(_) => build,
            Content::GoProgram(_) | Content::Program(..) => build.args(["--build-arg", "PROGRAM=prebuilt"]),
        };
        build
            .args(["--tag", &self.reference(), "--file"])
            .arg(context.join(CONTAINERFILE))
            .arg(&context)
            .run()
            .await?;
        let partial = archive.with_extension(format!("partial-{}", std::process::id()));
        let target = format!("docker-archive:{}:{}", partial.display(), self.reference());
        buildah(&doing).args(["push", "--quiet", &self.reference(), &target]).run().await?;
        put(&partial, archive)
    }

    /// Archives of what this image was before.
    fn remove_older(&self, current: &Path) -> Result<()> {
        let folder = current.parent().unwrap_or(current);
        for path in files(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The name, a key of twelve letters, and `.tar` or `.tar.sha256`.
            let is_ours = name
                .strip_prefix(&self.name)
                .and_then(|rest| rest.strip_prefix('-')?.split_once('.'))
                .is_some_and(|(key, ending)| key.len() == 12 && ending.starts_with("tar"));
            if is_ours && path != current && path != checksum_file(current) {
                fs::remove_file(&path).map_err(Error::file("remove the older image", &path))?;
            }
        }
        Ok(())
    }
}

/// Lets all programs of a workspace be compiled with one set of features: otherwise each would compile for itself what
/// all of them depend on.
fn share_what_is_compiled(tree: &Path, images: &mut [Image]) {
    if !tree.join("Cargo.toml").is_file() {
        return;
    }
    let packages: Vec<_> = images
        .iter()
        .filter_map(|image| match &image.content {
            Content::Program(program, _) => program.package_name(),
            _ => None,
        })
        .collect();
    for image in images {
        if let Content::Program(program, _) = &mut image.content {
            program.beside.clone_from(&packages);
        }
    }
}

/// What a killed build left; the lock says that no build is running.
fn remove_partials() -> Result<()> {
    let folder = folders::cache().join("images");
    folders::create_folder(&folder)?;
    folders::remove_folder(&storage())?;
    for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))?.flatten() {
        if entry.file_name().to_string_lossy().contains(".partial-") {
            fs::remove_file(entry.path()).map_err(Error::file("remove", entry.path()))?;
        }
    }
    Ok(())
}

const BASE_IMAGE: &str = "localhost/wheelhouse-base:latest";

/// Makes the Debian base known to buildah.
async fn import_base(doing: &str) -> Result<()> {
    let base = base().await?;
    let container = buildah(doing).args(["from", "scratch"]).output().await?;
    buildah(doing).args(["add", "--quiet", container.trim()]).arg(&base).arg("/").run().await?;
    buildah(doing).args(["commit", "--quiet", container.trim(), BASE_IMAGE]).run().await
}

/// The Debian base as an archive; made once.
async fn base() -> Result<PathBuf> {
    let path = folders::cache().join("images").join(format!("base-{SUITE}.tar"));
    if !is_intact(&path) {
        let partial = path.with_extension(format!("partial-{}.tar", std::process::id()));
        folders::create_folder(path.parent().unwrap_or(&path))?;
        let made = Call::new("make the Debian base of the images", "mmdebstrap")
            .args(["--quiet", "--variant=minbase", "--format=tar", SUITE])
            .arg(&partial)
            .run()
            .await;
        if made.is_err() {
            let _ = fs::remove_file(&partial);
        }
        made?;
        put(&partial, &path)?;
    }
    Ok(path)
}

/// Gives a finished file its place in the cache, with its checksum beside it.
fn put(partial: &Path, place: &Path) -> Result<()> {
    folders::write_file(&checksum_file(place), checksum(partial)?, 0o644)?;
    fs::rename(partial, place).map_err(Error::file("put the finished image at", place))
}

/// Whether a file is in the cache as it was put there.
fn is_intact(place: &Path) -> bool {
    match (fs::read_to_string(checksum_file(place)), checksum(place)) {
        (Ok(expected), Ok(found)) => expected == found,
        _ => false,
    }
}

fn checksum_file(place: &Path) -> PathBuf {
    place.with_extension("tar.sha256")
}

async fn push_archive(archive: &Path, reference: &str) -> Result<()> {
    let doing = format!("push {reference}");
    let pulled =
        buildah(&doing).args(["pull", "--quiet"]).arg(format!("docker-archive:{}", archive.display()));
    let image = pulled.output().await?;
    let verify = !is_on_this_machine(reference);
    buildah(&doing)
        .args(["push", "--quiet", &format!("--tls-verify={verify}"), image.trim()])
        .arg(format!("docker://{reference}"))
        .run()
        .await
}

/// Whether the registry answers on loopback or in a cluster's network; such a one rarely has a certificate.
fn is_on_this_machine(reference: &str) -> bool {
    let host = reference.split(['/', ':']).next().unwrap_or_default();
    let is_ours =
        |address: Ipv4Addr| address.is_loopback() || address_plan::all().overlaps(&Range::new(address, 32));
    host == "localhost" || host.parse().is_ok_and(is_ours)
}

/// Buildah with a storage of our own, apart from the user's.
fn buildah(doing: &str) -> Call {
    let storage = storage();
    Call::new(doing, BUILDAH)
        .arg("--root")
        .arg(storage.join("root"))
        .arg("--runroot")
        .arg(storage.join("run"))
        .args(["--storage-driver", "vfs"])
}

fn storage() -> PathBuf {
    folders::cache().join("images/storage")
}

/// Every layer is a whole copy in there; the archive is all that is kept.
async fn clear_storage() -> Result<()> {
    folders::remove_folder(&storage())
}

fn check_tools(tools: &[&str]) -> Result<()> {
    let missing = problems(tools, is_installed, nix::unistd::geteuid().is_root());
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Preflight { goal: "building images".to_owned(), missing })
}

/// Why no image can be made here, each with the remedy.
fn problems(tools: &[&str], is_installed: impl Fn(&str) -> bool, is_root: bool) -> Vec<String> {
    let missing: Vec<_> = tools.iter().copied().filter(|tool| !is_installed(tool)).collect();
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("install what is missing with `apt-get install -y {}`", missing.join(" ")));
    }
    if !is_root {
        problems.push("building needs root: run it with sudo".to_owned());
    }
    problems
}

fn check_room() -> Result<()> {
    let folder = folders::cache();
    let free = folders::free_bytes(&folder)?;
    if free >= ROOM_TO_BUILD {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "building images needs {} MiB of free disk and {} has {}: make room, or set WHEELHOUSE_CACHE_DIR to a folder with more",
        ROOM_TO_BUILD >> 20,
        folder.display(),
        free >> 20
    )))
}

/// The folders in a folder, by name.
fn folders_in(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(folder).map_err(Error::file("look for images in", folder))?;
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    Ok(paths.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with these files, all of them empty.
    fn tree(files: &[&str]) -> (tempfile::TempDir, Vec<Image>) {
        let tree = tempfile::tempdir().unwrap();
        for file in files {
            folders::write_file(&tree.path().join(file), "", 0o644).unwrap();
        }
        let images = Image::all_of(tree.path()).unwrap();
        (tree, images)
    }

    fn image() -> Image {
        tree(&["images/web/Containerfile"]).1.remove(0)
    }

    #[test]
    fn folders_and_packages_of_images_and_operators_with_a_program_are_images() {
        let (tree, images) = tree(&[
            "images/Containerfile",
            "images/web/Containerfile",
            "images/gordon/Cargo.toml",
            "images/notes/README.md",
            "operators/gordon/src/main.rs",
            "operators/only-a-library/src/lib.rs",
        ]);
        let folder = |path: &str| tree.path().join(path);
        assert_eq!(
            vec![
                Image::of_program("gordon".to_owned(), folder("images/gordon")),
                Image::of_program("gordon-operator".to_owned(), folder("operators/gordon")),
                Image { name: "web".to_owned(), content: Content::Folder(folder("images/web")) },
            ],
            images
        );
    }

    #[test]
    fn every_version_of_a_program_in_go_is_an_image_with_that_version_as_its_tag() {
        let (_tree, images) = tree(&[
            "images/store/Containerfile",
            "images/store/main.go",
            "images/store/etc/defaults",
            "images/store/v1.9.2/go.mod",
            "images/store/v1.10.0/go.mod",
        ]);
        let called: Vec<_> = images.iter().map(|image| (image.name.as_str(), image.reference())).collect();
        assert_eq!(
            vec![
                ("store-v1.10.0", "wheelhouse.dev/store:v1.10.0".to_owned()),
                ("store-v1.9.2", "wheelhouse.dev/store:v1.9.2".to_owned()),
            ],
            called
        );
    }

    #[test]
    fn only_what_is_built_on_debian_needs_what_makes_that() {
        let program = Image::of_package("shop-operator", Path::new("shop"), "0.1.0");
        let bare = |image: &Image| problems(image.tools(), |_| false, true);
        let install = |tools| vec![format!("install what is missing with `apt-get install -y {tools}`")];
        assert_eq!((install("buildah"), install("buildah mmdebstrap")), (bare(&program), bare(&image())));
        let no_root = problems(program.tools(), |tool| tool == "buildah", false);
        assert_eq!(vec!["building needs root: run it with sudo"], no_root);
    }

    #[test]
    fn a_tree_without_operators_has_the_images_that_it_has() {
        assert_eq!("web", image().name);
    }

    #[test]
    fn docker_compiles_with_the_toolchain_that_this_tree_pins() {
        let pinned = include_str!("../../../rust-toolchain.toml");
        let image = PROGRAM_CONTAINERFILE.split_once("library/rust:").unwrap().1;
        let version = image.split('-').next().unwrap();
        assert!(pinned.contains(&format!("channel = \"{version}\"")), "{version} is not in: {pinned}");
    }

    #[test]
    fn a_damaged_archive_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, place) = (folder.path().join("x.partial"), folder.path().join("x.tar"));
        fs::write(&partial, "whole").unwrap();
        assert!(!is_intact(&place));
        put(&partial, &place).unwrap();
        assert!(is_intact(&place) && !partial.exists());
        fs::write(&place, "who").unwrap();
        assert!(!is_intact(&place));
    }

    #[test]
    fn only_older_archives_of_the_same_image_are_removed() {
        let image = image();
        let cache = tempfile::tempdir().unwrap();
        let names = [
            "web-000000000001.tar",
            "web-000000000001.tar.sha256",
            "web-000000000002.tar",
            "web-000000000002.tar.sha256",
            "web-server-000000000001.tar",
            "base-trixie.tar",
        ];
        for name in names {
            fs::write(cache.path().join(name), "").unwrap();
        }
        image.remove_older(&cache.path().join("web-000000000002.tar")).unwrap();
        let left: Vec<_> = files(cache.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            vec![
                "base-trixie.tar",
                "web-000000000002.tar",
                "web-000000000002.tar.sha256",
                "web-server-000000000001.tar"
            ],
            left
        );
    }

    #[rstest::rstest]
    #[case("localhost:5000/team/web:1", true)]
    #[case("127.0.0.1/web:1", true)]
    #[case("198.18.32.1:5000/web:1", true)]
    #[case("registry.example.com/team/web:1", false)]
    #[case("192.0.2.7:5000/web:1", false)]
    fn only_a_registry_on_this_machine_goes_without_tls(#[case] reference: &str, #[case] here: bool) {
        assert_eq!(here, is_on_this_machine(reference));
    }

    #[test]
    fn an_image_is_called_by_where_it_is() {
        let image = image();
        assert_eq!(format!("wheelhouse.dev/web:{VERSION}"), image.reference());
        assert_eq!(format!("127.0.0.1:5000/team/web:{VERSION}"), image.reference_in("127.0.0.1:5000/team/"));
    }
}
