//! What the supervisor is asked: by kubelet whether etcd can serve, and whether the supervisor is alive; by the operator
//! how far etcd is while it serves nobody.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;

use super::certificates::Certificates;
use crate::{
    etcd::{Client, Dial},
    layout,
    standing::{self, Standing},
};

/// kubelet waits a little longer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(1500);

/// How etcd is.
#[derive(Default)]
pub(super) struct Health {
    is_known: AtomicBool,
    is_away: AtomicBool,
}

impl Health {
    /// Its record says who it is: from now on it may be asked by clients.
    pub(super) fn may_serve(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether clients are to be sent to other members, though etcd runs.
    pub(super) fn send_clients_elsewhere(&self, elsewhere: bool) {
        self.is_away.store(elsewhere, Ordering::Relaxed);
    }

    /// It has ended.
    pub(super) fn forget(&self) {
        self.is_known.store(false, Ordering::Relaxed);
        self.is_away.store(false, Ordering::Relaxed);
    }
}

/// Answers until the process ends.
pub(super) async fn serve(health: Arc<Health>, certificates: Arc<Certificates>) {
    let answers = answers(health, certificates, format!("127.0.0.1:{}", layout::CLIENT_PORT));
    let address = SocketAddr::from(([0, 0, 0, 0], layout::HEALTH_PORT));
    let outcome = match TcpListener::bind(address).await {
        Ok(listener) => axum::serve(listener, answers).await,
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::error!("cannot answer at {address}: {error}");
    }
}

/// What is answered. Only readiness depends on etcd, which is at that address: a pod whose etcd does not answer is
/// sent no clients, and is not restarted for that.
fn answers(health: Arc<Health>, certificates: Arc<Certificates>, etcd: String) -> Router {
    let dialer = certificates.dialer();
    let how_far = async move || how_far(&certificates).await.map(Json).map_err(not_yet);
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readiness))
        .route(standing::PATH, get(how_far))
        .with_state(Asked { health, dialer, etcd })
}

/// Whom readiness is about.
#[derive(Clone)]
struct Asked {
    health: Arc<Health>,
    dialer: Arc<dyn Dial>,
    /// Where etcd is.
    etcd: String,
}

async fn how_far(certificates: &Arc<Certificates>) -> Result<Standing, String> {
    let here = |port: u16| format!("127.0.0.1:{port}");
    let peers = certificates.peer_dialer();
    standing::ask(&here(layout::METRICS_PORT), &*peers, &here(layout::PEER_PORT)).await
}

fn not_yet(why: String) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

async fn readiness(
    State(Asked { health, dialer, etcd }): State<Asked>,
) -> Result<&'static str, (StatusCode, String)> {
    if !health.is_known.load(Ordering::Relaxed) {
        return Err(not_yet("etcd has not said yet who it is, or its record does not say so".to_owned()));
    }
    if health.is_away.load(Ordering::Relaxed) {
        return Err(not_yet("etcd writes its data anew".to_owned()));
    }
    let asking = async { Client::connect(dialer, &etcd, ANSWERS_WITHIN).await?.get("health").await };
    match asking.await {
        Ok(_) => Ok("ok"),
        // It asked the others and was about to answer.
        Err(error) if error.is_only_locked() => Ok("ok"),
        Err(error) => Err(not_yet(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use wheelhouse_testing::eventually;

    use super::*;
    use crate::{
        against_etcd::Etcd,
        etcd::{Tcp, http},
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn without_a_quorum_nobody_is_ready_and_nobody_is_restarted() {
        let mut etcd = Etcd::start(&[]).await;
        let (health, certificates) =
            (Arc::<Health>::default(), Certificates::from_environment("a", "n", "a-0"));
        let answers = answers(health.clone(), Arc::new(certificates), etcd.address(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move { axum::serve(listener, answers).await });
        let says = async |path: &str| http::get(&Tcp, &address, path).await.map(drop);
        let is_alive = async || says("/healthz").await.is_ok();
        let is_ready = async || says("/readyz").await.is_ok();

        assert!(is_alive().await && !is_ready().await, "nobody knows yet who it is");
        health.may_serve();
        eventually("it is ready", async || is_ready().await).await;
        health.send_clients_elsewhere(true);
        assert!(is_alive().await && !is_ready().await, "it writes its data anew");
        health.send_clients_elsewhere(false);

        (1..3).for_each(|number| etcd.end(number));
        eventually("it is not ready", async || !is_ready().await).await;
        assert!(is_alive().await, "a restart would bring no quorum back");
        etcd.end(0);
        assert!(is_alive().await && !is_ready().await, "the supervisor starts etcd again, and not kubelet");
        (0..2).for_each(|number| etcd.start_again(number));
        eventually("it is ready again", async || is_ready().await).await;
        serving.abort();
    }
}
