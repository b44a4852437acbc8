//! [`LocalCluster`]: a cluster on this machine, which ends with the benchmark.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A cluster that `wheelhouse local` runs. Dropping it takes it down, also when something went wrong.
pub struct LocalCluster {
    wheelhouse: PathBuf,
    name: &'static str,
}

impl LocalCluster {
    /// Brings it up with that command, with so many nodes.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up(wheelhouse: &Path, name: &'static str, nodes: usize) -> Result<Self> {
        let cluster = Self { wheelhouse: wheelhouse.to_owned(), name };
        eprintln!("bringing up a cluster (a minute, and minutes more at first for the images)");
        // What a run that was killed left would be in the way.
        cluster.wheelhouse(&["local", "down", name, "--if-exists"])?;
        cluster.wheelhouse(&["local", "up", name, "--nodes", &nodes.to_string()])?;
        Ok(cluster)
    }

    /// Builds these images of the tree, and loads them into every node.
    ///
    /// # Errors
    /// When one cannot be built or loaded.
    pub fn load(&self, images: &[&str]) -> Result<()> {
        for image in images {
            let archive = self.wheelhouse(&["image", "build", image])?;
            self.wheelhouse(&["local", "load", "--cluster", self.name, archive.trim()])?;
        }
        Ok(())
    }

    /// Applies a file, and waits until the operator that it installs is rolled out.
    ///
    /// # Errors
    /// When that does not happen.
    pub fn install_operator(&self, file: &str, deployment: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", file])?;
        let deployment = format!("deployment/{deployment}");
        let rollout = ["-n", "wheelhouse-system", "rollout", "status", &deployment, "--timeout=180s"];
        self.kubectl(&rollout).map(drop)
    }

    /// The file with which clients reach it.
    ///
    /// # Errors
    /// When the cluster is not there.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        Ok(self.wheelhouse(&["local", "kubeconfig", self.name])?.trim().into())
    }

    /// Takes it down.
    ///
    /// # Errors
    /// When something of it is left.
    pub fn down(self) -> Result<()> {
        self.wheelhouse(&["local", "down", self.name]).map(drop)
    }

    /// Calls kubectl: what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.call(&self.to_kubectl(arguments), None)
    }

    /// Calls kubectl with this as its input.
    ///
    /// # Errors
    /// When it fails.
    pub fn fed(&self, arguments: &[&str], text: &str) -> Result<String> {
        self.call(&self.to_kubectl(arguments), Some(text))
    }

    /// kubectl, not called yet.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.wheelhouse);
        command.args(self.to_kubectl(arguments));
        command
    }

    fn to_kubectl<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["local", "kubectl", "--cluster", self.name], arguments].concat()
    }

    fn wheelhouse(&self, arguments: &[&str]) -> Result<String> {
        self.call(arguments, None)
    }

    fn call(&self, arguments: &[&str], text: Option<&str>) -> Result<String> {
        let line = format!("wheelhouse {}", arguments.join(" "));
        let mut child = Command::new(&self.wheelhouse)
            .args(arguments)
            .stdin(if text.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.wheelhouse.display()))?;
        if let (Some(text), Some(mut input)) = (text, child.stdin.take()) {
            input.write_all(text.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => bail!("{line} ended with {}", output.status),
        }
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        let _ = Command::new(&self.wheelhouse).args(["local", "down", self.name, "--if-exists"]).output();
    }
}
