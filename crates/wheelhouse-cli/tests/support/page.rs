//! Pages of the book, as something that can be followed: the commands that a reader is meant to run, and the files
//! that they are meant to write.

use std::{path::Path, process::Command};

use super::{Said, Wheelhouse};

/// Comes before and after what a page shows the output of.
const BEGIN: &str = "<<< what the page shows";
const END: &str = ">>> what the page shows";

/// A fenced block of a page.
struct Block {
    /// What is behind the fence.
    info: String,
    content: String,
}

impl Block {
    fn is(&self, word: &str) -> bool {
        self.info.split(',').any(|each| each == word)
    }

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
    for (number, block) in blocks.iter().enumerate() {
        let is_shown = blocks.get(number + 1).is_some_and(|next| next.is("output"));
        if let Some(path) = block.file() {
            script.push_str(&format!("cat > {path} <<'END_OF_FILE'\n{}END_OF_FILE\n", block.content));
        } else if block.info == "sh" && is_shown {
            script.push_str(&format!("echo '{BEGIN}'\n{}echo '{END}'\n", block.content));
        } else if block.info == "sh" {
            script.push_str(&block.content);
        }
    }
    script
}

/// Where what a page shows, in blocks fenced with `text,output`, is not what the commands before these blocks printed.
/// Times and whatever else is another one each time need not be the same, and a line of `...` stands for any lines.
pub(crate) fn wrongly_shown(page: &str, printed: &str) -> Vec<String> {
    let (blocks, _) = take_apart(page);
    let shown: Vec<_> = blocks.iter().filter(|block| block.is("output")).collect();
    let printed: Vec<_> =
        printed.split(&format!("{BEGIN}\n")).skip(1).map(|rest| rest.split(END).next().unwrap()).collect();
    assert_eq!(shown.len(), printed.len(), "each output is shown below its commands");
    let mut wrong = Vec::new();
    for (shown, printed) in shown.iter().zip(printed) {
        let (expected, found) = (lasting(&shown.content), lasting(printed));
        if !fits(&lines(&expected), &lines(&found)) {
            wrong.push(format!("the page shows\n{}\nand this was printed\n{printed}", shown.content));
        }
    }
    wrong
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).collect()
}

fn fits(expected: &[&str], found: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((&"...", rest)) => (0..=found.len()).any(|skipped| fits(rest, &found[skipped..])),
        Some((first, rest)) => found.first() == Some(first) && fits(rest, &found[1..]),
    }
}

/// A text without what is another one each time: times, how long something took, random names, digests, addresses, and which
/// member it is.
fn lasting(text: &str) -> String {
    let volatile = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"\b\d+(\.\d+){3}\b", "ADDRESS"),
        (r"\b\d+(\.\d+)? ?(ms|s|m|h|d)( ?\d+ ?(s|m|h))*\b", "DURATION"),
        (r"\b[0-9a-f]{8,}\b", "DIGEST"),
        // Whoever is there first joins first.
        (r"\bmember (\S+)-\d\b", "member $1-N"),
        // Columns are as wide as what is in them.
        (r"(\S)  +", "$1 "),
    ];
    volatile.iter().fold(text.to_owned(), |text, (pattern, stands)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *stands).into_owned()
    })
}

/// Follows a script in a folder, in one shell, because a reader has one too.
pub(crate) fn follow(wheelhouse: &Wheelhouse, script: &str, folder: &Path) -> Said {
    let programs = Path::new(env!("CARGO_BIN_EXE_wheelhouse")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    wheelhouse.in_this_world(&mut shell);
    // What runs beside it ends with it, also if it fails.
    let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
    let output = shell
        .args(["-eux", "-O", "expand_aliases", "-c", &script])
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
