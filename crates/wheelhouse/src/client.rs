//! The connection to the API server, tuned for a controller, and the [`Fence`]
//! that keeps a process from sending anything once it may not lead any more.
//!
//! HTTP/1.1 with TCP_NODELAY: kube's own client sets no TCP_NODELAY, and over
//! HTTP/2 a small write can wait for a delayed acknowledgement.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
};
use nix::time::{ClockId, clock_gettime};
use tower::{BoxError, Layer, Service, ServiceBuilder};

use crate::metrics::Metrics;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long sent bytes may stay unacknowledged before the kernel gives up on
/// the connection. It bounds how late a request of a process that was cut off
/// can arrive: see [`Fence`].
pub(crate) const UNACKNOWLEDGED: Duration = Duration::from_secs(4);

/// A client for controllers.
///
/// # Errors
/// When the configuration's certificates cannot be used.
pub fn connect(config: Config, fence: &Fence, metrics: &Metrics) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        let builder = ClientBuilder::try_from(config)?;
        return Ok(builder.with_layer(&Watchful { fence: fence.clone(), metrics: metrics.clone() }).build());
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http.set_keepalive(Some(KEEPALIVE));
    http.set_keepalive_interval(Some(KEEPALIVE));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = config.rustls_https_connector_with_connector(http)?;
    let hyper = Builder::new(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .layer(Watchful { fence: fence.clone(), metrics: metrics.clone() })
        .map_err(BoxError::from)
        .service(hyper);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Open while this process may write.
///
/// It closes by itself at the time it was opened until, measured on a clock that
/// goes on while the machine sleeps. Nothing has to run for that: a process that
/// was stopped and continued finds it closed.
#[derive(Clone, Debug)]
pub struct Fence(Arc<AtomicI64>);

impl Fence {
    /// Always open: nobody else could lead.
    pub fn open() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// Closed until [`Fence::open_until`].
    pub fn closed() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }

    /// Open until that time on [`boot_time`]'s clock.
    pub fn open_until(&self, deadline: Duration) {
        self.0.store(i64::try_from(deadline.as_nanos()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Closes it now.
    pub fn close(&self) {
        self.0.store(i64::MIN, Ordering::SeqCst);
    }

    /// Whether anything may be sent now.
    pub fn is_open(&self) -> bool {
        match self.0.load(Ordering::SeqCst) {
            i64::MAX => true,
            i64::MIN => false,
            deadline => boot_time().as_nanos() < u128::try_from(deadline).unwrap_or(0),
        }
    }
}

/// The time since the machine started, sleep included. Never goes back.
pub fn boot_time() -> Duration {
    // Fails only for clocks that the kernel does not have.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// This process does not lead any more.
#[derive(Debug, thiserror::Error)]
#[error("this process does not lead any more: nothing is sent")]
pub(crate) struct NotLeading;

/// Stops at the fence, and counts.
#[derive(Clone)]
struct Watchful {
    fence: Fence,
    metrics: Metrics,
}

impl<S> Layer<S> for Watchful {
    type Service = WatchfulService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        WatchfulService { inner, watchful: self.clone() }
    }
}

#[derive(Clone)]
struct WatchfulService<S> {
    inner: S,
    watchful: Watchful,
}

impl<S, B> Service<Request<Body>> for WatchfulService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Watchful { fence, metrics } = self.watchful.clone();
        if !fence.is_open() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let method = request.method().to_string();
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let mut sending = Box::pin(self.inner.call(request));
        Box::pin(async move {
            // Looked at before each step, so that what waited for a connection
            // while the process was stopped is not sent either.
            let answer = std::future::poll_fn(|context| match fence.is_open() {
                true => sending.as_mut().poll(context).map_err(Into::into),
                false => Poll::Ready(Err(NotLeading.into())),
            });
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_u16().to_string(),
                Err(_) => "<error>".to_owned(),
            };
            metrics.count_request(code, method, host);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_closes_by_itself() {
        let fence = Fence::closed();
        assert!(!fence.is_open());
        fence.open_until(boot_time() + Duration::from_millis(30));
        assert!(fence.is_open());
        std::thread::sleep(Duration::from_millis(40));
        assert!(!fence.is_open());
    }

    #[test]
    fn without_an_election_it_stays_open_until_closed() {
        let fence = Fence::open();
        assert!(fence.is_open());
        fence.close();
        assert!(!fence.is_open());
    }
}
