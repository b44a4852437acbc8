//! `/healthz`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    controller::Work,
    error::{Category, Error, Result},
    metrics::Metrics,
};

/// What the answers are made from.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) cache: Arc<Cache>,
    pub(super) metrics: Metrics,
    pub(super) controllers: Vec<Arc<dyn Work>>,
}

/// Listens from now on, and answers until stopped.
pub(super) async fn serve(address: SocketAddr, shown: Shown, stop: CancellationToken) -> Result<SocketAddr> {
    let cannot = |error| {
        Error::new(
            Category::Unavailable,
            format!("cannot listen on {address}: {error}: choose another address with --listen"),
        )
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(shown);
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!("cannot answer /healthz any more: {error}");
        }
    });
    tracing::info!(%address, "answering /healthz, /readyz and /metrics");
    Ok(address)
}

async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    let missing = shown.cache.missing();
    match missing.is_empty() {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", missing.join("\n"))),
    }
}

async fn metrics(State(shown): State<Shown>) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    shown.controllers.iter().for_each(|controller| controller.measure());
    for (kind, objects, bytes) in shown.cache.sizes() {
        shown.metrics.show_cached(&kind.group, &kind.kind, objects, bytes);
    }
    let content_type = [("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    match shown.metrics.render() {
        Ok(text) => (StatusCode::OK, content_type, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, content_type, error.to_string()),
    }
}
