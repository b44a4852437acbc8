//! The program of an image that holds nothing else: a static binary of a
//! package of this tree, compiled by this machine's cargo.
//!
//! Invariants:
//! - The binary needs no file to run: no loader and no library.
//! - It holds no path of this machine: the same sources and the same toolchain
//!   make the same binary in whatever folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use goblin::elf::Elf;
use nix::unistd::User;

use crate::{
    command::Call,
    error::{Error, Result},
    folders,
    progress::Progress,
};

/// A binary of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// The folder of the package.
    pub(super) package: PathBuf,
    /// The name of the binary.
    pub(super) name: String,
    /// The packages of the same workspace that are images, too. What all of them depend on is compiled once, with the
    /// features that any of them asks for.
    pub(super) beside: Vec<String>,
}

impl Program {
    /// The name of its package, as its `Cargo.toml` has it.
    pub(super) fn package_name(&self) -> Option<String> {
        let text = fs::read_to_string(self.package.join("Cargo.toml")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("name = \""))?;
        Some(line.split('"').next()?.to_owned())
    }

    /// The content of the binary, as the sources are now. Cargo knows what is stale: with nothing
    /// changed, this takes a moment.
    pub(super) async fn compile(&self, progress: &Progress) -> Result<Vec<u8>> {
        let builder = Builder::of_the_cache()?;
        let target = builder
            .call("find the Rust toolchain that images are compiled with (with sudo: keep the PATH)", "rustc")
            .folder(&self.package)
            .args(["--print", "host-tuple"])
            .output()
            .await?;
        let target = target.trim();
        // Not the folder that the tree is compiled in: it would keep both, and hold up whoever uses it.
        let folder = folders::cache().join("static-target");

        let stage =
            progress.stage(format!("compiling {} if it changed (minutes at first, then seconds)", self.name));
        builder
            .call(format!("compile {}", self.name), "cargo")
            .folder(&self.package)
            .env("CARGO_ENCODED_RUSTFLAGS", flags(&builder.cargo_home).join("\x1f"))
            // Without a target, the flags would be those of build scripts and macros too, which cannot be static.
            .args(["build", "--quiet", "--release", "--locked", "--bin", &self.name, "--target", target])
            // Optimising across all crates takes minutes for every operator, each time that one changes.
            .args(["--config", "profile.release.lto=false"])
            .args(self.beside.iter().flat_map(|package| ["--package", package]))
            .arg("--target-dir")
            .arg(&folder)
            .run()
            .await?;
        let path = folder.join(target).join("release").join(&self.name);
        let content = fs::read(&path).map_err(Error::file("read", &path))?;
        check_static(&path, &content)?;
        stage.done();
        Ok(content)
    }
}

/// Who calls cargo: the user whose the cache is.
struct Builder {
    user: Option<User>,
    cargo_home: PathBuf,
}

impl Builder {
    fn of_the_cache() -> Result<Self> {
        let user = folders::owner_of_the_cache()?;
        let cargo_home = folders::from_env("CARGO_HOME").unwrap_or_else(|| {
            user.as_ref().map_or_else(folders::home, |user| user.dir.clone()).join(".cargo")
        });
        Ok(Self { user, cargo_home })
    }

    fn call(&self, doing: impl Into<String>, program: &str) -> Call {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let call = names
            .filter(|name| is_of_another_cargo(name))
            .fold(Call::new(doing, program), |call, name| call.env_remove(name));
        match &self.user {
            Some(user) => call.user(user),
            None => call,
        }
    }
}

/// What a cargo that runs this program, as in a test, says of it. It is nothing of what is compiled
/// here; but build scripts look at it and would run again, and all that depends on them with them.
fn is_of_another_cargo(variable: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"];
    prefixes.iter().any(|prefix| variable.starts_with(prefix))
}

/// What makes a binary static, and the same on every machine.
fn flags(cargo_home: &Path) -> [String; 2] {
    [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/cargo", cargo_home.display()),
    ]
}

/// In an image without a loader and libraries, a binary that needs them fails only when a pod starts it.
fn check_static(path: &Path, content: &[u8]) -> Result<()> {
    let malformed =
        |problem| Error::Malformed { path: path.to_owned(), expected: "a static binary", problem };
    let elf = Elf::parse(content).map_err(|error| malformed(error.to_string()))?;
    let needed: Vec<_> = elf.interpreter.into_iter().chain(elf.libraries).collect();
    if needed.is_empty() {
        return Ok(());
    }
    Err(malformed(format!(
        "it needs {}, which its image does not have; find the dependency that links to a shared library and do without",
        needed.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_needs_a_loader_or_a_library_is_refused_with_their_names() {
        // A test is linked dynamically itself.
        let path = std::env::current_exe().unwrap();
        let refused = check_static(&path, &fs::read(&path).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("is not a static binary: it needs /lib"), "{refused}");
        assert!(refused.contains(", libc.so"), "{refused}");
    }

    #[test]
    fn a_binary_that_needs_nothing_is_fine() {
        let mut header = [0_u8; 64];
        // 64 bits, little-endian, version 1; no segments and no sections.
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        check_static(Path::new("x"), &header).unwrap();
    }

    #[test]
    fn what_is_no_binary_at_all_is_refused() {
        let refused = check_static(Path::new("x"), b"#!/bin/sh\n").unwrap_err().to_string();
        assert!(refused.starts_with("x is not a static binary: "), "{refused}");
    }
}
