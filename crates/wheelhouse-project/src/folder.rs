//! Folders that need not be there yet.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

/// The one name of a folder, whatever links and dots lead there. What is not there yet keeps its name.
///
/// # Errors
/// When it is relative, and nobody can say to what.
pub fn one_name(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let existing = absolute.ancestors().find_map(|each| Some((each, each.canonicalize().ok()?)));
    let Some((given, mut name)) = existing else { return Ok(absolute) };
    for part in absolute.strip_prefix(given).unwrap_or(&absolute).components() {
        match part {
            // What is not there is no link: one goes back as one came.
            Component::ParentDir => {
                name.pop();
            }
            part => name.push(part),
        }
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_it_is("real", "real")]
    #[case::through_a_link("link/new", "real/new")]
    #[case::beside_where_a_link_leads("link/../new", "new")]
    #[case::back_from_what_is_there("real/../new/er", "new/er")]
    #[case::back_from_what_is_not_there("new/../real/./er", "real/er")]
    fn a_folder_has_one_name_however_it_is_reached(#[case] way: &str, #[case] expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        assert_eq!(one_name(&base.join(way)).unwrap(), base.join(expected));
    }
}
