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

    /// A file, with the folder around it.
    fn write(&self, path: &str, content: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A program that prints this, in the place of what Cargo would compile or of an operator that is there.
    fn program(&self, name: &str, prints: &str) {
        let printed = self.write(&format!("{name}.printed"), prints);
        self.script(name, &format!("cat {}", printed.display()));
    }

    fn script(&self, name: &str, script: &str) {
        let path = self.write(name, &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// What it prints, and its exit code, without the path of the folder.
    fn call(&self, arguments: &str) -> String {
        let path = format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new(env!("CARGO_BIN_EXE_wheelhouse"))
            .args(arguments.split_whitespace())
            .current_dir(self.path())
            .env("KUBECONFIG", self.path().join("no-kubeconfig"))
            .env("PATH", path)
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

/// What needs no cluster and no project is in other tests.
const NEEDS_A_PROJECT: [&str; 9] = [
    "manifests",
    "install",
    "run",
    "test",
    "deploy",
    "undeploy",
    "replay recorded.json",
    "rbac check",
    "project upgrade",
];

#[test]
fn outside_of_a_project_every_verb_says_so() {
    let desk = Desk::new();
    desk.write("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    let needs_a_cluster = ["plan -f page.yaml", "explain page one", "record page one"];
    let said: String = NEEDS_A_PROJECT.iter().chain(&needs_a_cluster).map(|call| desk.call(call)).collect();
    insta::assert_snapshot!(said);
}

#[test]
fn without_a_cluster_every_verb_that_needs_one_says_so_before_it_compiles_anything() {
    let desk = Desk::with_a_project();
    desk.program("bin/cargo", "this should not be called");
    desk.write("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    let calls = [
        "install --project shop",
        "run --project shop",
        "deploy --project shop",
        "undeploy --project shop",
        "plan -f page.yaml",
        "explain page one",
        "record page one",
        "rbac check --operator bin/cargo",
    ];
    insta::assert_snapshot!(calls.map(|call| desk.call(call)).concat());
}

/// What an operator prints.
const PRINTED: &str = "---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop-operator}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop-operator}
";

#[test]
fn manifests_are_written_once_and_checked() {
    let desk = Desk::with_a_project();
    desk.program("bin/cargo", PRINTED);
    let mut said = desk.call("manifests --project shop --check");
    said += &desk.call("manifests --project shop");
    said += &desk.call("manifests --project shop");
    said += &desk.call("manifests --project shop --check");
    desk.program("bin/cargo", &PRINTED.replace("apps/v1", "apps/v2"));
    said += &desk.call("manifests --project shop --check");
    said += &desk.call("manifests --project shop --check --output json");
    let before = desk.files();
    desk.program("bin/cargo", "kind: [");
    said += &desk.call("manifests --project shop");
    let written = |files: BTreeMap<PathBuf, String>| -> Vec<_> {
        files.into_iter().filter(|(path, _)| path.starts_with(desk.path().join("shop"))).collect()
    };
    assert!(written(before) == written(desk.files()), "a check and an error change nothing");
    insta::assert_snapshot!(said);
}

impl Desk {
    /// A project with one kind, as an older command made it.
    fn with_an_older_project() -> Self {
        let desk = Self::with_a_project();
        let folder = desk.path().join("shop");
        let mut project = wheelhouse_project::Project::read(&folder).unwrap();
        project.template = 1;
        for (path, content) in project.files().unwrap() {
            std::fs::write(folder.join(path), content).unwrap();
        }
        desk.commit();
        desk
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path().join(path)).unwrap();
        assert!(text.contains(from), "{path} has no {from}: {text}");
        self.write(path, &text.replace(from, to));
    }
}

const CI: &str = "shop/.github/workflows/test.yaml";

#[test]
fn an_older_project_gets_what_is_new_beside_what_people_wrote() {
    let desk = Desk::with_an_older_project();
    desk.edit(CI, "on: [push, pull_request]", "on: [push]");
    desk.edit("shop/README.md", "# shop", "# My shop");
    desk.commit();
    let mut said = desk.call("project upgrade --project shop");
    let ci = std::fs::read_to_string(desk.path().join(CI)).unwrap();
    assert!(ci.contains("on: [push]\n") && ci.contains("run: wheelhouse manifests --check\n"), "{ci}");
    assert!(std::fs::read_to_string(desk.path().join("shop/README.md")).unwrap().starts_with("# My shop\n"));
    desk.commit();
    said += &desk.call("project upgrade --project shop");
    insta::assert_snapshot!(said, @r"
    $ wheelhouse project upgrade --project shop
      changed   .github/workflows/test.yaml
      changed   Containerfile
      changed   wheelhouse.toml
    (exit code 0)
    $ wheelhouse project upgrade --project shop
    shop-operator is up to date (template 2)
    (exit code 0)
    ");
}

#[test]
fn where_both_changed_the_same_lines_both_are_kept_and_the_exit_code_says_so() {
    let desk = Desk::with_an_older_project();
    desk.edit(CI, "      - run: cargo test\n", "      - run: cargo test --release\n");
    desk.commit();
    insta::assert_snapshot!(desk.call("project upgrade --project shop"), @r"
    $ wheelhouse project upgrade --project shop
      changed   Containerfile
      changed   wheelhouse.toml
      conflict  .github/workflows/test.yaml (look for <<<<<<<)
    (exit code 2)
    ");
    let ci = std::fs::read_to_string(desk.path().join(CI)).unwrap();
    for kept in ["<<<<<<<", "cargo test --release\n", "run: wheelhouse manifests --check\n", ">>>>>>>"] {
        assert!(ci.contains(kept), "{kept} is not in {ci}");
    }
}

#[test]
fn whoever_says_a_folder_is_told_that_ci_does_not_find_it() {
    let desk = Desk::new();
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let said = desk.call(&format!("init shop --domain example.com --sdk {tree}"));
    assert!(said.contains("of this machine: CI finds it nowhere else"), "{said}");
    let ci = std::fs::read_to_string(desk.path().join(CI)).unwrap();
    assert!(ci.contains("# The SDK is a folder of the machine"), "{ci}");
    let said = desk.call("init other --domain example.com --sdk https://git.example.com/wheelhouse.git");
    assert!(!said.contains("note:"), "{said}");
}

#[test]
fn the_image_is_called_as_the_project_says() {
    let desk = Desk::with_a_project();
    desk.script(
        "bin/cargo",
        "while [ \"$1\" != -- ]; do shift; done; echo \"---\nkind: Deployment\nasked: $*\"",
    );
    desk.edit("shop/wheelhouse.toml", "sdk = ", "images = \"registry.example.com/team\"\nsdk = ");
    desk.commit();
    desk.call("manifests --project shop");
    let deployment =
        std::fs::read_to_string(desk.path().join("shop/config/operator/deployment.yaml")).unwrap();
    let asked = "asked: -- manifests --image registry.example.com/team/shop-operator:0.1.0\n";
    assert!(deployment.ends_with(asked), "{deployment}");
    // It stays when something is added.
    desk.commit();
    desk.call("create api --project shop --group app --version v1 --kind Book");
    let toml = std::fs::read_to_string(desk.path().join("shop/wheelhouse.toml")).unwrap();
    assert!(toml.contains("images = \"registry.example.com/team\"\n") && toml.contains("Book"), "{toml}");
}

#[test]
fn what_the_compiler_says_is_shown() {
    let desk = Desk::with_a_project();
    desk.script("bin/cargo", "echo 'error: expected one of `!` or `::`' >&2; exit 101");
    insta::assert_snapshot!(desk.call("manifests --project shop"), @r"
    $ wheelhouse manifests --project shop
    error: expected one of `!` or `::`
    error: cargo run manifests failed
    (exit code 1)
    ");
}

/// Of an API server that is not there.
const KUBECONFIG: &str = "apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: a, user: {}}]
";

#[test]
fn a_plan_ends_with_the_exit_code_that_a_script_asks_for() {
    let desk = Desk::new();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.write("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    let plan = "plan -f page.yaml --operator ./operator";
    let mut said = String::new();
    for would in ["[]", r#"["delete Pod one-0"]"#] {
        desk.program(
            "operator",
            &format!(r#"[{{"controller": "pages", "key": "default/one", "would": {would}}}]"#),
        );
        said += &[plan, &format!("{plan} --exit-code"), &format!("{plan} --exit-code --output json")]
            .map(|call| desk.call(call))
            .concat();
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
