//! Who is measured, and how their programs are come by.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;
use wheelhouse_local::{
    folders::{self, Lock},
    progress::Progress,
};

use crate::options::Figure;

/// Whom the others are compared with.
pub(crate) const BASELINE: &str = "controller-runtime";

/// Everybody who takes part; to add one is to add an entry.
const ENTRIES: [Entry; 4] = [
    Entry {
        name: BASELINE,
        program: Program::ControllerRuntime,
        arguments: &[],
        leaves: Objects::ControllerRuntime,
        figures: &Figure::ALL,
    },
    Entry {
        name: "controller-runtime-tuned",
        program: Program::ControllerRuntime,
        arguments: &["--tuned"],
        leaves: Objects::ControllerRuntime,
        figures: &Figure::ALL,
    },
    Entry {
        name: "wheelhouse",
        program: Program::Sibling("bench-runtime-wheelhouse"),
        arguments: &[],
        leaves: Objects::Wheelhouse,
        figures: &Figure::ALL,
    },
    Entry {
        name: "wheelhouse-declared",
        program: Program::Sibling("bench-runtime-wheelhouse"),
        arguments: &["--declared-fields"],
        leaves: Objects::Wheelhouse,
        figures: &[Figure::Memory],
    },
];

/// Go from nothing takes minutes; this is for a proxy that does not answer.
const BUILD_PATIENCE: Duration = Duration::from_secs(30 * 60);

/// One who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// What it is called in the results.
    pub(crate) name: &'static str,
    program: Program,
    /// What it is called with, besides what every contestant is.
    pub(crate) arguments: &'static [&'static str],
    /// How the objects look that it leaves.
    pub(crate) leaves: Objects,
    /// What is measured of it.
    pub(crate) figures: &'static [Figure],
}

/// How the objects of a converged world look, with all the metadata that those who wrote them leave. Who
/// leaves the same can be measured on the same world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Objects {
    /// Written by create and update.
    ControllerRuntime,
    /// Written by server-side apply.
    Wheelhouse,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// Built by Go from the folder `controller-runtime`.
    ControllerRuntime,
    /// Built by cargo, and so beside this program.
    Sibling(&'static str),
}

/// One who takes part, with a program that is there.
#[derive(Debug)]
pub(crate) struct Contestant {
    /// Which one.
    pub(crate) entry: Entry,
    /// Its program.
    pub(crate) program: PathBuf,
}

impl Contestant {
    /// What it is called in the results.
    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }
}

/// Those of these names; everybody if there are none.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Entry>> {
    if names.is_empty() {
        return Ok(ENTRIES.to_vec());
    }
    if let Some(unknown) = names.iter().find(|name| ENTRIES.iter().all(|entry| entry.name != **name)) {
        let known = ENTRIES.map(|entry| entry.name).join(", ");
        bail!("there is no contestant {unknown}; there are {known}");
    }
    Ok(ENTRIES.into_iter().filter(|entry| names.iter().any(|name| name == entry.name)).collect())
}

/// Builds or finds their programs, and leaves those out that have none.
pub(crate) async fn prepare(entries: Vec<Entry>, progress: &Progress) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::new();
    let mut built = None;
    for entry in entries {
        let program = match (entry.program, &built) {
            (Program::ControllerRuntime, Some(built)) => PathBuf::clone(built),
            (Program::ControllerRuntime, None) => built.insert(build(progress).await?).clone(),
            (Program::Sibling(name), _) => sibling(name)?,
        };
        if program.is_file() {
            contestants.push(Contestant { entry, program });
        } else {
            progress.line(format!("leaving {} out: there is no {}", entry.name, program.display()));
        }
    }
    if contestants.is_empty() {
        bail!("none of the chosen contestants has a program, so there is nobody to measure");
    }
    Ok(contestants)
}

fn sibling(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the folder of this program")?;
    Ok(own.with_file_name(name))
}

/// Builds the operator on controller-runtime into the cache; Go itself knows if nothing has changed.
async fn build(progress: &Progress) -> Result<PathBuf> {
    let stage = progress
        .stage("building the operator on controller-runtime (some minutes at first, then a second or two)");
    let _lock = Lock::in_cache("bench-runtime", |holder| {
        progress.line(format!("it is being built by process {holder}; waiting for it"));
    })
    .await?;
    let program = folders::cache().join("bench").join("bench-runtime-controller-runtime");
    let building = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("controller-runtime"))
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(BUILD_PATIENCE, building)
        .await
        .context("`go build` of the operator on controller-runtime did not end within 30 minutes")?
        .context("cannot run `go`: install Go 1.26 or newer")?;
    if !output.status.success() {
        let problems = String::from_utf8_lossy(&output.stderr);
        bail!("`go build` of the operator on controller-runtime ended with {}:\n{problems}", output.status);
    }
    stage.done();
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(chosen: &[&str]) -> Result<Vec<&'static str>> {
        let chosen: Vec<_> = chosen.iter().map(|name| (*name).to_owned()).collect();
        Ok(choose(&chosen)?.iter().map(|entry| entry.name).collect())
    }

    #[test]
    fn without_a_choice_everybody_takes_part() {
        assert_eq!(ENTRIES.map(|entry| entry.name).to_vec(), names(&[]).unwrap());
    }

    #[test]
    fn chosen_contestants_keep_the_order_of_the_list() {
        assert_eq!([BASELINE, "wheelhouse"].as_slice(), names(&["wheelhouse", BASELINE]).unwrap());
    }

    #[test]
    fn an_unknown_contestant_is_refused_with_those_that_there_are() {
        let refused = names(&["operator-sdk"]).unwrap_err().to_string();
        assert!(refused.starts_with("there is no contestant operator-sdk; there are controller-runtime, "));
    }
}
