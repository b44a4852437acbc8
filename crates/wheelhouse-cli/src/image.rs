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
  wheelhouse image build                     every image in ./images
  wheelhouse image build nginx               only this one
  wheelhouse local load $(wheelhouse image build nginx)")]
    Build {
        /// The images' names; all of them by default
        names: Vec<String>,
        /// The folder that has a folder for each image
        #[arg(long, default_value = "images")]
        folder: PathBuf,
    },
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb) -> Result<()> {
    let Verb::Build { names, folder } = verb;
    let all = Image::all_in(&folder)?;
    let known: Vec<_> = all.iter().map(|image| image.name.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("{} has no image called `{unknown}`; it has: {}", folder.display(), known.join(", "));
    }
    let progress = Progress::shown();
    for image in all.iter().filter(|image| names.is_empty() || names.contains(&image.name)) {
        let archive = image.ensure(&progress).await?;
        progress.clear();
        say(archive.display())?;
    }
    Ok(())
}
