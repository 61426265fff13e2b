//! What the operator serves: /metrics, /healthz and /readyz to all, /loglevel on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::logging::Handle;
use crate::metrics::Metrics;

/// Whether the replica does what it is there for: it leads with full caches, or stands by.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Sets it.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }
}

/// Serves to everybody until the process ends.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    metrics: Metrics,
    readiness: Readiness,
) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/metrics", get(move || async move { metrics.text() }))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(readiness);
    spawn(address, router).await
}

/// Serves the log filter: GET says it, PUT with a filter as body changes it.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve_admin(address: SocketAddr, handle: Handle) -> anyhow::Result<()> {
    let router =
        Router::new().route("/loglevel", get(log_level).put(set_log_level)).with_state(handle);
    spawn(address, router).await
}

async fn spawn(address: SocketAddr, router: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}: choose a free address"))?;
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, %address, "serving stopped");
        }
    });
    Ok(())
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if readiness.0.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    }
}

async fn log_level(State(handle): State<Handle>) -> String {
    let current = handle.with_current(ToString::to_string);
    current.unwrap_or_default()
}

async fn set_log_level(State(handle): State<Handle>, body: String) -> (StatusCode, String) {
    let changed = EnvFilter::try_new(body.trim())
        .map_err(|error| error.to_string())
        .and_then(|filter| handle.reload(filter).map_err(|error| error.to_string()));
    match changed {
        Ok(()) => (StatusCode::OK, String::new()),
        Err(why) => (StatusCode::BAD_REQUEST, why),
    }
}
