//! Metrics of what nginx serves, from its access log.
//!
//! nginx writes a short line a request, buffered, to a file in memory; this reads
//! what is new, and starts a new file before the old one is large. No line is counted
//! twice, and none is lost but those of the second before an end.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::nginx::Nginx;
use crate::layout::RUN_FOLDER;

/// A file that is larger is replaced.
const FILE_AT_MOST: u64 = 8 << 20;

/// What is counted.
#[derive(Clone)]
pub(crate) struct Traffic {
    requests: Family<RequestLabels, Counter>,
    cache: Family<CacheLabels, Counter>,
    bytes: Family<SourceLabels, Counter>,
    upstream_errors: Family<SourceLabels, Counter>,
    time: Family<SourceLabels, Histogram, fn() -> Histogram>,
    upstream_time: Family<SourceLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    source: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    source: String,
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Traffic {
    pub(crate) fn new() -> Self {
        Self {
            requests: Family::default(),
            cache: Family::default(),
            bytes: Family::default(),
            upstream_errors: Family::default(),
            time: Family::new_with_constructor(seconds),
            upstream_time: Family::new_with_constructor(seconds),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("cdn_requests", "Requests by source and status", self.requests.clone());
        registry.register("cdn_cache", "What the cache had: hit, miss, stale, ...", self.cache.clone());
        registry.register("cdn_sent_bytes", "What was sent to clients", self.bytes.clone());
        let errors = "Requests that a source did not answer, or with an error";
        registry.register("cdn_upstream_errors", errors, self.upstream_errors.clone());
        registry.register("cdn_request_seconds", "How long requests took", self.time.clone());
        let upstream = "How long sources took to answer";
        registry.register("cdn_upstream_seconds", upstream, self.upstream_time.clone());
    }

    /// Counts one line: source, status, cache status, seconds, seconds of each upstream, bytes.
    fn count(&self, line: &str) -> Option<()> {
        // Several upstreams are separated by commas and spaces.
        let line = line.replace(", ", ",").replace(" : ", ",");
        let mut fields = line.split(' ');
        let source = fields.next()?.to_owned();
        let status = fields.next()?;
        let result = fields.next()?;
        let took: f64 = fields.next()?.parse().ok()?;
        let upstream = fields.next()?;
        let bytes: u64 = fields.next()?.parse().ok()?;
        let labels = SourceLabels { source: source.clone() };
        self.requests
            .get_or_create(&RequestLabels { source: source.clone(), status: status.to_owned() })
            .inc();
        let is_stale = result == "STALE";
        if result != "-" {
            let result = result.to_lowercase();
            self.cache.get_or_create(&CacheLabels { source, result }).inc();
        }
        self.bytes.get_or_create(&labels).inc_by(bytes);
        self.time.get_or_create(&labels).observe(took);
        let times: Vec<f64> = upstream.split(',').filter_map(|time| time.parse().ok()).collect();
        if !times.is_empty() {
            self.upstream_time.get_or_create(&labels).observe(times.iter().sum());
        }
        // What is stale was served because the source did not do better.
        let was_asked = upstream != "-";
        if was_asked && (status.starts_with("50") || times.len() > 1 || is_stale) {
            self.upstream_errors.get_or_create(&labels).inc();
        }
        Some(())
    }
}

/// The log, as far as it was read.
pub(crate) struct AccessLog {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

impl AccessLog {
    /// The log of the nginx in this pod.
    pub(crate) fn here() -> Self {
        Self { path: PathBuf::from(RUN_FOLDER).join("access.log"), file: None, rest: Vec::new() }
    }

    /// Counts what is new.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn read(&mut self, traffic: &Traffic, nginx: &Nginx) -> std::io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => match File::open(&self.path) {
                Ok(file) => file,
                // nginx has not started yet.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        self.count_all(&mut file, traffic)?;
        let is_replaced = !is_same(&file, &self.path);
        if is_replaced {
            // The old one was read to its end a moment ago; what came since is the last.
            self.count_all(&mut file, traffic)?;
            return Ok(());
        }
        if file.stream_position()? > FILE_AT_MOST {
            let old = self.path.with_extension("old");
            fs::rename(&self.path, &old)?;
            nginx.reopen_logs();
            fs::remove_file(&old)?;
        }
        self.file = Some(file);
        Ok(())
    }

    fn count_all(&mut self, file: &mut File, traffic: &Traffic) -> std::io::Result<()> {
        // Whoever cut it short began anew.
        if file.metadata()?.len() < file.stream_position()? {
            file.seek(SeekFrom::Start(0))?;
            self.rest.clear();
        }
        let mut bytes = std::mem::take(&mut self.rest);
        file.read_to_end(&mut bytes)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(end);
        for line in String::from_utf8_lossy(&bytes).lines() {
            if traffic.count(line).is_none() {
                tracing::debug!("a line of the access log makes no sense: {line}");
            }
        }
        Ok(())
    }
}

/// Whether an open file is the one that has this name now.
fn is_same(file: &File, path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.ino() == named.ino(),
        // Renamed, and not opened anew yet: there may be more.
        (_, Err(_)) => true,
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn counted(traffic: &Traffic) -> String {
        let mut registry = Registry::default();
        traffic.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let counters =
            |line: &&str| !line.starts_with('#') && !line.contains("_bucket") && !line.contains("_sum");
        let mut lines: Vec<_> = text.lines().filter(counters).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    #[test]
    fn lines_become_counts() {
        let traffic = Traffic::new();
        for line in [
            "live 200 HIT 0.000 - 1200",
            "live 200 MISS 0.010 0.009 1200",
            "live 502 MISS 0.500 0.200, 0.300 150",
            "- 404 - 0.000 - 100",
        ] {
            traffic.count(line).unwrap();
        }
        assert!(traffic.count("what").is_none());
        insta::assert_snapshot!(counted(&traffic));
    }

    #[test]
    fn a_log_is_read_on_across_half_lines_and_new_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut log = AccessLog { path: path.clone(), file: None, rest: Vec::new() };
        let traffic = Traffic::new();
        let nginx = Nginx::here();
        log.read(&traffic, &nginx).unwrap();
        let mut file = File::create(&path).unwrap();
        let mut count = |file: &mut File, text: &str| {
            file.write_all(text.as_bytes()).unwrap();
            log.read(&traffic, &nginx).unwrap();
            counted(&traffic).lines().find(|line| line.contains("cdn_requests_total")).map(str::to_owned)
        };
        assert_eq!(count(&mut file, "a 200 HIT 0.0"), None);
        let one = r#"cdn_requests_total{source="a",status="200"} 1"#;
        assert_eq!(count(&mut file, "01 - 10\n").as_deref(), Some(one));
        fs::remove_file(&path).unwrap();
        let mut second = File::create(&path).unwrap();
        assert_eq!(count(&mut file, "a 200 HIT 0.001 - 10\n").unwrap().rsplit_once(' ').unwrap().1, "2");
        assert_eq!(count(&mut second, "a 200 HIT 0.001 - 10\n").unwrap().rsplit_once(' ').unwrap().1, "3");
    }
}
