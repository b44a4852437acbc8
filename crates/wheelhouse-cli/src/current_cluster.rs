//! The cluster that the user's kubeconfig selects.
//!
//! The operator's own program is started beside this command and looks for its cluster itself: both have to find the same
//! one. So that program is told the files that are read here: of those that `KUBECONFIG` lists the ones that are there, which
//! is more than it knows to do itself; and where it lists nothing the user's own, which under sudo is another one than root's.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;
use wheelhouse_local::{
    Cluster,
    kubeconfig::{self, UserKubeconfig},
};

const VARIABLE: &str = "KUBECONFIG";

/// A client of it.
pub(crate) async fn client() -> Result<Client> {
    let config = Config::from_custom_kubeconfig(read()?, &KubeConfigOptions::default()).await;
    let config = config.context("cannot tell from the kubeconfig which cluster is meant")?;
    Client::try_from(config).context("cannot make a client of the cluster")
}

/// It, if it is a local one.
pub(crate) fn local() -> Result<Option<Cluster>> {
    let selected = read()?.current_context;
    let names = Cluster::names()?;
    let name = names.iter().find(|name| Some(kubeconfig::context(name)) == selected);
    Ok(name.map(|name| Cluster::open(name)).transpose()?)
}

/// Has a program find the same one.
pub(crate) fn tell(command: &mut Command) {
    let files = files();
    let there = that_are_there(&files);
    if let Ok(listed) = std::env::join_paths(&there)
        && !there.is_empty()
    {
        command.env(VARIABLE, listed);
    }
}

fn read() -> Result<Kubeconfig> {
    let files = files();
    let there = that_are_there(&files);
    if there.is_empty() {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        bail!(
            "there is no cluster to talk to: {} is not there. `wheelhouse local up` makes one",
            names.join(", ")
        );
    }
    let read = there.iter().try_fold(Kubeconfig::default(), |mut merged, file| {
        // One that selects nothing leaves it to the next, also if it says so in words.
        merged.current_context = merged.current_context.filter(|selected| !selected.is_empty());
        Kubeconfig::read_from(file).and_then(|next| merged.merge(next))
    });
    read.context("cannot read the kubeconfig")
}

/// The files that the variable lists, or the user's own.
fn files() -> Vec<PathBuf> {
    let listed = std::env::var_os(VARIABLE).unwrap_or_default();
    let listed: Vec<_> = std::env::split_paths(&listed).filter(|path| path != Path::new("")).collect();
    match listed.is_empty() {
        true => vec![UserKubeconfig::locate().path().to_owned()],
        false => listed,
    }
}

/// Those that can be read, as for kubectl: others may be there another time.
fn that_are_there(files: &[PathBuf]) -> Vec<&PathBuf> {
    files.iter().filter(|file| !matches!(file.try_exists(), Ok(false))).collect()
}
