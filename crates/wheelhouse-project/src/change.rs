//! From the files of one template to those of another, with what people have made of them meanwhile.
//!
//! Invariants:
//! - What people wrote is never lost: a file of theirs is not overwritten, and where both changed the same lines, both
//!   are kept.
//! - All or nothing: everything is decided before anything is written, and what was written is taken back when
//!   the rest cannot be.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    template::Files,
};

/// What is to become of a project's files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Files and their new content.
    writes: Vec<(PathBuf, String)>,
    /// Files that go.
    removes: Vec<PathBuf>,
    /// Which of the files were not there before.
    pub added: Vec<PathBuf>,
    /// Which become others.
    pub changed: Vec<PathBuf>,
    /// Which go.
    pub removed: Vec<PathBuf>,
    /// Which are to be looked at: both sides changed the same lines, and both are there, between marks.
    pub conflicts: Vec<PathBuf>,
    /// Which the template has no more, and which stay because somebody changed them.
    pub kept: Vec<PathBuf>,
    /// Which were to become others, and are not there: whoever deleted one wants it so, and may have to do by hand what was
    /// to be in it.
    pub missing: Vec<PathBuf>,
}

/// What to do where both sides changed the same lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Change nothing at all, and say what was wanted.
    Refuse,
    /// Keep both, between marks.
    Mark,
}

impl Change {
    /// What has to be done in `folder`, whose files were once `before`, so that what changed from there to `after` is
    /// in them. Writes nothing.
    ///
    /// # Errors
    /// When a file of somebody else's is in the way, or a conflict is to be refused.
    pub fn plan(folder: &Path, before: &Files, after: &Files, on_conflict: OnConflict) -> Result<Self> {
        let mut change = Self::default();
        for (path, wanted) in after {
            let there = read(&folder.join(path))?;
            match (before.get(path), there) {
                (_, Some(there)) if there == *wanted => {}
                (None, None) => {
                    change.added.push(path.clone());
                    change.writes.push((path.clone(), wanted.clone()));
                }
                (None, Some(there)) if on_conflict == OnConflict::Mark => {
                    change.merge(path, "", &there, wanted, on_conflict)?;
                }
                (None, Some(_)) => return Err(Error::InTheWay(path.clone())),
                (Some(base), _) if base == wanted => {}
                (Some(_), None) => change.missing.push(path.clone()),
                (Some(base), Some(there)) => change.merge(path, base, &there, wanted, on_conflict)?,
            }
        }
        for (path, base) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
            match read(&folder.join(path))? {
                None => {}
                Some(there) if there == *base => {
                    change.removes.push(path.clone());
                    change.removed.push(path.clone());
                }
                Some(_) => change.kept.push(path.clone()),
            }
        }
        Ok(change)
    }

    fn merge(
        &mut self,
        path: &Path,
        base: &str,
        there: &str,
        wanted: &str,
        on_conflict: OnConflict,
    ) -> Result<()> {
        let merged = match (diffy::merge(base, there, wanted), on_conflict) {
            (Ok(merged), _) => merged,
            (Err(marked), OnConflict::Mark) => {
                self.conflicts.push(path.to_owned());
                marked
            }
            (Err(_), OnConflict::Refuse) => {
                let wanted = diffy::create_patch(base, wanted).to_string();
                return Err(Error::Conflict { path: path.to_owned(), wanted });
            }
        };
        if merged != there {
            self.changed.push(path.to_owned());
            self.writes.push((path.to_owned(), merged));
        }
        Ok(())
    }

    /// Whether nothing is left for people to look at.
    pub fn is_all_done(&self) -> bool {
        self.conflicts.is_empty() && self.missing.is_empty()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.removes.is_empty()
    }

    /// Does it, all or nothing.
    ///
    /// # Errors
    /// When a file cannot be written. Then all is as it was.
    pub fn carry_out(&self, folder: &Path) -> Result<()> {
        let mut undo = Undo::default();
        let done = self.try_to(folder, &mut undo);
        if done.is_err() {
            undo.all();
        }
        done
    }

    fn try_to(&self, folder: &Path, undo: &mut Undo) -> Result<()> {
        for (path, content) in &self.writes {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                undo.remember_missing_folders(parent);
                fs::create_dir_all(parent).map_err(Error::file("make the folder of", &path))?;
            }
            undo.remember(&path)?;
            write(&path, content)?;
        }
        for path in &self.removes {
            let path = folder.join(path);
            undo.remember(&path)?;
            fs::remove_file(&path).map_err(Error::file("remove", &path))?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

/// Whole or not at all: a file that is half written is worse than none.
fn write(path: &Path, content: &str) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".wheelhouse-draft");
    let draft = PathBuf::from(draft);
    let written = fs::write(&draft, content)
        .and_then(|()| match fs::metadata(path) {
            Ok(there) => fs::set_permissions(&draft, there.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.map_err(Error::file("write", path))
}

/// How it was.
#[derive(Default)]
struct Undo {
    files: Vec<(PathBuf, Option<String>)>,
    folders: Vec<PathBuf>,
}

impl Undo {
    fn remember(&mut self, path: &Path) -> Result<()> {
        self.files.push((path.to_owned(), read(path)?));
        Ok(())
    }

    fn remember_missing_folders(&mut self, folder: &Path) {
        let missing: Vec<_> =
            folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        self.folders.extend(missing.into_iter().rev());
    }

    /// As far as that can be done: whoever could not write may not be able to write that either.
    fn all(self) {
        for (path, content) in self.files.into_iter().rev() {
            let _ = match content {
                Some(content) => write(&path, &content),
                None => fs::remove_file(&path).map_err(Error::file("remove", &path)),
            };
        }
        for folder in self.folders.into_iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn files(content: &[(&str, &str)]) -> Files {
        content.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
    }

    fn folder(content: &[(&str, &str)]) -> TempDir {
        let folder = TempDir::new().unwrap();
        for (path, text) in content {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn content(folder: &TempDir, path: &str) -> String {
        fs::read_to_string(folder.path().join(path)).unwrap()
    }

    #[test]
    fn what_people_wrote_elsewhere_in_a_file_stays_when_the_template_changes() {
        let before = files(&[("lib.rs", "one\ntwo\nthree\nfour\nfive\n")]);
        let after = files(&[("lib.rs", "one\ntwo\nthree\nfour\nfive\nsix\n"), ("new/file.rs", "new\n")]);
        let folder = folder(&[("lib.rs", "zero\none\ntwo\nthree\nfour\nfive\n")]);
        let change = Change::plan(folder.path(), &before, &after, OnConflict::Refuse).unwrap();
        change.carry_out(folder.path()).unwrap();
        assert_eq!(content(&folder, "lib.rs"), "zero\none\ntwo\nthree\nfour\nfive\nsix\n");
        assert_eq!(content(&folder, "new/file.rs"), "new\n");
        let again = Change::plan(folder.path(), &after, &after, OnConflict::Refuse).unwrap();
        assert!(again.is_empty(), "{again:?}");
    }

    #[test]
    fn where_both_changed_a_line_nothing_changes_or_both_are_kept() {
        let (before, after) =
            (files(&[("a", "one\n"), ("b", "b\n")]), files(&[("a", "two\n"), ("b", "c\n")]));
        let folder = folder(&[("a", "three\n"), ("b", "b\n")]);
        let refused =
            Change::plan(folder.path(), &before, &after, OnConflict::Refuse).unwrap_err().to_string();
        assert!(refused.contains("-one\n+two"), "{refused}");
        assert_eq!((content(&folder, "a"), content(&folder, "b")), ("three\n".to_owned(), "b\n".to_owned()));
        let change = Change::plan(folder.path(), &before, &after, OnConflict::Mark).unwrap();
        assert_eq!(change.conflicts, [PathBuf::from("a")]);
        change.carry_out(folder.path()).unwrap();
        let marked = content(&folder, "a");
        assert!(marked.contains("<<<<<<<") && marked.contains("three") && marked.contains("two"), "{marked}");
        assert_eq!(content(&folder, "b"), "c\n");
    }

    #[test]
    fn a_file_of_somebody_else_is_not_written_over() {
        let folder = folder(&[("src/gordon.rs", "mine\n")]);
        let after = files(&[("Cargo.toml", "x\n"), ("src/gordon.rs", "theirs\n")]);
        let refused = Change::plan(folder.path(), &Files::new(), &after, OnConflict::Refuse).unwrap_err();
        assert!(refused.to_string().starts_with("src/gordon.rs is there already"), "{refused}");
        assert!(!folder.path().join("Cargo.toml").exists());
    }

    #[test]
    fn what_the_template_has_no_more_goes_unless_somebody_changed_it() {
        let before = files(&[("a", "a\n"), ("b", "b\n"), ("c", "c\n")]);
        let folder = folder(&[("a", "a\n"), ("b", "changed\n")]);
        let change = Change::plan(folder.path(), &before, &Files::new(), OnConflict::Mark).unwrap();
        change.carry_out(folder.path()).unwrap();
        assert_eq!((change.removed, change.kept), (vec![PathBuf::from("a")], vec![PathBuf::from("b")]));
        assert!(!folder.path().join("a").exists());
        assert_eq!(content(&folder, "b"), "changed\n");
    }

    #[test]
    fn what_was_deleted_stays_deleted_and_is_told_if_it_was_to_change() {
        let folder = folder(&[]);
        let (before, after) = (files(&[("a", "a\n"), ("b", "b\n")]), files(&[("a", "b\n"), ("b", "b\n")]));
        let change = Change::plan(folder.path(), &before, &after, OnConflict::Mark).unwrap();
        assert!(change.is_empty(), "{change:?}");
        assert_eq!(change.missing, [PathBuf::from("a")]);
    }

    #[test]
    fn when_one_file_cannot_be_written_all_is_as_it_was() {
        // Where a folder is to be there is a file.
        let folder = folder(&[("a", "old\n"), ("src", "a file\n")]);
        let before = files(&[("a", "old\n")]);
        let after = files(&[("a", "new\n"), ("deep/er/b", "b\n"), ("src/lib.rs", "x\n")]);
        let change = Change::plan(folder.path(), &before, &after, OnConflict::Refuse);
        let failed = change.and_then(|change| change.carry_out(folder.path()));
        assert!(failed.is_err());
        assert_eq!(content(&folder, "a"), "old\n");
        assert!(!folder.path().join("deep").exists());
    }
}
