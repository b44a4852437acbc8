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
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, api::ListParams};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, Result},
    identity::Identity,
    watch_faults::{WatchFault, disturbed},
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
    /// This happens to the events of a watch.
    Watch(WatchFault),
}

/// Decides, by method and path (with its query).
type Rule = Arc<dyn Fn(&str, &str) -> Fault + Send + Sync>;

/// Told that a write took effect and that its answer is lost.
type Lost = Arc<dyn Fn() + Send + Sync>;

/// A way to the API server that can be disturbed.
pub struct ApiProxy {
    config: Config,
    state: Arc<Proxied>,
    stop: CancellationToken,
}

struct Proxied {
    client: Client,
    harness: Client,
    rule: std::sync::RwLock<Rule>,
    lost: std::sync::RwLock<Lost>,
    /// Requests that were not answered yet, by number.
    under_way: std::sync::Mutex<std::collections::BTreeMap<u64, String>>,
    /// Cancelled to break what is under way; replaced then.
    connections: std::sync::RwLock<CancellationToken>,
    /// The revision at which reads that may be from the past are frozen.
    frozen_at: std::sync::RwLock<Option<String>>,
    frozen: watch::Sender<bool>,
}

impl ApiProxy {
    /// A proxy that acts as this identity. It lets everything through until told otherwise.
    pub async fn start(identity: &Identity) -> Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.map_err(Error::file("listen on", "127.0.0.1"))?;
        let address = listener.local_addr().map_err(Error::file("listen on", "127.0.0.1"))?;
        let state = Arc::new(Proxied {
            client: identity.client()?,
            harness: identity.harness()?,
            rule: std::sync::RwLock::new(Arc::new(|_, _| Fault::None)),
            lost: std::sync::RwLock::new(Arc::new(|| {})),
            under_way: std::sync::Mutex::default(),
            connections: std::sync::RwLock::default(),
            frozen_at: std::sync::RwLock::default(),
            frozen: watch::Sender::new(false),
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

    /// Calls this whenever the API server has answered a request whose answer gets lost.
    pub(crate) fn when_lost(&self, lost: impl Fn() + Send + Sync + 'static) {
        *write(&self.state.lost) = Arc::new(lost);
    }

    /// From now on nothing happens to requests.
    pub fn calm(&self) {
        self.disturb(|_, _| Fault::None);
    }

    /// The revision at which the API server is.
    pub async fn revision(&self) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.state.harness.clone());
        // Any list tells it.
        let list = namespaces.list_metadata(&ListParams::default().limit(1)).await;
        let list = list.map_err(Error::api("see at which revision the API server is"))?;
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// From now on watches say nothing, and lists that may be from the past are from
    /// this revision.
    pub fn freeze_at(&self, revision: &str) {
        *write(&self.state.frozen_at) = Some(revision.to_owned());
        self.state.frozen.send_replace(true);
    }

    /// Ends that: watches say what they held back.
    pub fn thaw(&self) {
        *write(&self.state.frozen_at) = None;
        self.state.frozen.send_replace(false);
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
        self.thaw();
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
    match &fault {
        Fault::None => {}
        Fault::LoseRequest => return lost(),
        Fault::Refuse(code) => return refused(*code),
        Fault::Hang => {
            broken.cancelled().await;
            return lost();
        }
        Fault::Delay(delay) => tokio::time::sleep_until((Instant::now() + *delay).into()).await,
        Fault::LoseAnswer => {
            // Whatever the answer is, nobody hears of it.
            if let Ok(response) = forward(&proxied.client, request, target).await {
                let _ = axum::body::to_bytes(response.into_body(), usize::MAX).await;
            }
            read(&proxied.lost)();
            return lost();
        }
        Fault::ExpireWatch => return expired(),
        Fault::Watch(_) => {}
    }
    let is_watch = target.contains("watch=true");
    let target = match read(&proxied.frozen_at) {
        Some(revision) if !is_watch => from_the_past(&target, &revision),
        _ => target,
    };
    match forward(&proxied.client, request, target).await {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let ended = broken.cancelled_owned();
            let stream = body.into_data_stream().map_err(io::Error::other);
            let until_broken = stream.take_until(ended);
            if !is_watch || !parts.status.is_success() {
                return Response::from_parts(parts, Body::from_stream(until_broken));
            }
            let fault = if let Fault::Watch(fault) = fault { Some(fault) } else { None };
            let events = disturbed(Box::pin(until_broken), fault, proxied.frozen.subscribe());
            Response::from_parts(parts, events)
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

/// A list that may be from the past, as one of that revision; anything else as it is.
fn from_the_past(target: &str, revision: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    if !query.split('&').any(|parameter| parameter == "resourceVersion=0") {
        return target.to_owned();
    }
    let others = query.split('&').filter(|parameter| !parameter.starts_with("resourceVersion"));
    let exact = [format!("resourceVersion={revision}"), "resourceVersionMatch=Exact".to_owned()];
    let parameters: Vec<_> = others.map(str::to_owned).chain(exact).collect();
    format!("{path}?{}", parameters.join("&"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_may_be_from_the_past_is() {
        let list = "/api/v1/pods?limit=500&resourceVersionMatch=NotOlderThan&resourceVersion=0";
        assert_eq!(
            from_the_past(list, "77"),
            "/api/v1/pods?limit=500&resourceVersion=77&resourceVersionMatch=Exact"
        );
        let consistent = "/api/v1/pods?limit=500";
        assert_eq!(from_the_past(consistent, "77"), consistent);
    }
}
