//! Pages of the book, as something that can be followed: the commands that a reader is meant to run, and the files
//! that they are meant to write.

use std::{path::Path, process::Command};

use super::{Said, Wheelhouse};

/// A fenced block of a page.
struct Block {
    /// What is behind the fence.
    info: String,
    content: String,
}

impl Block {
    /// The file that it is the content of.
    fn file(&self) -> Option<&str> {
        self.info.split(',').find_map(|word| word.strip_prefix("file="))
    }
}

/// A page, taken apart: its blocks, and the lines between them.
fn take_apart(page: &str) -> (Vec<Block>, Vec<&str>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (open.take(), line.trim().strip_prefix("```")) {
            (None, None) => prose.push(line),
            (None, Some(info)) => open = Some(Block { info: info.to_owned(), content: String::new() }),
            (Some(block), Some("")) => blocks.push(block),
            (Some(mut block), _) => {
                block.content.push_str(line);
                block.content.push('\n');
                open = Some(block);
            }
        }
    }
    (blocks, prose)
}

/// The lines of a page that are in no block.
pub(crate) fn prose(page: &str) -> Vec<&str> {
    take_apart(page).1
}

/// What a reader does, as one script: blocks fenced with `sh` are run, blocks fenced with `file=PATH` are written.
pub(crate) fn script(page: &str) -> String {
    let (blocks, _) = take_apart(page);
    let mut script = String::new();
    for block in &blocks {
        if let Some(path) = block.file() {
            script.push_str(&format!("cat > {path} <<'END_OF_FILE'\n{}END_OF_FILE\n", block.content));
        } else if block.info == "sh" {
            script.push_str(&block.content);
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
