//! `wheelhouse image`: container images without Docker.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;
use wheelhouse_local::{Progress, images::Image};

use crate::say;

/// The verbs of `wheelhouse image`.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Build the images that changed, and print where each archive is
    #[command(after_help = "\
Examples:
  wheelhouse image build                     every image of this tree
  wheelhouse image build nginx               only this one
  wheelhouse image build gordon-operator     that of the operator in operators/gordon
  wheelhouse image build etcd-v3.6.16        one version of what is in images/etcd
  wheelhouse local load $(wheelhouse image build nginx)")]
    Build {
        /// The images' names; all of them by default
        names: Vec<String>,
        /// The tree that has `images/` and `operators/`
        #[arg(long, default_value = ".")]
        tree: PathBuf,
    },
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb) -> Result<()> {
    let Verb::Build { names, tree } = verb;
    let all = Image::all_of(&tree)?;
    let known: Vec<_> = all.iter().map(|image| image.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("{} has no image called `{unknown}`; it has: {}", tree.display(), known.join(", "));
    }
    let progress = Progress::shown();
    for image in all.iter().filter(|image| names.is_empty() || names.contains(&image.name)) {
        let archive = image.ensure(&progress).await?;
        progress.clear();
        say(archive.display())?;
    }
    Ok(())
}
