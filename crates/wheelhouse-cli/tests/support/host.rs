//! What a cluster could leave behind on the host: everything of each kind, before and after.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// All that is compared.
#[derive(Debug)]
pub(crate) struct Host {
    kinds: Vec<(&'static str, BTreeSet<String>)>,
}

impl Host {
    /// How the host is now.
    pub(crate) fn now() -> Self {
        Self {
            kinds: vec![
                ("process", processes()),
                ("mount", lines(&fs::read_to_string("/proc/self/mountinfo").unwrap())),
                ("namespace", namespaces()),
                ("named network namespace", lines(&output("ip", &["netns", "list"]))),
                ("link", links()),
                ("route", lines(&output("ip", &["route", "show", "table", "all"]))),
                ("packet filter rule", lines(&output("iptables-save", &[]))),
                ("control group", control_groups()),
                ("kernel setting", kernel_settings()),
                ("file", files()),
            ],
        }
    }

    /// What is there now and was not there before; empty if nothing is left. The host's first
    /// process has a moment to bury who died.
    pub(crate) fn left_since(before: &Self) -> String {
        let begun = Instant::now();
        loop {
            let left = Self::left_now(before);
            if left.is_empty() || begun.elapsed() > Duration::from_secs(5) {
                return left;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn left_now(before: &Self) -> String {
        let mut left = String::new();
        for ((kind, before), (_, after)) in before.kinds.iter().zip(&Self::now().kinds) {
            for each in after.difference(before) {
                writeln!(left, "{kind}: {each}").unwrap();
            }
        }
        left
    }
}

/// Processes that carry the mark of a cluster, or run one of its programs.
fn processes() -> BTreeSet<String> {
    let programs = [
        "catatonit",
        "containerd",
        "containerd-shim",
        "coredns",
        "kubelet",
        "kube-proxy",
        "nginx",
        "nsenter",
        "pause",
        "runc",
        "unshare",
    ];
    each_process()
        .filter_map(|path| {
            let program = fs::read_to_string(path.join("comm")).ok()?.trim().to_owned();
            let marked = String::from_utf8_lossy(&fs::read(path.join("environ")).ok()?)
                .contains("WHEELHOUSE_CLUSTER_FOLDER=");
            (marked || programs.contains(&program.as_str())).then(|| format!("{} {program}", path.display()))
        })
        .collect()
}

fn namespaces() -> BTreeSet<String> {
    each_process()
        .flat_map(|path| {
            ["ipc", "mnt", "net", "pid", "uts"].map(|kind| fs::read_link(path.join("ns").join(kind)))
        })
        .filter_map(|link| Some(link.ok()?.display().to_string()))
        .collect()
}

fn each_process() -> impl Iterator<Item = std::path::PathBuf> {
    let is_number = |name: &str| name.chars().all(|each| each.is_ascii_digit());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(move |path| is_number(&path.file_name().unwrap().to_string_lossy()))
}

fn links() -> BTreeSet<String> {
    fs::read_dir("/sys/class/net")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// What kubelet likes to set for the whole host.
fn kernel_settings() -> BTreeSet<String> {
    let settings = ["kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom"];
    let value = |setting: &&str| fs::read_to_string(Path::new("/proc/sys").join(setting)).unwrap_or_default();
    settings.iter().map(|setting| format!("{setting} = {}", value(setting).trim())).collect()
}

/// Groups of clusters and pods; others come and go on a busy host.
fn control_groups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), 8, &mut found);
    found.into_iter().filter(|path| path.contains("wheelhouse") || path.contains("kubepods")).collect()
}

/// The places where container runtimes and Kubernetes leave files.
fn files() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (folder, depth) in [
        ("/run", 3),
        ("/var/lib", 1),
        ("/var/lib/cni", 4),
        ("/var/lib/containerd", 2),
        ("/var/lib/kubelet", 4),
        ("/var/log", 1),
        ("/etc", 1),
        ("/opt", 2),
        ("/usr/libexec", 2),
    ] {
        walk(Path::new(folder), depth, &mut found);
    }
    // An ordinary host is busy in there.
    found.retain(|path| !path.starts_with("/run/systemd") && !path.starts_with("/run/user"));
    found
}

fn walk(folder: &Path, depth: u8, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        found.insert(entry.path().display().to_string());
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), depth - 1, found);
        }
    }
}

/// Rules without their counters and the time they were listed at, routes without their age.
fn lines(text: &str) -> BTreeSet<String> {
    let without_age = |line: &str| line.split(" expires ").next().unwrap_or(line).to_owned();
    text.lines().filter(|line| !line.starts_with(['#', ':'])).map(without_age).collect()
}

fn output(program: &str, args: &[&str]) -> String {
    String::from_utf8_lossy(&Command::new(program).args(args).output().unwrap().stdout).into_owned()
}
