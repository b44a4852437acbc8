//! What a build reads of the tree, and the key that this gives to the image.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{
    binaries::hex,
    error::{Error, Result},
    folders,
};

/// A file that a build reads.
#[derive(Debug)]
pub(super) struct Input {
    /// Its path in the folder that is built.
    name: PathBuf,
    content: Vec<u8>,
    is_executable: bool,
}

impl Input {
    pub(super) fn new(name: impl Into<PathBuf>, content: impl Into<Vec<u8>>, is_executable: bool) -> Self {
        Self { name: name.into(), content: content.into(), is_executable }
    }

    /// Every file of a folder, in a fixed order.
    pub(super) fn all_in(folder: &Path) -> Result<Vec<Self>> {
        let read = |path: PathBuf| {
            let content = fs::read(&path).map_err(Error::file("read", &path))?;
            let mode = fs::metadata(&path).map_err(Error::file("look at", &path))?.permissions().mode();
            Ok(Self::new(path.strip_prefix(folder).unwrap_or(&path), content, mode & 0o100 != 0))
        };
        files(folder)?.into_iter().map(read).collect()
    }

    /// Whether it is somewhere in this folder of the folder that is built.
    pub(super) fn is_in(&self, folder: &str) -> bool {
        self.name.starts_with(folder)
    }

    /// Everybody may read it there, whatever the umask is here and was when the tree was fetched.
    pub(super) fn write_to(&self, folder: &Path) -> Result<()> {
        let (path, mode) = (folder.join(&self.name), if self.is_executable { 0o755 } else { 0o644 });
        folders::write_file(&path, &self.content, mode)?;
        open_to_all(&path, mode)?;
        self.name.ancestors().skip(1).try_for_each(|above| open_to_all(&folder.join(above), 0o755))
    }
}

fn open_to_all(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::file("open to all", path))
}

/// A hash of everything that goes into an image: these files, and on what it is built.
pub(super) fn key(inputs: &[Input], base: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{base}\n"));
    for Input { name, content, is_executable } in inputs {
        hash.update(format!("{} {is_executable} {}\n", name.display(), content.len()));
        hash.update(content);
    }
    hex(&hash.finalize()).get(..12).unwrap_or_default().to_owned()
}

/// All files below a folder, in a fixed order.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)
        .map_err(Error::file("list", folder))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    #[test]
    fn a_change_of_any_file_makes_another_image() {
        let folder = tempfile::tempdir().unwrap();
        let (page, other) = (folder.path().join("page.html"), folder.path().join("other.html"));
        let now = || key(&Input::all_in(folder.path()).unwrap(), "base");
        let mut seen = vec![now()];
        let mut differs = |change: &dyn Fn()| {
            change();
            assert_eq!(now(), now());
            assert!(!seen.contains(&now()), "{seen:?}");
            seen.push(now());
        };
        differs(&|| fs::write(&page, "hello").unwrap());
        differs(&|| fs::write(&page, "goodbye").unwrap());
        differs(&|| fs::rename(&page, &other).unwrap());
        differs(&|| fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap());
    }

    #[test]
    fn what_a_build_reads_is_open_to_all_whatever_it_was_in_the_tree() {
        let (tree, context) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // As if it had been made under another umask.
        fs::DirBuilder::new().mode(0o700).create(context.path().join("etc")).unwrap();
        for (name, mode) in [("page", 0o600), ("script", 0o700)] {
            folders::write_file(&tree.path().join("etc").join(name), name, mode).unwrap();
        }
        for input in Input::all_in(tree.path()).unwrap() {
            input.write_to(context.path()).unwrap();
        }
        let mode = |name| fs::metadata(context.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((0o755, 0o644, 0o755), (mode("etc"), mode("etc/page"), mode("etc/script")));
        assert_eq!("page", fs::read_to_string(context.path().join("etc/page")).unwrap());
    }
}
