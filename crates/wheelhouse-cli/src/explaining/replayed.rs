//! What an operator decides now on what was recorded. Its program tells it to people: what it says is read here, so that
//! another plan is not taken for a failure, nor a failure for another plan.

use std::{fmt::Display, path::Path, process::Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use wheelhouse_local::progress::tell;

use crate::operator_program::OperatorProgram;

/// How a program begins that decides the same again, on its standard output.
const THE_SAME: &str = "the plan is as it was recorded:";
/// How one does that decides something else, where it tells what went wrong.
const ANOTHER: &str = "the plan is not what was recorded:";
/// What is between the differences and the plan.
const NOW: &str = "now:";

/// What is decided now.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Replayed {
    /// Where that is not what was recorded, a line each.
    pub(super) differences: Vec<String>,
    /// The plan, line by line.
    plan: Vec<String>,
}

impl Replayed {
    /// What a program decides on what a file recorded.
    pub(super) async fn by(program: &OperatorProgram, file: &Path) -> Result<Self> {
        let cannot = || format!("cannot run {}", program.name());
        let mut command = program.command(&["replay", &file.to_string_lossy()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = program.start(&mut command)?;
        let (mut printed, mut another) = (String::new(), None::<Vec<String>>);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let reading = async {
            match stdout {
                Some(mut stdout) => stdout.read_to_string(&mut printed).await.map(drop),
                None => Ok(()),
            }
        };
        let complaining = async {
            let Some(stderr) = stderr else { return Ok(()) };
            let mut lines = BufReader::new(stderr).lines();
            while let Some(line) = lines.next_line().await? {
                match &mut another {
                    Some(lines) => lines.push(line),
                    None if line.strip_prefix("error: ") == Some(ANOTHER) => another = Some(Vec::new()),
                    // What the compiler says, or why nothing was decided.
                    None => tell(format_args!("{line}")),
                }
            }
            Ok(())
        };
        let (read, complained) = tokio::join!(reading, complaining);
        read.and(complained).with_context(cannot)?;
        let status = child.wait().await.with_context(cannot)?;
        match (another, status.success()) {
            (Some(another), false) => Ok(Self::another(another)),
            (_, true) => Ok(Self::the_same(&printed)),
            (None, false) => bail!("{} replay {} failed", program.name(), file.display()),
        }
    }

    fn the_same(printed: &str) -> Self {
        let lines = printed.lines().filter(|line| *line != THE_SAME);
        Self { differences: Vec::new(), plan: lines.map(|line| line.trim_start().to_owned()).collect() }
    }

    fn another(said: Vec<String>) -> Self {
        let mut lines = said.into_iter().map(|line| line.trim_start().to_owned());
        let differences = lines.by_ref().take_while(|line| line != NOW).collect();
        Self { differences, plan: lines.collect() }
    }
}

impl Display for Replayed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.differences.is_empty() {
            true => write!(formatter, "{THE_SAME}")?,
            false => write!(formatter, "{ANOTHER}\n  {}\n{NOW}", self.differences.join("\n  "))?,
        }
        self.plan.iter().try_for_each(|line| write!(formatter, "\n  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn these_are_the_words_of_an_operators_own_program() {
        let theirs = include_str!("../../../wheelhouse/src/manager/explaining.rs");
        for said in
            [format!("\"{THE_SAME}\\n{{plan}}\""), format!("\"{ANOTHER}\\n  {{}}\\n{NOW}\\n{{plan}}\"")]
        {
            assert!(theirs.contains(&said), "it does not say {said}");
        }
    }
}
