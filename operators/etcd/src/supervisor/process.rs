//! etcd as a process: started, listened to, told to end.

use std::{collections::VecDeque, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinHandle,
};

/// So many of the last lines are looked at when etcd ends.
const LINES_KEPT: usize = 40;
/// Before it ends etcd hands over the lead, which takes a tenth of a second, or does not work at all: because whom it
/// would hand it over to ends as well, say. What it has acknowledged is on the disk: to end it then costs nothing.
const ENDS_WITHIN: Duration = Duration::from_millis(700);

/// What would let etcd begin by itself, or keep its log where nobody looks for it.
const NOT_PASSED_ON: [&str; 4] =
    ["ETCD_FORCE_NEW_CLUSTER", "ETCD_WAL_DIR", "ETCD_DATA_DIR", "ETCD_CONFIG_FILE"];

/// Whether there is such a program, and it runs.
///
/// # Errors
/// When there is none, or it does not.
pub(super) async fn check_program(program: &str) -> Result<(), String> {
    match Command::new(program).arg("--version").stdin(Stdio::null()).output().await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{program} of this image does not run ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("this image has no {program}: {error}")),
    }
}

/// A running etcd.
pub(super) struct Etcd {
    child: Child,
    last_lines: JoinHandle<VecDeque<String>>,
}

/// How etcd ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// What the system says.
    pub(super) how: String,
    /// What it said last.
    pub(super) last_lines: Vec<String>,
}

impl Etcd {
    /// Starts etcd; what it says goes where the supervisor's own words go.
    ///
    /// # Errors
    /// When there is no such program.
    pub(super) fn start(program: &str, arguments: &[String]) -> std::io::Result<Self> {
        let mut command = Command::new(program);
        for variable in NOT_PASSED_ON {
            command.env_remove(variable);
        }
        for variable in arguments.iter().filter_map(|argument| variable_of(argument)) {
            command.env_remove(variable);
        }
        let mut child =
            command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stderr = child.stderr.take();
        let last_lines = tokio::spawn(async move {
            let mut kept = VecDeque::new();
            let Some(stderr) = stderr else { return kept };
            let mut lines = BufReader::new(stderr).lines();
            // What is no text ends the reading, not etcd.
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("{line}");
                if kept.len() == LINES_KEPT {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
            kept
        });
        Ok(Self { child, last_lines })
    }

    /// Waits until it ends.
    pub(super) async fn ended(&mut self) -> Ended {
        let how = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let lines = (&mut self.last_lines).await.unwrap_or_default();
        Ended { how, last_lines: lines.into() }
    }

    /// Asks it to end, and waits for that; for so long, and no longer.
    pub(super) async fn end(self) {
        self.end_within(ENDS_WITHIN).await;
    }

    /// Asks it to end, and ends it by force if it has not by then. Whether it ended by itself.
    pub(super) async fn end_within(mut self, within: Duration) -> bool {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid {
            // Fails if it has just ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let has_ended = tokio::time::timeout(within, self.child.wait()).await.is_ok();
        if !has_ended {
            // Nothing is left to try if that fails.
            let _ = self.child.kill().await;
        }
        has_ended
    }
}

/// The variable that says the same as a flag. etcd does not start where both are there.
fn variable_of(argument: &str) -> Option<String> {
    let (flag, _) = argument.strip_prefix("--")?.split_once('=')?;
    Some(format!("ETCD_{}", flag.replace('-', "_").to_uppercase()))
}

/// What etcd says when it cannot read its data. That the disk is full is none of it.
const CORRUPT: [&str; 13] = [
    "crc mismatch",
    "checksum mismatch",
    "checksum error",
    "invalid database",
    "file size too small",
    "Was the raft log corrupted, truncated, or lost",
    "failed to recover v3 backend from snapshot",
    "failed to find database snapshot file",
    "found data inconsistency with peers",
    "max entry size limit exceeded",
    r#""error":"proto:"#,
    "failed to read WAL, cannot be repaired",
    "unexpected page type",
];

impl Ended {
    /// What of its last words says that the data cannot be read, if any does.
    pub(super) fn corruption(&self) -> Option<&str> {
        let tells = |line: &&String| CORRUPT.iter().any(|words| line.contains(words));
        self.last_lines.iter().find(tells).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        r#"{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"wal: crc mismatch"}"#,
        true
    )]
    #[case(r#"{"level":"panic","msg":"tocommit(12) is out of range [lastIndex(9)]. Was the raft log corrupted, truncated, or lost?"}"#, true)]
    #[case::an_entry_of_3_6(
        r#"{"level":"fatal","msg":"discovery failed","error":"proto: illegal wireType 6"}"#,
        true
    )]
    #[case::an_entry_of_3_7(
        "{\"level\":\"fatal\",\"msg\":\"discovery failed\",\"error\":\"proto:\u{a0}cannot parse invalid wire-format data\"}",
        true
    )]
    #[case(
        r#"{"level":"fatal","msg":"write /var/etcd/data/member/wal/0.tmp: no space left on device"}"#,
        false
    )]
    #[case(r#"{"level":"warn","msg":"the member has been permanently removed from the cluster"}"#, false)]
    fn only_what_says_so_is_corrupt(#[case] line: &str, #[case] corrupt: bool) {
        let ended =
            Ended { how: "exit status: 1".to_owned(), last_lines: vec!["other".to_owned(), line.to_owned()] };
        assert_eq!(ended.corruption().is_some(), corrupt);
    }

    #[rstest]
    #[case("--listen-client-urls=http://0.0.0.0:2379", Some("ETCD_LISTEN_CLIENT_URLS"))]
    #[case("-c", None)]
    fn a_flag_has_a_variable(#[case] argument: &str, #[case] variable: Option<&str>) {
        assert_eq!(variable_of(argument).as_deref(), variable);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_or_does_not_run_is_told() {
        assert_eq!(check_program("cat").await, Ok(()));
        assert!(check_program("no-such-program").await.unwrap_err().contains("this image has no"));
        assert!(check_program("false").await.unwrap_err().contains("does not run"));
    }

    #[tokio::test]
    async fn a_process_that_ends_tells_its_last_words() {
        let script = "for i in $(seq 1 50); do echo line $i >&2; done; exit 3".to_owned();
        let mut etcd = Etcd::start("sh", &["-c".to_owned(), script]).unwrap();
        let ended = etcd.ended().await;
        assert_eq!(ended.how, "exit status: 3");
        assert_eq!(
            (ended.last_lines.len(), ended.last_lines.last().unwrap().as_str()),
            (LINES_KEPT, "line 50")
        );
    }

    #[tokio::test]
    async fn a_process_is_asked_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!(
            "trap 'touch {}; exit 0' TERM; echo up >&2; while true; do sleep 0.05; done",
            told.display()
        );
        let etcd = Etcd::start("sh", &["-c".to_owned(), script]).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        etcd.end().await;
        assert!(told.exists());
    }
}
