//! What etcd and its supervisor tell over plain HTTP: metrics, and what peers are told.

use std::time::Duration;

use ::http::{HeaderMap, Request, header::HOST};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;

use super::Dial;

/// How long it may take.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1500);
/// More than that is none of it.
const AT_MOST: usize = 8 << 20;

/// What is at a path, and the headers that came with it.
///
/// # Errors
/// When nobody answers, or not with 200; in words.
pub(crate) async fn get(dialer: &dyn Dial, address: &str, path: &str) -> Result<(HeaderMap, Bytes), String> {
    match tokio::time::timeout(ANSWERS_WITHIN, asked(dialer, address, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer from {address}{path} within {ANSWERS_WITHIN:?}")),
    }
}

async fn asked(dialer: &dyn Dial, address: &str, path: &str) -> Result<(HeaderMap, Bytes), String> {
    let cannot = |error: &dyn std::error::Error| format!("cannot get {address}{path}: {error}");
    let stream = dialer.dial(address).await.map_err(|error| cannot(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| cannot(&error))?;
    let request = Request::get(path).header(HOST, address).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| cannot(&error))?;
    // It ends with whoever asks, and the connection with it.
    let answering = async move {
        let answer = sender.send_request(request).await.map_err(|error| cannot(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, AT_MOST).collect().await.map_err(|error| cannot(&*error))?.to_bytes();
        match head.status.is_success() {
            true => Ok((head.headers, body)),
            false => {
                Err(format!("{address}{path} answers {}: {}", head.status, String::from_utf8_lossy(&body)))
            }
        }
    };
    let (answer, _) = futures::future::join(answering, connection).await;
    answer
}
