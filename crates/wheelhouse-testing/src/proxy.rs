//! [`ApiProxy`]: stands between a program and the API server, and makes trouble:
//! answers that get lost, watches that expire, a server that is away.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::State, response::Response};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, StatusCode};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, Result},
    identity::Identity,
};

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the API server answers it.
    None,
    /// The API server answers it, and the answer gets lost.
    LoseAnswer,
    /// It gets lost on its way there.
    LoseRequest,
    /// It is refused with this status, in the API server's words.
    Refuse(u16),
    /// No answer ever comes, and the API server never hears of it.
    Hang,
    /// The answer comes later.
    Delay(Duration),
    /// A watch ends at once: its resourceVersion is too old (410).
    ExpireWatch,
}

/// Decides, by method and path (with its query).
type Rule = Arc<dyn Fn(&str, &str) -> Fault + Send + Sync>;

/// A way to the API server that can be disturbed.
pub struct ApiProxy {
    config: Config,
    state: Arc<Proxied>,
    stop: CancellationToken,
}

struct Proxied {
    client: Client,
    rule: std::sync::RwLock<Rule>,
    /// Requests that were not answered yet, by number.
    under_way: std::sync::Mutex<std::collections::BTreeMap<u64, String>>,
    /// Cancelled to break what is under way; replaced then.
    connections: std::sync::RwLock<CancellationToken>,
}

impl ApiProxy {
    /// A proxy that acts as this identity. It lets everything through until told otherwise.
    pub async fn start(identity: &Identity) -> Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::file("listen on", "127.0.0.1"))?;
        let address = listener.local_addr().map_err(Error::file("listen on", "127.0.0.1"))?;
        let state = Arc::new(Proxied {
            client: identity.client()?,
            rule: std::sync::RwLock::new(Arc::new(|_, _| Fault::None)),
            under_way: std::sync::Mutex::default(),
            connections: std::sync::RwLock::default(),
        });
        let stop = CancellationToken::new();
        let router = Router::new().fallback(answer).with_state(state.clone());
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(async { axum::serve(listener, router).await }).await;
        });
        let url = format!("http://{address}")
            .parse()
            .map_err(|_| Error::file("listen on", "127.0.0.1")(io::ErrorKind::InvalidInput.into()))?;
        let mut config = Config::new(url);
        config.default_namespace = identity.config().default_namespace;
        config.default_retry = false;
        Ok(Self { config, state, stop })
    }

    /// The way through this proxy.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// From now on this decides what happens to a request, by its method and its path with the query.
    pub fn disturb(&self, rule: impl Fn(&str, &str) -> Fault + Send + Sync + 'static) {
        *write(&self.state.rule) = Arc::new(rule);
    }

    /// From now on nothing happens to requests.
    pub fn calm(&self) {
        self.disturb(|_, _| Fault::None);
    }

    /// The requests that were not answered yet, as "METHOD PATH".
    pub fn under_way(&self) -> Vec<String> {
        lock(&self.state.under_way).values().cloned().collect()
    }

    /// Breaks everything that is under way, watches included.
    pub fn break_connections(&self) {
        let broken = std::mem::take(&mut *write(&self.state.connections));
        broken.cancel();
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        self.break_connections();
    }
}

fn write<T>(lock: &std::sync::RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn read<T: Clone>(lock: &std::sync::RwLock<T>) -> T {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Takes the request off the list when it was answered, or given up on.
struct UnderWay(Arc<Proxied>, u64);

impl UnderWay {
    fn new(proxied: &Arc<Proxied>, request: String) -> Self {
        let mut under_way = lock(&proxied.under_way);
        let number = under_way.last_key_value().map_or(0, |(last, _)| last + 1);
        under_way.insert(number, request);
        Self(proxied.clone(), number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.0.under_way).remove(&self.1);
    }
}

async fn answer(State(proxied): State<Arc<Proxied>>, request: Request<Body>) -> Response {
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let _under_way = UnderWay::new(&proxied, format!("{} {target}", request.method()));
    let fault = read(&proxied.rule)(request.method().as_str(), &target);
    let broken = read(&proxied.connections);
    match fault {
        Fault::None => {}
        Fault::LoseRequest => return lost(),
        Fault::Refuse(code) => return refused(code),
        Fault::Hang => {
            broken.cancelled().await;
            return lost();
        }
        Fault::Delay(delay) => tokio::time::sleep_until((Instant::now() + delay).into()).await,
        Fault::LoseAnswer => {
            // Whatever the answer is, nobody hears of it.
            if let Ok(response) = forward(&proxied.client, request, target).await {
                let _ = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            }
            return lost();
        }
        Fault::ExpireWatch => return expired(),
    }
    match forward(&proxied.client, request, target).await {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let ended = broken.cancelled_owned();
            let stream = body.into_data_stream().map_err(io::Error::other);
            let until_broken = stream.take_until(ended);
            Response::from_parts(parts, Body::from_stream(until_broken))
        }
        Err(_) => lost(),
    }
}

async fn forward(
    client: &Client,
    request: Request<Body>,
    target: String,
) -> std::result::Result<Response, ()> {
    let (mut parts, body) = request.into_parts();
    parts.uri = target.parse().map_err(|_| ())?;
    parts.headers.remove(http::header::HOST);
    let body = axum::body::to_bytes(body, usize::MAX).await.map_err(|_| ())?;
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let response = client.send(request).await.map_err(|_| ())?;
    let (parts, body) = response.into_parts();
    let stream = axum::body::Body::new(body).into_data_stream();
    Ok(Response::from_parts(parts, Body::from_stream(stream)))
}

/// The connection breaks before anything of an answer arrives.
fn lost() -> Response {
    let broken =
        futures::stream::once(async { Err::<Vec<u8>, _>(io::Error::from(io::ErrorKind::ConnectionReset)) });
    Response::new(Body::from_stream(broken))
}

fn status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made by a test","reason":"{reason}","code":{code}}}"#
    )
}

fn refused(code: u16) -> Response {
    let mut response = Response::new(Body::from(status(code, "Refused")));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn expired() -> Response {
    Response::new(Body::from(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "Expired"))))
}
