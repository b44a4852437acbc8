//! Whom the verbs ask: a program that is here, or the operator that runs in the cluster.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use wheelhouse_project::{Project, project};

use crate::operator_program::OperatorProgram;

/// Which operator's program is meant.
#[derive(Args)]
pub(crate) struct Here {
    /// The operator's program [default: that of the project]
    #[arg(long, value_name = "PROGRAM")]
    operator: Option<PathBuf>,
    /// A folder of the project [default: this one]
    #[arg(long, value_name = "FOLDER", conflicts_with = "operator")]
    project: Option<PathBuf>,
}

impl Here {
    /// The program, if there is one: of all that nobody named, only a project that is not there may be passed over.
    fn find(self) -> Result<Option<OperatorProgram>> {
        let folder = match (self.operator, self.project) {
            (Some(path), _) => return Ok(Some(OperatorProgram::Binary(path))),
            (None, Some(folder)) => folder,
            (None, None) if is_in_a_project()? => PathBuf::from("."),
            (None, None) => return Ok(None),
        };
        let (folder, project) = Project::find(&folder)?;
        Ok(Some(OperatorProgram::of_project(&folder, &project)))
    }

    /// The program, where nobody else can be asked.
    pub(super) fn program(self) -> Result<OperatorProgram> {
        self.find()?.with_context(|| {
            format!(
                "which operator? Say its program with --operator, or its project with --project, or go into that: there is no {} here \
                 or above",
                project::FILE
            )
        })
    }
}

fn is_in_a_project() -> Result<bool> {
    let here = std::env::current_dir().context("cannot look into this folder")?;
    Ok(here.ancestors().any(|folder| folder.join(project::FILE).is_file()))
}

/// Which operator is asked.
#[derive(Args)]
pub(crate) struct Whom {
    #[command(flatten)]
    here: Here,
    /// Ask the operator that runs in the cluster, also in a project [default: only outside of one]
    #[arg(long, conflicts_with_all = ["operator", "project"])]
    running: bool,
}

impl Whom {
    /// The program that is at hand; none if the operator that runs is to be asked.
    pub(super) fn program(self) -> Result<Option<OperatorProgram>> {
        if self.running { Ok(None) } else { self.here.find() }
    }
}

/// Whether a file is what is piped in.
pub(super) fn is_piped_in(file: &Path) -> bool {
    file == Path::new("-")
}

/// A file, for people.
pub(super) fn called(file: &Path) -> String {
    if is_piped_in(file) { "what is piped in".to_owned() } else { file.display().to_string() }
}

/// What a program prints about resources, which it reads itself, also those that are piped in.
pub(super) async fn printed_about(program: &OperatorProgram, file: &Path) -> Result<String> {
    let path = file.to_string_lossy();
    let arguments = ["plan", "--json", "-f", &path];
    if !is_piped_in(file) {
        return program.prints(&arguments).await;
    }
    let cannot = "cannot run the operator's program";
    let mut command = program.command(&arguments);
    command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = program.start(&mut command)?.wait_with_output().await.context(cannot)?;
    if !output.status.success() {
        bail!("the operator's program has no plan for {}", called(file));
    }
    String::from_utf8(output.stdout).context("what the operator prints is no text")
}

/// The name of a program's operator, which its field managers begin with.
pub(super) async fn name_of(program: &OperatorProgram) -> Result<String> {
    let printed = program.prints(&["--version"]).await?;
    Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
}
