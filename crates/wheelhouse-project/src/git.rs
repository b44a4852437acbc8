//! Whether a tree has changes that nobody has committed.

use std::{io, path::Path, process::Command};

use crate::error::{Error, Result};

/// Refuses to go on where changes are not committed, and where git cannot say whether they are. A folder that is in no
/// repository is fine: there is nothing to compare with.
///
/// # Errors
/// When something is not committed, or that cannot be known.
pub fn check_clean(folder: &Path) -> Result<()> {
    if !is_in_a_repository(folder) {
        return Ok(());
    }
    let unknown = |why: String| Error::Git { folder: folder.to_owned(), why };
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["status", "--porcelain", "--", "."])
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unknown("git is not installed".to_owned()),
            _ => unknown(error.to_string()),
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("git did not say why");
        return Err(unknown(first.trim_start_matches("fatal: ").to_owned()));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().next() {
        Some(line) => {
            let example = line.get(3..).unwrap_or(line).to_owned();
            Err(Error::Dirty { folder: folder.to_owned(), example })
        }
        None => Ok(()),
    }
}

fn is_in_a_repository(folder: &Path) -> bool {
    let Ok(whole) = std::path::absolute(folder) else { return true };
    whole.ancestors().any(|folder| folder.join(".git").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_no_repository_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        check_clean(folder.path()).unwrap();
    }

    #[test]
    fn where_git_cannot_say_it_nobody_assumes_that_all_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".git"), "gitdir: nowhere\n").unwrap();
        let refused = check_clean(folder.path()).unwrap_err().to_string();
        assert!(refused.starts_with("git cannot say whether all is committed in"), "{refused}");
        assert!(refused.contains("not a git repository") && refused.contains("--allow-dirty"), "{refused}");
    }
}
