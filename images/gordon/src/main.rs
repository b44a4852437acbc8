//! What a Gordon runs: a small web server that says which pod it is, and of
//! which Gordon.
//!
//! It is all that its image holds, and needs no file to run.

mod introduction;

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    extract::{Request, State},
    http::HeaderMap,
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use clap::Parser;
use introduction::Introduction;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// How long requests that have begun may take once the server is told to stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// A web server that says which pod it is, and of which Gordon.
#[derive(Parser)]
#[command(name = "gordon", version)]
struct Options {
    /// The port to listen on; 0 takes one that is free
    #[arg(long, env = "PORT", default_value_t = 8080)]
    port: u16,
    #[command(flatten)]
    introduction: Introduction,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests until the process is told to stop.
async fn run(Options { port, introduction }: Options) -> Result<()> {
    let (stop, deadline) = (told_to_stop()?, told_to_stop()?);
    let listener = listen(port).await.with_context(|| {
        format!("cannot listen on port {port}: free it, or choose another with PORT or --port")
    })?;
    log(format_args!("listening on port {}: {introduction}", listener.local_addr()?.port()));
    tokio::select! {
        served = axum::serve(listener, router(introduction)).with_graceful_shutdown(stop) => served?,
        // Somebody who never finishes a request does not hold up the end of the pod.
        () = async { deadline.await; tokio::time::sleep(PATIENCE).await } => {}
    }
    log("stopped, as told");
    Ok(())
}

/// Of IPv6 and IPv4 alike, or of IPv4 alone where that is all there is.
async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// Ends when the process is asked to; from this call on, and not only once it is awaited. The first
/// process of a container is not ended by a signal that it does not handle.
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn router(introduction: Introduction) -> Router {
    Router::new()
        .route("/", get(introduce))
        .route("/healthz", get("ok\n"))
        .layer(middleware::from_fn(log_request))
        .with_state(Arc::new(introduction))
}

async fn introduce(State(introduction): State<Arc<Introduction>>, headers: HeaderMap) -> Response {
    introduction.answer(&headers)
}

async fn log_request(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    log(format_args!("{method} {path} {}", response.status().as_u16()));
    response
}

/// Nobody reading the log is no reason to end.
fn log(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
