//! The demo in a cluster that is not its own: the images go through a registry.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use support::{Said, Wheelhouse, eventually, tree};

const REGISTRY: &str = "github.com/distribution/distribution/v3/cmd/registry@v3.0.0";

/// A real registry, built once and kept beside the build.
fn registry_program() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("registry");
    let program = folder.join("registry");
    if !program.exists() {
        let mut install = Command::new("go");
        install
            .args(["install", REGISTRY])
            .env("GOBIN", &folder)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=mod");
        Said::from(install.output().unwrap()).ok();
    }
    program
}

struct Registry(Child);

impl Registry {
    fn start(wheelhouse: &Wheelhouse, address: &str) -> Self {
        let config = format!("version: 0.1\nstorage: {{inmemory: {{}}}}\nhttp: {{addr: '{address}'}}\n");
        let config = wheelhouse.file("registry.yaml", config);
        let mut command = Command::new(registry_program());
        command.arg("serve").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Self(command.spawn().unwrap());
        eventually(Duration::from_secs(20), || std::net::TcpStream::connect(address), Result::is_ok).unwrap();
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_demo_installs_into_a_cluster_that_is_there_and_is_undone() {
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up("elsewhere", &[]).ok();
    let server = wheelhouse.status("elsewhere")["server"].as_str().unwrap().to_owned();
    let host = server.trim_start_matches("https://").replace(".2:6443", ".1:5000");
    let _registry = Registry::start(&wheelhouse, &host);

    let (tree, kubeconfig) = (tree(), wheelhouse.local(&["kubeconfig", "elsewhere"]).ok());
    let place = ["--tree", tree.to_str().unwrap(), "--kubeconfig", kubeconfig.trim()];
    let registry = format!("{host}/team");
    let said = wheelhouse.call(&[&["demo", "up", "--registry", &registry], place.as_slice()].concat()).ok();
    assert!(
        said.contains(&format!("{registry}/gordon:0.1.0"))
            && said.contains(&format!("{registry}/gordon-operator:0.1.0"))
            && said.contains("Try next:"),
        "{said}"
    );
    wheelhouse.call(&[&["demo", "up", "--registry", &registry], place.as_slice()].concat()).ok();
    assert!(wheelhouse.local(&["status", "demo"]).code != Some(0), "nothing local is started");

    wheelhouse.call(&[&["demo", "down"], place.as_slice()].concat()).ok();
    let left = wheelhouse.kubectl("elsewhere", &["get", "namespace", "wheelhouse-system"]);
    assert!(left.stderr.contains("not found"), "{left:?}");
}
