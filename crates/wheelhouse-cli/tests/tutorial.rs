//! The tutorial of the book, followed from an empty folder to an operator that runs in a cluster.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use support::{Wheelhouse, host::Host, image, page, tree};

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// With warm caches.
const AT_MOST: Duration = Duration::from_secs(600);

#[test]
fn the_tutorial_leads_from_an_empty_folder_to_an_operator_in_a_cluster() {
    // What of the tree the page builds is in the cache; its operator is what is timed.
    image("nginx");
    let script = page::script(&std::fs::read_to_string(tree().join("docs/tutorial.md")).unwrap());
    // Whoever writes an operator compiles the SDK once, for its tests and for its image; the second time it is warm.
    let cache = wheelhouse_local::folders::cache();
    let target = cache.join("tutorial-target");
    let marks =
        [&target, &cache.join("static-target")].map(|folder| folder.join("has-followed-the-tutorial"));
    let is_warm = marks.iter().all(|mark| mark.is_file());
    let environment = format!(
        "export WHEELHOUSE={} CARGO_TARGET_DIR={} GIT_AUTHOR_NAME=Reader GIT_AUTHOR_EMAIL=reader@example.com GIT_COMMITTER_NAME=Reader GIT_COMMITTER_EMAIL=reader@example.com\n",
        tree().display(),
        target.display()
    );
    let before = Host::now();
    let wheelhouse = Wheelhouse::new();
    let folder = wheelhouse.folder("empty");
    let compilers = Compilers::watch(&wheelhouse);
    let begun = Instant::now();
    let said = page::follow(&wheelhouse, &format!("{environment}{script}"), &folder);
    let (took, compiled) = (begun.elapsed(), compilers.ran_for());
    let left = page::clusters_left(&wheelhouse);
    let shown = said.stdout.clone();
    said.ok();
    marks.iter().for_each(|mark: &PathBuf| std::fs::write(mark, "").unwrap());
    println!("{shown}");
    let apart = took.saturating_sub(compiled);
    println!(
        "the tutorial took {:.0} s, {:.0} s apart from compilers; caches were {} at the beginning",
        took.as_secs_f64(),
        apart.as_secs_f64(),
        if is_warm { "warm" } else { "cold" }
    );
    assert!(left.is_empty(), "the tutorial leaves clusters behind: {left:?}");
    assert_eq!("", Host::left_since(&before));
    assert!(apart < AT_MOST, "{apart:?} apart from compilers");
    assert!(!is_warm || took < AT_MOST, "{took:?} with warm caches");
}

/// Looks from time to time whether a compiler runs that was started in this world.
struct Compilers {
    seen: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    looking: std::thread::JoinHandle<()>,
}

impl Compilers {
    fn watch(wheelhouse: &Wheelhouse) -> Self {
        let mark = format!("WHEELHOUSE_STATE_DIR={}", wheelhouse.state().display());
        let (seen, stop) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (counting, stopped) = (seen.clone(), stop.clone());
        let looking = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                if one_runs(&mark) {
                    counting.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Self { seen, stop, looking }
    }

    fn ran_for(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.looking.join().unwrap();
        LOOK_EVERY * self.seen.load(Ordering::SeqCst)
    }
}

fn one_runs(mark: &str) -> bool {
    let is_one = |folder: std::path::PathBuf| {
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let is_compiler = ["rustc", "cc", "ld", "collect2", "build-script-bu"].contains(&name.trim());
        is_compiler
            && std::fs::read(folder.join("environ"))
                .is_ok_and(|environment| String::from_utf8_lossy(&environment).contains(mark))
    };
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| is_one(entry.path()))
}
