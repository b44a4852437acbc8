//! What can happen to a watch without breaking what Kubernetes promises: it is
//! late, says things twice, or leaves out what was between two lists.

use std::{collections::HashMap, io, time::Duration};

use axum::body::{Body, Bytes};
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// What happens to the events of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// Each comes later by so much.
    Late(Duration),
    /// Each comes twice.
    Twice,
    /// They are held for so long, and then of each object only the last comes: what
    /// was made and deleted meanwhile is never heard of.
    Merged(Duration),
    /// None comes for so long, and then the watch ends: its resourceVersion is too old (410).
    ExpiredAfter(Duration),
}

/// The events of a watch, with that trouble; held while `frozen` is true.
pub(crate) fn disturbed(
    events: impl Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
    fault: Option<WatchFault>,
    frozen: watch::Receiver<bool>,
) -> Body {
    let (sender, receiver) = mpsc::channel(1024);
    tokio::spawn(pass_on(Lines::new(events), fault, frozen, sender));
    let lines = futures::stream::unfold(receiver, |mut receiver| async move {
        let line: Bytes = receiver.recv().await?;
        Some((Ok::<_, io::Error>(line), receiver))
    });
    Body::from_stream(lines)
}

async fn pass_on<S>(
    mut lines: Lines<S>,
    fault: Option<WatchFault>,
    mut frozen: watch::Receiver<bool>,
    sender: mpsc::Sender<Bytes>,
) where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    let began = Instant::now();
    match fault {
        Some(WatchFault::ExpiredAfter(time)) => {
            sleep_until(began + time).await;
            // Whoever does not listen any more needs no telling.
            let _ = sender.send(Bytes::from(expired())).await;
        }
        Some(WatchFault::Merged(time)) => {
            let mut held = Held::default();
            let mut due = None;
            loop {
                let next = async {
                    match due {
                        Some(due) => tokio::time::timeout_at(due, lines.next()).await.ok(),
                        None => Some(lines.next().await),
                    }
                };
                match next.await {
                    Some(Some(line)) => {
                        held.add(&line);
                        due = due.or(Some(Instant::now() + time));
                    }
                    ended => {
                        due = None;
                        for line in std::mem::take(&mut held).into_lines() {
                            if send(&sender, &mut frozen, line).await.is_none() {
                                return;
                            }
                        }
                        if ended.is_some() {
                            return;
                        }
                    }
                }
            }
        }
        _ => {
            while let Some(line) = lines.next().await {
                let times = if fault == Some(WatchFault::Twice) { 2 } else { 1 };
                if let Some(WatchFault::Late(time)) = fault {
                    tokio::time::sleep(time).await;
                }
                for _ in 0..times {
                    if send(&sender, &mut frozen, line.clone()).await.is_none() {
                        return;
                    }
                }
            }
        }
    }
}

async fn send(sender: &mpsc::Sender<Bytes>, frozen: &mut watch::Receiver<bool>, line: Bytes) -> Option<()> {
    // Fails only if whoever freezes is gone: then nothing is frozen.
    let _ = frozen.wait_for(|frozen| !frozen).await;
    sender.send(line).await.ok()
}

fn expired() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "made by a test", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

/// Events that are held, in the order of the first of each object.
#[derive(Default)]
struct Held {
    order: Vec<String>,
    by_object: HashMap<String, (bool, Value)>,
}

impl Held {
    fn add(&mut self, line: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        let is_new = event.get("type") == Some(&"ADDED".into());
        let id = match event.pointer("/object/metadata/uid").and_then(Value::as_str) {
            Some(uid) => uid.to_owned(),
            // A bookmark: only the last counts.
            None => "bookmark".to_owned(),
        };
        match self.by_object.get_mut(&id) {
            Some((_, last)) => *last = event,
            None => {
                self.order.push(id.clone());
                self.by_object.insert(id, (is_new, event));
            }
        }
    }

    fn into_lines(mut self) -> Vec<Bytes> {
        let merged = self.order.iter().filter_map(|id| {
            let (was_new, mut event) = self.by_object.remove(id)?;
            let is_gone = event.get("type") == Some(&"DELETED".into());
            if was_new && is_gone {
                return None;
            }
            if let (true, Some(kind)) = (was_new, event.get_mut("type")) {
                *kind = "ADDED".into();
            }
            Some(Bytes::from(format!("{event}\n")))
        });
        merged.collect()
    }
}

/// A stream of bytes, line by line.
struct Lines<S> {
    inner: S,
    buffer: Vec<u8>,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Lines<S> {
    fn new(inner: S) -> Self {
        Self { inner, buffer: Vec::new() }
    }

    /// The next line with its end; none when the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Some(std::mem::replace(&mut self.buffer, rest).into());
            }
            self.buffer.extend_from_slice(&self.inner.next().await?.ok()?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, uid: &str, version: u64) -> io::Result<Bytes> {
        let object = json!({"metadata": {"uid": uid, "resourceVersion": version.to_string()}});
        Ok(Bytes::from(format!("{}\n", json!({"type": kind, "object": object}))))
    }

    async fn passed(events: Vec<io::Result<Bytes>>, fault: WatchFault) -> Vec<String> {
        let (_frozen, is_frozen) = watch::channel(false);
        let body = disturbed(futures::stream::iter(events), Some(fault), is_frozen);
        let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let event: Value = serde_json::from_slice(line).unwrap();
                let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
                format!("{} {}", text("/type"), text("/object/metadata/uid"))
            })
            .collect()
    }

    #[tokio::test]
    async fn of_what_is_merged_only_the_last_is_heard() {
        let events = vec![
            event("ADDED", "a", 1),
            event("MODIFIED", "b", 2),
            event("MODIFIED", "a", 3),
            event("ADDED", "c", 4),
            event("DELETED", "c", 5),
            event("DELETED", "b", 6),
        ];
        let merged = passed(events, WatchFault::Merged(Duration::from_millis(20))).await;
        assert_eq!(merged, ["ADDED a", "DELETED b"]);
    }

    #[tokio::test]
    async fn what_comes_twice_comes_in_order() {
        let events = vec![event("ADDED", "a", 1), event("DELETED", "a", 2)];
        assert_eq!(passed(events, WatchFault::Twice).await, ["ADDED a", "ADDED a", "DELETED a", "DELETED a"]);
    }

    #[tokio::test]
    async fn what_expires_ends_with_an_error() {
        let events = vec![event("ADDED", "a", 1)];
        assert_eq!(passed(events, WatchFault::ExpiredAfter(Duration::ZERO)).await, ["ERROR ?"]);
    }

    #[tokio::test]
    async fn a_line_may_come_in_pieces() {
        let pieces = ["{\"type\":\"ADDED\",\"object\":{\"metadata\":", "{\"uid\":\"a\"}}}\n{\"ty"];
        let mut pieces: Vec<_> = pieces.map(|piece| Ok(Bytes::from(piece))).into();
        pieces.push(Ok(Bytes::from("pe\":\"DELETED\",\"object\":{\"metadata\":{\"uid\":\"b\"}}}\n")));
        assert_eq!(passed(pieces, WatchFault::Late(Duration::ZERO)).await, ["ADDED a", "DELETED b"]);
    }
}
