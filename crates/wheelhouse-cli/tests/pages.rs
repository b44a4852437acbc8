//! What the pages of the book say of this tree: the tests that they name are there, and their links lead somewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use support::{page::prose, tree};

#[test]
fn every_line_of_the_talks_has_a_test_or_a_reason() {
    let page = read("docs/talks.md");
    let mut lines = 0;
    let mut heading = "";
    for (number, line) in page.lines().enumerate() {
        if line.starts_with('#') {
            heading = line;
        }
        // Above the first document is what the page's words mean.
        if !heading.starts_with("##") || !line.starts_with('|') {
            continue;
        }
        let cells = cells(line);
        assert_eq!(3, cells.len(), "line {}: {line}", number + 1);
        for cell in cells {
            assert!(!cell.is_empty(), "line {}, below `{heading}`, says too little: {line}", number + 1);
        }
        lines += 1;
    }
    assert!(lines > 250, "the five documents have more than {lines} lines");
}

#[test]
fn every_test_that_pages_name_is_there() {
    let mut missing = Vec::new();
    for (page, below) in [("docs/laws.md", "crates/wheelhouse/"), ("docs/etcd-tests.md", "operators/etcd/")] {
        let page = read(page);
        assert!(page.contains(&format!("A file without a crate before it is below `{below}`")));
        missing.extend(missing_tests(&page, |file| match file.split('/').next() {
            Some("src" | "tests") => format!("{below}{file}"),
            _ => file.to_owned(),
        }));
    }
    let talks = read("docs/talks.md");
    let stands_for = abbreviations(&talks);
    assert_eq!(Some("crates/wheelhouse-cli/tests/"), stands_for.get("cli/").map(String::as_str));
    missing.extend(missing_tests(&talks, |file| {
        let abbreviated = stands_for.iter().find(|(short, _)| file.starts_with(short.as_str()));
        abbreviated.map_or(file.to_owned(), |(short, long)| format!("{long}{}", &file[short.len()..]))
    }));
    assert_eq!(Vec::<String>::new(), missing);
}

#[test]
fn every_folder_whose_tests_the_talks_name_has_tests() {
    let page = read("docs/talks.md");
    let folders: Vec<_> = page.split("the tests of `").skip(1).map(|rest| until(rest, '`')).collect();
    assert!(folders.len() > 5, "{folders:?}");
    for folder in folders {
        let sources = files_below(&tree().join(folder).join("tests"), ".rs");
        let has_tests = |file: &PathBuf| {
            let source = std::fs::read_to_string(file).unwrap();
            source.contains("#[test]") || source.contains("::test")
        };
        assert!(sources.iter().any(has_tests), "{folder} has no tests");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let root = tree();
    let book = root.join("docs");
    let summary = read("docs/SUMMARY.md");
    let in_the_book: Vec<_> =
        links(&summary).into_iter().map(|link| book.join(link).canonicalize().unwrap()).collect();
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    for (folder, ending) in [("docs", ".md"), ("examples", "README.md")] {
        pages.extend(files_below(&root.join(folder), ending));
    }
    pages.retain(|page| !page.starts_with(book.join("book")));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for link in links(&text) {
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let mut complain = |why: &str| {
                wrong.push(format!("{}: ({link}) {why}", page.strip_prefix(&root).unwrap().display()));
            };
            let Ok(target) = target.canonicalize() else {
                complain("leads to no file");
                continue;
            };
            if page.starts_with(&book) && !in_the_book.contains(&target) {
                complain("leads out of the book");
            }
            if !anchor.is_empty()
                && !anchors(&std::fs::read_to_string(&target).unwrap()).contains(&anchor.to_owned())
            {
                complain("leads to no heading");
            }
        }
    }
    assert_eq!(Vec::<String>::new(), wrong);
    assert!(seen > 100, "the book has more than {seen} links");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(tree().join(path)).unwrap()
}

/// The cells of a row of a table; what is between them may be escaped.
fn cells(row: &str) -> Vec<String> {
    let row = row.replace("\\|", "\0");
    row.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// What is written in the page's own typewriter letters.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The table at the top of a page which says what stands for what.
fn abbreviations(page: &str) -> BTreeMap<String, String> {
    let table = page.split_once("| stands | for |").unwrap().1;
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.flat_map(|row| {
        let of = |cell: &str| quoted(cell).map(str::to_owned).collect::<Vec<_>>();
        of(&row[0]).into_iter().zip(of(&row[1])).collect::<Vec<_>>()
    })
    .collect()
}

/// Of the tests that a page names as `file::function`, those that are not there.
fn missing_tests(page: &str, place: impl Fn(&str) -> String) -> Vec<String> {
    let named: Vec<_> = quoted(page).filter_map(|words| words.split_once(".rs::")).collect();
    assert!(named.len() > 50, "the page names more than {} tests", named.len());
    let is_missing = |(file, function): &(&str, &str)| {
        let source = std::fs::read_to_string(tree().join(format!("{}.rs", place(file)))).unwrap_or_default();
        // Tests that share a cluster are not functions, they have names.
        !source.contains(&format!("fn {function}(")) && !source.contains(&format!("(\"{function}\", "))
    };
    named.into_iter().filter(is_missing).map(|(file, function)| format!("{file}.rs::{function}")).collect()
}

/// Where a page leads to, in this tree.
fn links(page: &str) -> Vec<&str> {
    // What is between typewriter letters is no link.
    let text: Vec<_> = prose(page).into_iter().flat_map(|line| line.split('`').step_by(2)).collect();
    let targets = text.into_iter().flat_map(|part| part.split("](").skip(1)).map(|rest| until(rest, ')'));
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

/// What the headings of a page are called in links.
fn anchors(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in prose(page).into_iter().filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|letter| letter.is_alphanumeric() || " _-".contains(*letter));
        let name: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let before = found.iter().filter(|other| **other == name).count();
        found.push(if before == 0 { name } else { format!("{name}-{before}") });
    }
    found
}

fn until(text: &str, end: char) -> &str {
    text.split(end).next().unwrap_or_default()
}

fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}
