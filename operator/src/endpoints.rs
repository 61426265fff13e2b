//! What the operator serves: /metrics, /healthz and /readyz to all, /loglevel on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::logging::Handle;
use crate::metrics::Metrics;
use crate::runtime::health::Health;
use crate::runtime::queue::WorkQueue;

/// Binds the address and returns what serves to everybody on it.
///
/// # Errors
/// When the address cannot be bound.
pub async fn server(
    address: SocketAddr,
    metrics: Metrics,
    health: Health,
    queue: Arc<WorkQueue>,
) -> anyhow::Result<BoxFuture<'static, ()>> {
    let text = move || async move {
        for kind in queue.kinds() {
            metrics.queue_depth(kind, queue.depth(kind));
        }
        metrics.text()
    };
    let router = Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(|State(health): State<Health>| async move { answer(health.live()) }))
        .route("/readyz", get(|State(health): State<Health>| async move { answer(health.ready()) }))
        .with_state(health);
    listen(address, router).await
}

/// Serves the log filter: GET returns it, PUT with a filter as body changes it.
///
/// # Errors
/// When the address cannot be bound.
pub async fn admin_server(
    address: SocketAddr,
    handle: Handle,
) -> anyhow::Result<BoxFuture<'static, ()>> {
    let router =
        Router::new().route("/loglevel", get(log_level).put(set_log_level)).with_state(handle);
    listen(address, router).await
}

async fn listen(address: SocketAddr, router: Router) -> anyhow::Result<BoxFuture<'static, ()>> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}: choose a free address"))?;
    Ok(Box::pin(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, %address, "serving stopped");
        }
    }))
}

fn answer(state: Result<(), String>) -> (StatusCode, String) {
    match state {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
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
