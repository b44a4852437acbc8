//! Whether a tree has changes that nobody has committed.

use std::{path::Path, process::Command};

use crate::error::{Error, Result};

/// Refuses to go on where changes are not committed. A folder that git knows nothing of is fine: there is nothing to
/// compare with.
///
/// # Errors
/// When something is not committed.
pub fn check_clean(folder: &Path) -> Result<()> {
    let Ok(output) =
        Command::new("git").arg("-C").arg(folder).args(["status", "--porcelain", "--", "."]).output()
    else {
        return Ok(());
    };
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().next() {
        Some(line) if output.status.success() => {
            let example = line.get(3..).unwrap_or(line).to_owned();
            Err(Error::Dirty { folder: folder.to_owned(), example })
        }
        _ => Ok(()),
    }
}
