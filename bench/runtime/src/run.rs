//! A contestant's program while it runs, and what it says.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use jiff::Timestamp;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::sync::mpsc;
use wheelhouse_local::processes::log_end;
use wheelhouse_testing::spawn_tethered;

use crate::contestants::Contestant;

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(60);

/// One line of a contestant's standard output.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Line {
    event: Event,
    unix_nanos: i64,
    /// How many reconciles have begun.
    pub(crate) reconciles: u64,
    /// How many of them have failed.
    pub(crate) errors: u64,
}

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// The first reconcile begins.
    FirstReconcile,
    /// As many distinct resources as were expected have been reconciled without an error.
    Settled,
    /// The totals, at the end.
    Stats,
}

/// A running program, which ends with this value, or with this process.
#[derive(Debug)]
pub(crate) struct Run {
    name: &'static str,
    child: Child,
    /// When it was started.
    pub(crate) begun: Instant,
    begun_at: Timestamp,
    lines: mpsc::UnboundedReceiver<Result<Line>>,
    heard: Vec<Line>,
    log: PathBuf,
}

impl Run {
    /// Starts a contestant that is to have settled after `expect` resources. What it says on standard
    /// error goes to a file in `logs`.
    ///
    /// Its environment is empty but for PATH, so that no setting of whoever measures changes what is measured.
    pub(crate) fn start(
        contestant: &Contestant,
        kubeconfig: &Path,
        workers: usize,
        expect: usize,
        logs: &Path,
    ) -> Result<Self> {
        let name = contestant.name();
        let log = logs.join(format!("{name}.log"));
        let errors = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let (begun, begun_at) = (Instant::now(), Timestamp::now());
        let mut child = spawn_tethered(&contestant.program, |command| {
            command
                .env_clear()
                .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
                .arg("--kubeconfig")
                .arg(kubeconfig)
                .args(["--workers", &workers.to_string(), "--expect", &expect.to_string()])
                .args(contestant.entry.arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(errors);
        })
        .with_context(|| format!("cannot start {name} ({})", contestant.program.display()))?;
        let lines = lines_of(child.stdout.take().context("the program has no standard output")?)?;
        Ok(Self { name, child, begun, begun_at, lines, heard: Vec::new(), log })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long after its start a line was printed, by the time in the line.
    pub(crate) fn age_at(&self, line: &Line) -> Result<Duration> {
        let printed = Timestamp::from_nanosecond(i128::from(line.unix_nanos))
            .with_context(|| format!("{} printed a time that is none", self.name))?;
        Duration::try_from(printed.duration_since(self.begun_at))
            .with_context(|| format!("{} printed a time from before its start", self.name))
    }

    /// Waits until it says this.
    pub(crate) async fn hear(&mut self, event: Event, patience: Duration) -> Result<Line> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            if let Some(line) = self.heard.iter().find(|line| line.event == event) {
                return Ok(line.clone());
            }
            match tokio::time::timeout_at(deadline, self.lines.recv()).await {
                Ok(Some(line)) => self.heard.push(line?),
                Ok(None) => return Err(self.ended_early()),
                Err(_) => {
                    bail!("{} did not print {event:?} within {patience:?}{}", self.name, self.log_end())
                }
            }
        }
    }

    /// Waits for something that this program brings about; `what` completes "did not ...".
    pub(crate) async fn while_running<T>(
        &mut self,
        what: &str,
        patience: Duration,
        awaited: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            outcome = awaited => outcome,
            error = self.end() => Err(error),
            () = tokio::time::sleep(patience) => {
                Err(anyhow!("{} did not {what} within {patience:?}{}", self.name, self.log_end()))
            }
        }
    }

    /// Asks it to end; its totals.
    pub(crate) async fn stop(mut self) -> Result<Line> {
        let pid = Pid::from_raw(i32::try_from(self.pid()).context("the pid is none")?);
        kill(pid, Signal::SIGTERM).with_context(|| format!("cannot stop {}", self.name))?;
        let stats = self.hear(Event::Stats, GRACE).await?;
        let deadline = Instant::now() + GRACE;
        loop {
            match self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))? {
                Some(status) if status.success() => return Ok(stats),
                Some(status) => bail!("{} ended with {status}{}", self.name, self.log_end()),
                None if Instant::now() > deadline => bail!("{} does not end{}", self.name, self.log_end()),
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Listens until there is nothing more to hear, which no contestant should let happen.
    async fn end(&mut self) -> Error {
        while let Some(line) = self.lines.recv().await {
            match line {
                Ok(line) => self.heard.push(line),
                Err(error) => return error,
            }
        }
        self.ended_early()
    }

    fn ended_early(&self) -> Error {
        anyhow!("{} ended before it was to{}", self.name, self.log_end())
    }

    fn log_end(&self) -> String {
        format!("; the end of what it said:\n{}", log_end(&self.log))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines, read as they come by a thread that ends with the program.
fn lines_of(output: impl Read + Send + 'static) -> Result<mpsc::UnboundedReceiver<Result<Line>>> {
    let (sender, lines) = mpsc::unbounded_channel();
    let read = move || {
        for text in BufReader::new(output).lines().map_while(Result::ok) {
            let line =
                serde_json::from_str(&text).with_context(|| format!("a contestant printed no event: {text}"));
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("contestant-output".to_owned())
        .spawn(read)
        .context("cannot make a thread that reads the contestant's output")?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_events_and_anything_else_is_an_error() {
        let settled = r#"{"event":"settled","unix_nanos":5,"reconciles":3,"errors":1}"#;
        let mut lines = lines_of(std::io::Cursor::new(format!("{settled}\nhello\n"))).unwrap();
        let line = lines.recv().await.unwrap().unwrap();
        assert_eq!((Event::Settled, 5, 3, 1), (line.event, line.unix_nanos, line.reconciles, line.errors));
        let refused = lines.recv().await.unwrap().unwrap_err().to_string();
        assert_eq!("a contestant printed no event: hello", refused);
        assert!(lines.recv().await.is_none());
    }
}
