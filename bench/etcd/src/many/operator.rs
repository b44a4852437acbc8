//! [`Operator`]: the operator as a process of its own.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use wheelhouse_local::processes::log_end;
use wheelhouse_testing::{Identity, spawn_tethered};

/// How often is looked whether it still runs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A running operator, which ends with this, or with this process.
pub(super) struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts it as that identity, for one namespace. It is beside this program.
    ///
    /// Its environment is empty but for PATH, so that no setting of whoever measures changes what is measured.
    pub(super) fn start(identity: &Identity, namespace: &str, socket: &Path, logs: &Path) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("bench-etcd-operator");
        let log = logs.join("operator.log");
        let errors = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let kubeconfig = identity.kubeconfig()?;
        let child = spawn_tethered(&program, |command| {
            command
                .env_clear()
                .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
                .env("KUBECONFIG", kubeconfig)
                .env("SIMULATED_MEMBERS", socket)
                .args(["run", "--no-leader-election", "--listen", "127.0.0.1:0", "--log-level", "warn"])
                .args(["--namespace", namespace])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(errors);
        });
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for something that it brings about.
    pub(super) async fn while_running<T>(&mut self, awaited: impl Future<Output = Result<T>>) -> Result<T> {
        let ends = async {
            loop {
                if let Ok(Some(status)) = self.child.try_wait() {
                    return anyhow!("the operator ended with {status}");
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let outcome = tokio::select! {
            outcome = awaited => outcome,
            error = ends => Err(error),
        };
        outcome.with_context(|| format!("the end of what the operator said:\n{}", log_end(&self.log)))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
