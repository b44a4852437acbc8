//! What the agent tells: `/healthz`, `/metrics` and `/state`.

use std::{net::SocketAddr, sync::Arc};

use axum::{Json, Router, extract::State, routing::get};
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::{api::AgentState, layout::AGENT_PORT};

/// What is told.
#[derive(Clone)]
pub(crate) struct Report {
    pub(crate) state: Arc<RwLock<AgentState>>,
    pub(crate) registry: Arc<Registry>,
}

/// Answers for as long as this process runs.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(report: Report) -> std::io::Result<()> {
    // Whoever has IPv6 is asked there as well.
    let dual = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], AGENT_PORT));
    let listener = match TcpListener::bind(dual).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], AGENT_PORT))).await?,
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/state", get(async |State(report): State<Report>| Json(report.state.read().clone())))
        .route("/metrics", get(metrics))
        .with_state(report);
    axum::serve(listener, router).await
}

async fn metrics(State(report): State<Report>) -> ([(&'static str, &'static str); 1], String) {
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &report.registry).is_err() {
        text.clear();
    }
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
