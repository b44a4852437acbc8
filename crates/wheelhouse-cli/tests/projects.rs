//! Projects, as people make them with the command: what it prints, and what it refuses without changing anything.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

#[path = "projects/asking.rs"]
mod asking;
#[path = "projects/running.rs"]
mod running;

use std::{
    collections::BTreeMap,
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
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
        self.call_with(arguments, "")
    }

    /// The same, with this piped in.
    fn call_with(&self, arguments: &str, piped_in: &str) -> String {
        let mut given = tempfile::tempfile().unwrap();
        given.write_all(piped_in.as_bytes()).unwrap();
        given.rewind().unwrap();
        self.said(arguments, self.command(arguments).stdin(given))
    }

    /// The same, where no program is installed but those of the desk.
    fn call_without_programs(&self, arguments: &str) -> String {
        self.said(arguments, self.command(arguments).env("PATH", self.path().join("bin")))
    }

    /// The command, not yet called.
    fn command(&self, arguments: &str) -> Command {
        let path = format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_wheelhouse"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.path())
            .env("KUBECONFIG", self.path().join("no-kubeconfig"))
            .env_remove("SUDO_USER")
            .env("PATH", path)
            .stdin(Stdio::null());
        command
    }

    /// What a call of it prints.
    fn said(&self, arguments: &str, command: &mut Command) -> String {
        let output = command.output().unwrap();
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
        "init other --domain example.com --sdk https://git.example.com/wheelhouse.git --member",
        "create api --group app --version v1 --kind Page",
        "create api --project shop --group app --version v1 --kind Page",
        "create api --project shop --group other --version v1 --kind Page",
        "create api --project shop --group app.example.com --version v1 --kind Book",
        "create api --project shop --group app --version 1 --kind Book",
        "create api --project shop --group app --version v1 --kind book",
        "create api --project shop --group app --version v1 --kind Deployment",
        "create api --project shop --group app --version v1 --kind Observe",
        "create api --project shop --group app --version v1 --kind V2",
        "create api --project shop --group app --version v1 --kind PAge --plural others",
        "create api --project shop --group app --version v1 --kind Book --plural pages",
        "create api --project shop --group app --version v1 --kind Book --plural 1books",
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
    std::fs::remove_file(desk.path().join("shop/config/kustomization.yaml")).unwrap();
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

#[test]
fn manifests_that_cannot_be_written_are_not_told_as_if_they_were() {
    let desk = Desk::with_a_project();
    desk.program("bin/cargo", PRINTED);
    // Where the draft of a file is to be there is a folder.
    desk.write("shop/deploy/shop.yaml.wheelhouse-draft/x", "");
    insta::assert_snapshot!(desk.call("manifests --project shop --output json"), @r"
    $ wheelhouse manifests --project shop --output json
    error: cannot write HERE/shop/deploy/shop.yaml: Is a directory (os error 21)
    (exit code 1)
    ");
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
      changed   README.md
      changed   wheelhouse.toml
    (exit code 0)
    $ wheelhouse project upgrade --project shop
    shop-operator is up to date (template 3)
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
      changed   README.md
      changed   wheelhouse.toml
      conflict  .github/workflows/test.yaml (look for <<<<<<<)
    (exit code 3)
    ");
    let ci = std::fs::read_to_string(desk.path().join(CI)).unwrap();
    for kept in ["<<<<<<<", "cargo test --release\n", "run: wheelhouse manifests --check\n", ">>>>>>>"] {
        assert!(ci.contains(kept), "{kept} is not in {ci}");
    }
}

#[test]
fn a_verb_that_meets_what_people_wrote_changes_nothing_or_keeps_both() {
    let desk = Desk::with_a_project();
    desk.edit("shop/src/page.rs", "    Page::crd()", "    described(Page::crd())");
    desk.commit();
    let before = desk.files();
    let mut said = desk.call("create api --project shop --group app --version v2 --kind Page");
    assert!(desk.files() == before, "it changed something");
    said += &desk.call("create api --project shop --group app --version v2 --kind Page --mark-conflicts");
    insta::assert_snapshot!(said);
}

#[test]
fn a_file_that_was_to_change_and_is_not_there_is_told() {
    let desk = Desk::with_a_project();
    std::fs::remove_file(desk.path().join("shop/src/lib.rs")).unwrap();
    // Of what was not to change nobody hears.
    std::fs::remove_file(desk.path().join("shop/deny.toml")).unwrap();
    desk.commit();
    insta::assert_snapshot!(desk.call("create api --project shop --group app --version v1 --kind Book"));
    assert!(!desk.path().join("shop/src/lib.rs").exists());
}

#[test]
fn whoever_makes_a_member_is_told_what_its_workspace_does_not_say_yet() {
    let desk = Desk::new();
    desk.write("Cargo.toml", "[workspace]\nmembers = [\"lib\"]\n");
    let init = |name: &str| {
        desk.call(&format!(
            "init {name} --domain example.com --sdk https://git.example.com/wheelhouse.git --member"
        ))
    };
    let said = init("ops/shop");
    assert!(said.contains("  add \"ops/shop\" to `members` in"), "{said}");
    desk.write("Cargo.toml", "[workspace]\nmembers = [\"ops/*\"]\n");
    let said = init("ops/store");
    assert!(!said.contains("`members`"), "{said}");
}

#[test]
fn a_file_that_is_in_the_way_is_kept_beside_what_is_new_if_that_is_said() {
    let desk = Desk::with_a_project();
    desk.write("fresh/README.md", "# Fresh\n");
    desk.write("shop/src/book.rs", "mod mine;\n");
    desk.commit();
    let before = desk.files();
    let calls = [
        "init fresh --domain example.com --sdk https://git.example.com/wheelhouse.git",
        "create api --project shop --group app --version v1 --kind Book",
    ];
    let mut said = calls.map(|call| desk.call(call)).concat();
    assert!(desk.files() == before, "it changed something");
    said += &desk.call(&format!("{} --mark-conflicts", calls[0]));
    insta::assert_snapshot!(said);
}

/// In a workspace that says nothing of how its members are formatted.
#[test]
fn what_is_made_in_a_workspace_is_formatted_as_cargo_formats_it_there() {
    let desk = Desk::new();
    desk.write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"ops/*\"]\n");
    desk.call("init ops/shop --domain example.com --sdk https://git.example.com/wheelhouse.git --member");
    desk.call("create api --project ops/shop --group app --version v1 --kind Page");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let check =
        Command::new(cargo).args(["fmt", "--check"]).current_dir(desk.path().join("ops/shop")).output();
    let check = check.unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn whoever_says_a_folder_is_told_that_ci_does_not_find_it() {
    let desk = Desk::new();
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let said = desk.call(&format!("init shop --domain example.com --sdk {tree}"));
    assert!(said.contains("of this machine: CI and Docker find it nowhere else"), "{said}");
    let ci = std::fs::read_to_string(desk.path().join(CI)).unwrap();
    assert!(ci.contains("# The SDK is a folder of the machine"), "{ci}");
    let said = desk.call("project upgrade --project shop --sdk https://git.example.com/wheelhouse.git");
    insta::assert_snapshot!(said, @r"
    $ wheelhouse project upgrade --project shop --sdk https://git.example.com/wheelhouse.git
      changed   .github/workflows/test.yaml
      changed   Cargo.toml
      changed   Containerfile
      changed   deny.toml
      changed   wheelhouse.toml
    (exit code 0)
    ");
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

/// A project is formatted by its own settings, or by those of nobody.
#[test]
fn the_settings_of_whoever_calls_are_not_those_of_the_project() {
    let plain = Desk::with_a_project();
    let desk = Desk::new();
    desk.write("rustfmt.toml", "hard_tabs = true\nmax_width = 60\n");
    desk.call("init shop --domain example.com --sdk https://git.example.com/wheelhouse.git");
    desk.call("create api --project shop --group app --version v1 --kind Page");
    let of = |desk: &Desk| -> BTreeMap<PathBuf, String> {
        let shop = desk.path().join("shop");
        let files = desk.files().into_iter();
        files.filter_map(|(path, text)| Some((path.strip_prefix(&shop).ok()?.to_owned(), text))).collect()
    };
    assert_eq!(of(&desk), of(&plain));
    // Whatever is around the next call: what was made before is known again.
    std::fs::remove_file(desk.path().join("rustfmt.toml")).unwrap();
    let said = desk.call("create api --project shop --group app --version v1 --kind Book");
    assert!(said.contains("changed   src/lib.rs") && said.ends_with("(exit code 0)\n"), "{said}");
}

#[test]
fn without_rustfmt_nothing_is_made_that_nobody_would_know_again() {
    let desk = Desk::new();
    let init = "init shop --domain example.com --sdk https://git.example.com/wheelhouse.git";
    let mut said = desk.call_without_programs(init);
    // As rustup does for a component that is not installed.
    desk.script(
        "bin/rustfmt",
        "echo \"error: 'rustfmt' is not installed for the toolchain 'stable'\" >&2; exit 1",
    );
    said += &desk.call_without_programs(init);
    assert!(!desk.path().join("shop").exists());
    insta::assert_snapshot!(said);
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
fn without_cargo_every_verb_says_the_same() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.write("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    let calls = [
        "manifests --project shop",
        "install --project shop",
        "run --project shop",
        "run --project shop -- --webhook-url https://here",
        "test --project shop",
        "deploy --project shop --registry registry.example.com/team",
        "replay incident.json --project shop",
        "plan -f - --project shop",
        "rbac check --operator ./none",
    ];
    insta::assert_snapshot!(calls.map(|call| desk.call_without_programs(call)).concat());
}

#[test]
fn a_project_of_a_template_that_is_not_known_is_not_called_damaged() {
    let desk = Desk::with_a_project();
    let template = format!("template = {}\n", wheelhouse_project::template::NEWEST);
    let mut said = String::new();
    // What else a newer one says is not known either.
    for other in ["template = 99\nnew = 1\n", "template = 0\n"] {
        desk.edit("shop/wheelhouse.toml", &template, other);
        said += &desk.call("project upgrade --project shop");
        desk.edit("shop/wheelhouse.toml", other, &template);
    }
    insta::assert_snapshot!(said.replace(&format!(" {}", wheelhouse_project::template::NEWEST), " NEWEST"));
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
    let done = desk.call("create api --project shop --group app --version v1 --kind Book --allow-dirty");
    assert!(done.ends_with("(exit code 0)\n"), "{done}");
    assert_eq!(std::fs::read_to_string(desk.path().join("shop/README.md")).unwrap(), "mine\n");
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
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = Desk::new().call(&format!("completions {shell}"));
        assert!(said.contains("explain") && said.ends_with("(exit code 0)\n"), "{said}");
    }
}

/// As `head` does: it has enough.
#[test]
fn whoever_reads_no_more_changes_nothing_of_how_a_verb_ends() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.write("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    desk.program("bin/cargo", PRINTED);
    let would = r#"[{"controller": "pages", "key": "default/one", "would": ["delete Pod one-0"]}]"#;
    desk.program("operator", would);
    let differs =
        "echo 'error: the plan is not what was recorded:' >&2; echo '  /steps: was 1, is 2' >&2; exit 1";
    desk.script("another", differs);
    let calls = [
        ("completions bash", 0),
        ("manifests --project shop --check", 3),
        ("plan -f page.yaml --operator ./operator", 0),
        ("plan -f page.yaml --operator ./operator --exit-code", 3),
        ("plan -f page.yaml --operator ./operator --exit-code --output json", 3),
        ("replay incident.json --operator ./another", 3),
        ("replay incident.json --operator ./operator", 0),
    ];
    for (call, code) in calls {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = desk.command(call).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(code), ""), "{call}");
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
        "local up",
        "local down",
        "local status",
        "local prepare",
        "local load",
        "local logs",
        "local node cut",
        "local node heal",
        "local kubectl",
        "image build",
        "chaos",
        "demo up",
        "demo down",
    ];
    for verb in verbs {
        let help = desk.call(&format!("{verb} --help"));
        let example = format!("  wheelhouse {verb}");
        assert!(help.contains("Example") && help.contains(&example), "{help}");
    }
    insta::assert_snapshot!(desk.call("--help"));
}
