//! Pages of the book, as something that can be followed: the commands that a reader is meant to run, and the files
//! that they are meant to write.

use std::{path::Path, process::Command};

use super::{Said, Wheelhouse};

/// What a reader does, as one script: blocks fenced with `sh` are run, blocks fenced with `file=PATH` are written.
pub(crate) fn script(page: &str) -> String {
    let mut script = String::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        let fence = line.trim().strip_prefix("```");
        match (&open, fence) {
            (None, Some("sh")) => open = Some(String::new()),
            (None, Some(info)) => {
                if let Some(path) = info.split(',').find_map(|word| word.strip_prefix("file=")) {
                    script.push_str(&format!("cat > {path} <<'END_OF_FILE'\n"));
                    open = Some("END_OF_FILE\n".to_owned());
                }
            }
            (Some(ending), Some("")) => {
                script.push_str(ending);
                open = None;
            }
            (Some(_), _) => {
                script.push_str(line);
                script.push('\n');
            }
            (None, None) => {}
        }
    }
    script
}

/// Follows a script in a folder, in one shell, because a reader has one too.
pub(crate) fn follow(wheelhouse: &Wheelhouse, script: &str, folder: &Path) -> Said {
    let programs = Path::new(env!("CARGO_BIN_EXE_wheelhouse")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    wheelhouse.in_this_world(&mut shell);
    let output = shell
        .args(["-eux", "-O", "expand_aliases", "-c", script])
        .env("PATH", path)
        .current_dir(folder)
        .output()
        .unwrap();
    output.into()
}

/// Takes down what a page left, and says what that was.
pub(crate) fn clusters_left(wheelhouse: &Wheelhouse) -> Vec<String> {
    let entries = std::fs::read_dir(wheelhouse.state()).into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for name in &names {
        wheelhouse.local(&["down", name]).ok();
    }
    names
}
