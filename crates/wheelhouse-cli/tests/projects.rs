//! Projects, as people make them with the command: what it prints, and what it refuses without changing anything.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A folder in which the command is called.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A project with one kind, all of it committed.
    fn with_a_project() -> Self {
        let desk = Self::new();
        desk.call("init shop --domain example.com --sdk https://git.example.com/wheelhouse.git");
        desk.call("create api --project shop --group app --version v1 --kind Page");
        desk.git(&["init", "-q"]);
        desk.commit();
        desk
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=Reader", "-c", "user.email=reader@example.com"];
        let done =
            Command::new("git").arg("-C").arg(self.path()).args(identity).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", "all"]);
    }

    /// What it prints, and its exit code, without the path of the folder.
    fn call(&self, arguments: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
            .args(arguments.split_whitespace())
            .current_dir(self.path())
            .env("KUBECONFIG", self.path().join("no-kubeconfig"))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let folder = self.path().canonicalize().unwrap().display().to_string();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr)).replace(&folder, "HERE");
        let said = said.replace(&self.path().display().to_string(), "HERE");
        format!("$ wheelhouse {arguments}\n{said}(exit code {})\n", output.status.code().unwrap())
    }

    /// Every file and its content, but for git's own.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.path().to_owned()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.path() {
                    path if path.ends_with(".git") => {}
                    path if path.is_dir() => open.push(path),
                    path => drop(files.insert(path.clone(), std::fs::read_to_string(path).unwrap())),
                }
            }
        }
        files
    }
}

#[test]
fn what_the_verbs_of_a_project_print() {
    let desk = Desk::new();
    let mut said = desk.call("init shop --domain example.com --sdk https://git.example.com/wheelhouse.git");
    said += &desk.call("create api --project shop --group app --version v1 --kind Page");
    said += &desk.call("create api --project shop --group app --version v2 --kind Page");
    said +=
        &desk.call("create api --project shop --group infra --version v1beta1 --kind Zone --cluster-scoped");
    said += &desk.call("create webhook --project shop --kind Page --validating");
    said += &desk.call("create webhook --project shop --kind Page --validating --defaulting");
    said += &desk.call("project upgrade --project shop");
    insta::assert_snapshot!(said);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_changed() {
    let desk = Desk::with_a_project();
    let before = desk.files();
    let calls = [
        "init shop --domain example.com --sdk https://git.example.com/wheelhouse.git",
        "init other --domain example --sdk https://git.example.com/wheelhouse.git",
        "init other --domain example.com --name Other --sdk https://git.example.com/wheelhouse.git",
        "init other --domain example.com --sdk nowhere",
        "create api --group app --version v1 --kind Page",
        "create api --project shop --group app --version v1 --kind Page",
        "create api --project shop --group other --version v1 --kind Page",
        "create api --project shop --group app.example.com --version v1 --kind Book",
        "create api --project shop --group app --version 1 --kind Book",
        "create api --project shop --group app --version v1 --kind book",
        "create api --project shop --group app --version v1 --kind Deployment",
        "create api --project shop --group app --version v1 --kind Book --plural pages",
        "create api --project shop --group app --version v2 --kind Page --cluster-scoped",
        "create webhook --project shop --kind Book --validating",
        "create webhook --project shop --kind Page",
        "plan -f nowhere.yaml",
        "replay nowhere.json",
    ];
    let mut said = String::new();
    for call in calls {
        said += &desk.call(call);
        assert!(desk.files() == before, "{call} changed something");
    }
    insta::assert_snapshot!(said);
}

#[test]
fn in_a_dirty_tree_nothing_is_changed_unless_that_is_said() {
    let desk = Desk::with_a_project();
    std::fs::write(desk.path().join("shop/README.md"), "mine\n").unwrap();
    let before = desk.files();
    let refused = desk.call("create api --project shop --group app --version v1 --kind Book");
    assert!(
        refused.contains("not committed (shop/README.md)") && refused.contains("--allow-dirty"),
        "{refused}"
    );
    assert!(desk.files() == before);
    // The README is theirs now, where the verb has to change it, too.
    let conflict = desk.call("create api --project shop --group app --version v1 --kind Book --allow-dirty");
    assert!(conflict.contains("README.md was changed where this has to change it, too"), "{conflict}");
    assert!(desk.files() == before);
}

#[test]
fn what_people_wrote_stays_when_a_kind_is_added() {
    let desk = Desk::with_a_project();
    let library = desk.path().join("shop/src/lib.rs");
    let text = std::fs::read_to_string(&library).unwrap();
    std::fs::write(&library, format!("{text}\n/// Mine.\npub fn mine() {{}}\n")).unwrap();
    desk.commit();
    desk.call("create api --project shop --group app --version v1 --kind Book");
    let text = std::fs::read_to_string(&library).unwrap();
    assert!(text.contains("pub fn mine() {}") && text.contains(".controller(book::controller())"), "{text}");
}

#[test]
fn every_shell_is_told_how_to_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let said = Desk::new().call(&format!("completions {shell}"));
        assert!(said.contains("explain") && said.ends_with("(exit code 0)\n"), "{said}");
    }
}

#[test]
fn every_verb_explains_itself_with_an_example() {
    let desk = Desk::new();
    let verbs = [
        "init",
        "create api",
        "create webhook",
        "manifests",
        "install",
        "run",
        "test",
        "deploy",
        "undeploy",
        "plan",
        "explain",
        "record",
        "replay",
        "rbac check",
        "project upgrade",
        "completions",
    ];
    for verb in verbs {
        let help = desk.call(&format!("{verb} --help"));
        let example = format!("  wheelhouse {verb}");
        assert!(help.contains("Example") && help.contains(&example), "{help}");
    }
    insta::assert_snapshot!(desk.call("--help"));
}
