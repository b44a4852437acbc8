//! Reconciles as traces, at a collector.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, routing::post};
use wheelhouse::manager::{RunSettings, start_logs};

use super::widgets::{Place, Widgets, eventually, one_config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_is_a_trace_of_what_was_observed_decided_and_done() {
    let received: Arc<Mutex<Vec<u8>>> = Arc::default();
    let taken = received.clone();
    let collector = post(move |body: Bytes| async move { taken.lock().unwrap().extend_from_slice(&body) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, Router::new().route("/v1/traces", collector)).await });

    let place = Place::new("traces").await;
    let settings = RunSettings { otlp_endpoint: Some(endpoint), ..place.settings() };
    // The exporter has a thread of its own, which must not be one of the runtime's.
    let logging = settings.clone();
    let logs = std::thread::spawn(move || start_logs("the-widgets", &logging).unwrap()).join().unwrap();
    let operating =
        place.start_with(place.identity.config(), settings, Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    operating.stop().await;
    tokio::task::spawn_blocking(|| drop(logs)).await.unwrap();

    // Names are plain text in what is sent.
    let text = String::from_utf8_lossy(&received.lock().unwrap()).into_owned();
    for name in
        ["the-widgets", "reconcile", "observe", "analyse", "act", "apply", "status", "every Widget has one"]
    {
        assert!(text.contains(name), "no {name} in {text:?}");
    }
}
