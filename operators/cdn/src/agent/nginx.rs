//! nginx, from outside: has configurations checked, puts them in place, and knows when
//! a new one is what is served.
//!
//! Invariants:
//! - What is in place was accepted by `nginx -t`.
//! - A configuration counts as served when nginx itself says so, and no worker of before
//!   accepts connections any more.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hyper_util::rt::TokioIo;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{net::TcpStream, process::Command};

use crate::layout::{HEALTH_PORT, NGINX_CONFIGURATION, RUN_FOLDER};

/// How long `nginx -t` may take.
const CHECKED_WITHIN: Duration = Duration::from_secs(20);
/// How long a reload may take.
const RELOADED_WITHIN: Duration = Duration::from_secs(20);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// nginx in this pod.
#[derive(Clone, Debug)]
pub(crate) struct Nginx {
    /// What is in place.
    configuration: PathBuf,
    process: PathBuf,
}

impl Nginx {
    /// The one that this pod has.
    pub(crate) fn here() -> Self {
        let process = Path::new(RUN_FOLDER).join("nginx.pid");
        Self { configuration: NGINX_CONFIGURATION.into(), process }
    }

    /// The text that is in place, if there is one.
    pub(crate) fn in_place(&self) -> Option<String> {
        fs::read_to_string(&self.configuration).ok()
    }

    /// Has a text checked, and puts it in place. nginx has to be told.
    ///
    /// # Errors
    /// Why nginx refuses it, or why it could not be written.
    pub(crate) async fn put(&self, text: &str) -> Result<(), String> {
        let candidate = self.configuration.with_extension("candidate");
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", candidate.display());
        fs::write(&candidate, text).map_err(cannot)?;
        let checking = Command::new("nginx")
            .args(["-t", "-q", "-e", "stderr", "-c"])
            .arg(&candidate)
            .kill_on_drop(true)
            .output();
        let checked = tokio::time::timeout(CHECKED_WITHIN, checking).await;
        let checked = checked.map_err(|_| "nginx -t did not end".to_owned())?;
        let checked = checked.map_err(|error| format!("cannot run nginx -t: {error}"))?;
        if !checked.status.success() {
            return Err(complaint(&String::from_utf8_lossy(&checked.stderr)));
        }
        fs::rename(&candidate, &self.configuration).map_err(cannot)
    }

    /// Tells nginx to reload, and waits until it serves that.
    ///
    /// # Errors
    /// When it does not run, or does not take it up.
    pub(crate) async fn reload(&self, served: &str) -> Result<(), String> {
        let master = self.master().ok_or("nginx does not run")?;
        let before = workers(master);
        kill(master, Signal::SIGHUP).map_err(|error| format!("cannot tell nginx to reload: {error}"))?;
        let begun = Instant::now();
        while begun.elapsed() < RELOADED_WITHIN {
            let is_new = self.served().await.is_ok_and(|now| now == served);
            if is_new && before.iter().all(|worker| !accepts(*worker)) {
                return Ok(());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Err(format!("nginx did not take it up within {} s", RELOADED_WITHIN.as_secs()))
    }

    /// Tells nginx to open its logs anew.
    pub(crate) fn reopen_logs(&self) {
        if let Some(master) = self.master() {
            // Whoever has just gone opens them when it comes back.
            let _ = kill(master, Signal::SIGUSR1);
        }
    }

    /// Whether it runs.
    pub(crate) fn runs(&self) -> bool {
        self.master().is_some_and(|master| kill(master, None).is_ok())
    }

    fn master(&self) -> Option<Pid> {
        let text = fs::read_to_string(&self.process).ok()?;
        text.trim().parse().ok().map(Pid::from_raw)
    }

    /// What nginx says that it serves.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn served(&self) -> Result<String, String> {
        let asking = async {
            let text = |error: &dyn std::fmt::Display| error.to_string();
            let stream =
                TcpStream::connect(("127.0.0.1", HEALTH_PORT)).await.map_err(|error| text(&error))?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| text(&error))?;
            tokio::spawn(connection);
            let request = http::Request::get("/served")
                .header(http::header::HOST, "localhost")
                .body(axum::body::Body::empty())
                .map_err(|error| text(&error))?;
            let answer = sender.send_request(request).await.map_err(|error| text(&error))?;
            let bytes = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 1 << 16).await;
            Ok(String::from_utf8_lossy(&bytes.map_err(|error| text(&error))?).into_owned())
        };
        tokio::time::timeout(Duration::from_secs(2), asking)
            .await
            .unwrap_or_else(|_| Err("no answer".to_owned()))
    }
}

/// What of nginx's words people need.
fn complaint(words: &str) -> String {
    let lines = words.lines().filter(|line| !line.contains("test failed") && !line.trim().is_empty());
    let lines: Vec<_> = lines.map(str::trim).take(3).collect();
    if lines.is_empty() { "nginx -t failed".to_owned() } else { lines.join("; ") }
}

/// The processes that a process started.
fn workers(parent: Pid) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent.as_raw())).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it but ends with the last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a worker takes new connections: it says in its title when it does not.
fn accepts(worker: i32) -> bool {
    let title = fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
    let title = String::from_utf8_lossy(&title);
    title.contains("worker process") && !title.contains("shutting down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_what_people_need() {
        let words = "nginx: [emerg] unknown directive \"x\" in /run/cdn/nginx.candidate:3\nnginx: configuration file /run/cdn/nginx.candidate test failed\n";
        assert_eq!(complaint(words), "nginx: [emerg] unknown directive \"x\" in /run/cdn/nginx.candidate:3");
    }

    #[test]
    fn a_process_is_found_by_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        assert_eq!(parent_of(pid), Some(std::process::id().cast_signed()));
        assert!(workers(Pid::this()).contains(&pid));
        assert!(!accepts(pid), "that is no nginx");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
