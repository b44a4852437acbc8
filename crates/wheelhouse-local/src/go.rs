//! Programs in Go, compiled from pinned modules by this machine's Go.

use std::path::Path;

use nix::unistd::User;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::{command::Call, error::Result, progress::Progress};

/// The linker flags of who stamps nothing: what only debuggers read is left out.
pub(crate) const LINKER_FLAGS: &str = "-s -w";

/// A package that can be compiled.
pub(crate) struct Package<'a> {
    /// The folder with the go.mod and the go.sum that pin everything.
    pub(crate) module: &'a Path,
    /// What Go calls the package; `.` is the one in that folder.
    pub(crate) path: &'a str,
    /// What the linker is told.
    pub(crate) linker_flags: &'a str,
    /// Whose Go compiles it, with the caches of theirs; that of who runs this by default.
    pub(crate) user: Option<&'a User>,
    /// How long that takes, for who waits.
    pub(crate) takes: &'a str,
}

impl Package<'_> {
    /// Compiles it to a static binary; every package that Go compiles on the way moves the bar. The
    /// name of the output is what people are told is being compiled.
    pub(crate) async fn compile(&self, output: &Path, progress: &Progress) -> Result<()> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        self.go(format!(
            "find the Go toolchain that {name} is compiled with (install Go 1.21 or newer; with sudo: keep the PATH)"
        ))
        .arg("version")
        .run()
        .await?;

        let stage = progress.stage(format!("fetching the Go modules of {name}"));
        let listed = self
            .go(format!("fetch the Go modules of {name}"))
            .args(["list", "-deps", self.path])
            .output()
            .await?;
        let total = listed.lines().count();
        stage.done();

        let mut stage = progress.stage(format!("compiling {name} ({})", self.takes));
        let build = self
            .go(format!("compile {name}"))
            .args(["build", "-v", "-trimpath", "-ldflags", self.linker_flags, "-o"])
            .arg(output)
            .arg(self.path);
        let (mut child, failed) = build.spawn_piped()?;
        let (mut done, mut problems) = (0, String::new());
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // Anything but a bare import path is a compiler's message.
                if line.contains([' ', ':']) {
                    problems.push_str(&line);
                    problems.push('\n');
                } else {
                    done += 1;
                    stage.at(done, total);
                }
            }
        }
        if let Some(mut stdout) = child.stdout.take() {
            let _ = stdout.read_to_string(&mut problems).await;
        }
        match child.wait().await {
            Ok(status) if status.success() => {
                stage.done();
                Ok(())
            }
            Ok(status) => Err(failed(format!("ended with {status}: {problems}"))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Go as the pinned modules want it, whatever the user's own settings are.
    fn go(&self, doing: String) -> Call {
        let call = Call::new(doing, "go")
            .folder(self.module)
            .env("CGO_ENABLED", "0")
            // The commit of the tree is nothing of the program's; and where the tree is another's, git
            // refuses to tell it.
            .env("GOFLAGS", "-mod=readonly -buildvcs=false")
            .env("GOWORK", "off");
        match self.user {
            Some(user) => call.user(user),
            None => call,
        }
    }
}
