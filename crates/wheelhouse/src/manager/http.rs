//! `/healthz`, `/readyz`, `/metrics` and `/decisions`.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    routing::get,
};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use crate::{
    cache::Cache,
    controller::Work,
    decisions::{Decision, DecisionLog},
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    metrics::Metrics,
};

/// What the answers are made from.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) cache: Arc<Cache>,
    pub(super) metrics: Metrics,
    pub(super) controllers: Vec<Arc<dyn Work>>,
    /// The controllers by name, and their kinds.
    pub(super) kinds: Arc<Vec<(String, Kind)>>,
    pub(super) decisions: Arc<DecisionLog>,
    pub(super) access: Arc<Access>,
}

/// Which decisions somebody asks for; all there are, if nothing is said.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    controller: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
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
        .route("/decisions", get(decisions))
        .with_state(shown);
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!("cannot answer /healthz any more: {error}");
        }
    });
    tracing::info!(%address, "answering /healthz, /readyz, /metrics and /decisions");
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

async fn decisions(
    State(shown): State<Shown>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> std::result::Result<Json<Vec<Decision>>, (StatusCode, String)> {
    let token = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let key = asked.name.as_deref().map(|name| Key::new(asked.namespace.as_deref(), name));
    let is_meant = |controller: &str| asked.controller.as_deref().is_none_or(|wanted| wanted == controller);
    for (_, kind) in shown.kinds.iter().filter(|(controller, _)| is_meant(controller)) {
        shown.access.check(token, kind, key.as_ref()).await.map_err(|error| {
            let code = match (error.category(), token) {
                (Category::Forbidden, None) => StatusCode::UNAUTHORIZED,
                (Category::Forbidden, Some(_)) => StatusCode::FORBIDDEN,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, format!("{error}\n"))
        })?;
    }
    let is_asked_for = |controller: &str, about: &Key| {
        is_meant(controller) && key.as_ref().is_none_or(|wanted| wanted == about)
    };
    Ok(Json(shown.decisions.written_out(is_asked_for)))
}
