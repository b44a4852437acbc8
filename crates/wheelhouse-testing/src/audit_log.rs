//! The API server's audit log, from which requests are counted.
//!
//! The count is exact, and this is why:
//! - The API server writes a request's line before it ends its answer. (The log
//!   backend's mode is "blocking".) So what a client has the answer of is logged.
//! - Before reading we send a request of our own, a sentinel, and read up to its
//!   line: nothing from before it is still to come.
//! - A watch has one line when it begins and one when it ends, with the same ID;
//!   it counts once, when it begins.
//! - What this crate asks, it asks as a user of its own, who is left out; so is
//!   the API server itself, whose controllers ask it things at all times.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::Deserialize;

use crate::{
    access::HARNESS,
    error::{Error, Result},
    requests::{Mark, Request, Requests},
};

/// Whom the API server knows itself as.
const API_SERVER: &str = "system:apiserver";

/// A sentinel is logged before it is answered, so this is for a machine that stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// The audit log of one API server.
#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    /// As far as somebody has read, so that a mark need not begin at the beginning.
    latest: Mutex<Mark>,
    sentinels: AtomicU64,
}

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, latest: Mutex::default(), sentinels: AtomicU64::new(0) }
    }

    /// This moment; `harness` is a client of [`HARNESS`].
    pub(crate) async fn mark(&self, harness: &Client) -> Result<Mark> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (_, now) = self.read(&latest, harness).await?;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.offset < now.offset {
            *latest = now.clone();
        }
        Ok(now)
    }

    /// The requests from `mark` to now.
    pub(crate) async fn requests_since(&self, mark: &Mark, harness: &Client) -> Result<Requests> {
        self.read(mark, harness).await.map(|(requests, _)| requests)
    }

    async fn read(&self, from: &Mark, harness: &Client) -> Result<(Requests, Mark)> {
        let sentinel = format!("sentinel-{}", self.sentinels.fetch_add(1, Ordering::Relaxed));
        let nothing: Api<ConfigMap> = Api::namespaced(harness.clone(), HARNESS);
        nothing.get_opt(&sentinel).await.map_err(Error::api("mark the end of the audit log"))?;
        let begun = Instant::now();
        loop {
            let text = self.text_from(from.offset).map_err(Error::file("read", &self.path))?;
            let read = up_to(&sentinel, &text, from).map_err(|(line, problem)| Error::AuditLine {
                path: self.path.clone(),
                problem,
                line,
            })?;
            match read {
                Some(read) => return Ok(read),
                None if begun.elapsed() > PATIENCE => {
                    return Err(Error::AuditLogBehind { path: self.path.clone(), waited: PATIENCE });
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn text_from(&self, offset: u64) -> std::io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(text)
    }
}

/// What the log says of a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

/// Anonymous and refused clients have no name.
#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl Entry {
    fn is_sentinel(&self, name: &str) -> bool {
        self.user.username == HARNESS && self.object_ref.as_ref().is_some_and(|object| object.name == name)
    }

    fn is_a_tests(&self) -> bool {
        ![HARNESS, API_SERVER].contains(&self.user.username.as_str())
    }

    fn into_request(self) -> Request {
        let path = self.uri.split('?').next().unwrap_or_default();
        let object = self
            .object_ref
            .unwrap_or_else(|| ObjectRef { resource: path.to_owned(), ..ObjectRef::default() });
        let resource = match object.subresource.as_str() {
            "" => object.resource,
            subresource => format!("{}/{subresource}", object.resource),
        };
        Request {
            user: self.user.username,
            user_agent: self.user_agent,
            verb: self.verb,
            group: object.api_group,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: self.response_status.code,
            received: self.request_received_timestamp,
            answered: self.stage_timestamp,
        }
    }
}

/// The requests in `text`, which begins at `from`, up to the sentinel, and the
/// mark after it; none if the sentinel is not there, or not wholly, yet. An
/// error is a line that is no entry, and why.
fn up_to(sentinel: &str, text: &[u8], from: &Mark) -> Result<Option<(Requests, Mark)>, (String, String)> {
    let mut mark = from.clone();
    let mut counted = BTreeSet::new();
    let mut requests = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !line.ends_with(b"\n") {
            break;
        }
        let entry: Entry = serde_json::from_slice(line)
            .map_err(|problem| (String::from_utf8_lossy(line).into_owned(), problem.to_string()))?;
        mark.offset += line.len() as u64;
        if entry.is_sentinel(sentinel) {
            return Ok(Some((Requests::new(requests), mark)));
        }
        if entry.stage == "ResponseStarted" {
            mark.open.insert(entry.id.clone());
        } else {
            mark.open.remove(&entry.id);
        }
        if entry.is_a_tests() && !from.open.contains(&entry.id) && counted.insert(entry.id.clone()) {
            requests.push(entry.into_request());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(id: &str, stage: &str, user: &str, verb: &str, name: &str) -> String {
        let entry = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": id, "stage": stage,
            "requestURI": format!("/api/v1/namespaces/ns/configmaps/{name}?x=y"), "verb": verb,
            "user": {"username": user, "groups": ["system:authenticated"]}, "sourceIPs": ["127.0.0.1"],
            "objectRef": {"resource": "configmaps", "namespace": "ns", "name": name, "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 200},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z", "stageTimestamp": "2026-01-01T00:00:00.000250Z",
        });
        format!("{entry}\n")
    }

    fn done(id: &str, verb: &str) -> String {
        line(id, "ResponseComplete", "me", verb, "some")
    }

    fn sentinel() -> String {
        line("s", "ResponseComplete", HARNESS, "get", "sentinel-7")
    }

    fn read(text: &str, from: &Mark) -> Option<(Requests, Mark)> {
        up_to("sentinel-7", text.as_bytes(), from).unwrap()
    }

    #[test]
    fn requests_are_read_up_to_the_sentinel_and_not_beyond() {
        let before = done("1", "create") + &done("2", "get") + &sentinel();
        let (requests, mark) = read(&(before.clone() + &done("3", "get")), &Mark::default()).unwrap();
        assert_eq!(2, requests.len(), "{requests}");
        assert_eq!(1, requests.count("create", "configmaps"));
        assert_eq!(before.len() as u64, mark.offset);
    }

    #[test]
    fn a_request_knows_to_the_microsecond_when_it_was_received_and_answered() {
        let (requests, _) = read(&(done("1", "get") + &sentinel()), &Mark::default()).unwrap();
        let request = requests.iter().next().unwrap();
        assert_eq!(249, request.answered.duration_since(request.received).as_micros());
    }

    #[test]
    fn without_the_sentinel_nothing_is_reported_yet() {
        assert_eq!(None, read(&done("1", "get"), &Mark::default()));
        let half = sentinel();
        assert_eq!(None, read(half.trim_end(), &Mark::default()));
        assert_eq!(None, read(&half[..half.len() / 2], &Mark::default()));
    }

    #[test]
    fn a_watch_counts_once_when_it_begins_and_not_when_it_ends() {
        let begins = line("w", "ResponseStarted", "me", "watch", "");
        let ends = line("w", "ResponseComplete", "me", "watch", "");
        let (both, after) = read(&(begins.clone() + &ends + &sentinel()), &Mark::default()).unwrap();
        assert_eq!(1, both.count("watch", "configmaps"));
        assert!(after.open.is_empty());

        let (_, meanwhile) = read(&(begins + &sentinel()), &Mark::default()).unwrap();
        let (later, after) = read(&(ends + &sentinel()), &meanwhile).unwrap();
        assert!(later.is_empty(), "{later}");
        assert!(after.open.is_empty());
    }

    #[test]
    fn what_this_crate_and_the_api_server_ask_is_not_counted() {
        let text = line("1", "ResponseComplete", HARNESS, "get", "some")
            + &line("2", "ResponseComplete", API_SERVER, "get", "some")
            + &sentinel();
        assert!(read(&text, &Mark::default()).unwrap().0.is_empty());
    }

    #[test]
    fn a_request_of_a_test_for_a_sentinels_name_is_no_sentinel() {
        let text = line("1", "ResponseComplete", "me", "get", "sentinel-7");
        assert_eq!(None, read(&text, &Mark::default()));
    }

    #[test]
    fn a_subresource_is_part_of_the_resource_and_a_bare_path_stands_for_itself() {
        let scale = r#"{"auditID":"1","stage":"ResponseComplete","requestURI":"/x","verb":"patch","user":{"username":"me"},"objectRef":{"resource":"deployments","subresource":"scale","apiGroup":"apps","namespace":"ns","name":"web"},"responseStatus":{"code":409},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.000250Z"}"#;
        let version = r#"{"auditID":"2","stage":"ResponseComplete","requestURI":"/version?timeout=3s","verb":"get","user":{},"userAgent":"curl","requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.000250Z"}"#;
        let (requests, _) = read(&format!("{scale}\n{version}\n{}", sentinel()), &Mark::default()).unwrap();
        let found: Vec<_> = requests.iter().collect();
        assert_eq!("deployments/scale", found[0].resource);
        assert_eq!(("apps", 409), (found[0].group.as_str(), found[0].code));
        assert_eq!(("/version", "curl"), (found[1].resource.as_str(), found[1].user_agent.as_str()));
    }

    #[test]
    fn a_line_that_is_no_entry_is_an_error_and_not_skipped() {
        let (line, _) = up_to("sentinel-7", b"nonsense\n", &Mark::default()).unwrap_err();
        assert_eq!("nonsense\n", line);
    }
}
