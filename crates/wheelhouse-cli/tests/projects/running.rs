//! `run`, `test` and `deploy`, as far as one gets without a cluster: what Cargo is called with, and when.

use std::{
    io::Read as _,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Desk, KUBECONFIG};

/// In the place of the operator: tells when it starts and when it is asked to end, and ends by itself if it is to.
const OPERATOR: &str = "
while [ \"$1\" != -- ]; do shift; done; shift
[ \"$1\" = run ] || exit 0
trap 'echo ended >> LOG; exit 0' TERM
echo \"started $*\" >> LOG
while ! [ -e FAIL ]; do sleep 0.1; done
echo failed >> LOG
exit 7";

/// What the operator told, and how to have it fail.
struct Told {
    log: PathBuf,
    fail: PathBuf,
}

impl Told {
    fn by_the_operator_of(desk: &Desk) -> Self {
        let told = Self { log: desk.path().join("log"), fail: desk.path().join("fail") };
        let script = OPERATOR.replace("LOG", &told.log.display().to_string());
        desk.script("bin/cargo", &script.replace("FAIL", &told.fail.display().to_string()));
        told
    }

    fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(&self.log).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until it has told so many lines; the last of them.
    #[track_caller]
    fn line(&self, number: usize) -> String {
        let begun = Instant::now();
        loop {
            let lines = self.lines();
            if lines.len() >= number {
                assert_eq!(lines.len(), number, "{lines:?}");
                return lines[number - 1].clone();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no line {number} in {lines:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn an_operator_that_is_watched_starts_anew_with_every_change_and_ends_with_the_command() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    let told = Told::by_the_operator_of(&desk);
    let mut command = desk.command("run --project shop --watch -- --log-level debug");
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let started = "started run --install-crds --no-leader-election --listen 127.0.0.1:8080 --log-level debug";
    assert_eq!(told.line(1), started);

    // It may finish what it does, and one at a time runs.
    desk.edit("shop/src/page/analyse.rs", "//! Analyse", "//! Analyse anew");
    assert_eq!(told.line(3), started);
    assert_eq!(told.lines()[1], "ended");

    // One that ends by itself is started when there is something new to start.
    std::fs::write(&told.fail, "").unwrap();
    assert_eq!(told.line(4), "failed");
    std::fs::remove_file(&told.fail).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    let manifest = std::fs::File::options().append(true).open(desk.path().join("shop/Cargo.toml")).unwrap();
    manifest.set_modified(later).unwrap();
    assert_eq!(told.line(5), started);

    kill(Pid::from_raw(running.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(told.line(6), "ended");
    let mut said = String::new();
    running.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    insta::assert_snapshot!(said, @r"
    the sources changed: starting anew
    it ended (exit status: 7): waiting for a change
    ");
}

#[test]
fn a_verb_that_takes_the_place_of_another_program_ends_as_that_does() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.script("bin/cargo", "if [ \"$1\" = test ]; then echo \"cargo $*\"; exit 101; fi");
    let mut said = desk.call("test --project shop");
    said += &desk.call("test --project shop/src -- --test api_server");
    let told = Told::by_the_operator_of(&desk);
    std::fs::write(&told.fail, "").unwrap();
    said += &desk.call("run --project shop");
    assert_eq!(told.lines().len(), 2);
    insta::assert_snapshot!(said);
}

#[test]
fn whoever_deploys_into_a_cluster_of_others_is_asked_for_a_registry() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.script("bin/cargo", "echo 'nothing is to be compiled' >&2; exit 1");
    insta::assert_snapshot!(desk.call("deploy --project shop"));
}

/// Only root can be somebody else.
#[test]
fn what_sudo_compiles_in_a_project_belongs_to_whose_the_project_is() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let desk = Desk::with_a_project();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(desk.path(), open).unwrap();
    desk.script("bin/cargo", "echo \"uid $(id -u), at home in $HOME\" >&2; exit 1");
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let theirs = format!("uid {}, at home in {}\n", nobody.uid, nobody.dir.display());
    let calls = ["manifests --project shop", "test --project shop"];
    let called = |call: &str| desk.said(call, desk.command(call).env("SUDO_USER", "nobody"));
    for call in calls {
        assert!(called(call).contains("uid 0, "), "it is root's");
    }
    std::os::unix::fs::chown(desk.path().join("shop"), Some(nobody.uid.as_raw()), None).unwrap();
    for call in calls {
        let said = called(call);
        assert!(said.contains(&theirs), "{said}");
        // Whoever is root without sudo stays it.
        assert!(desk.call(call).contains("uid 0, "));
    }
}
