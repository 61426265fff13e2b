//! What the operator serves: /healthz and /readyz to all, /metrics to all or to those alone who may read it, /progress to
//! workers, /loglevel on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, middleware};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use crate::logging::Handle;
use crate::metrics::Metrics;
use crate::progress::{self, Receiver};
use crate::runtime::health::Health;
use crate::runtime::queue::WorkQueue;
use crate::secure::access::{self, Gate};
use crate::secure::tls::TlsListener;

/// What is counted, and where it stands.
#[derive(Clone)]
pub struct Counted {
    /// The metrics.
    pub metrics: Metrics,
    /// The queue, whose depth is one of them.
    pub queue: Arc<WorkQueue>,
}

impl Counted {
    fn router(self) -> Router {
        let Self { metrics, queue } = self;
        let text = move || async move {
            for kind in queue.kinds() {
                metrics.queue_depth(kind, queue.depth(kind));
            }
            metrics.text()
        };
        Router::new().route("/metrics", get(text))
    }
}

/// Binds the address and returns what serves to everybody on it: health, and metrics where `counted` is given.
///
/// # Errors
/// When the address cannot be bound.
pub async fn server(
    address: SocketAddr,
    health: Health,
    counted: Option<Counted>,
) -> anyhow::Result<BoxFuture<'static, ()>> {
    let router = Router::new()
        .route("/healthz", get(|State(health): State<Health>| async move { answer(health.live()) }))
        .route("/readyz", get(|State(health): State<Health>| async move { answer(health.ready()) }))
        .with_state(health)
        .merge(counted.map(Counted::router).unwrap_or_default());
    listen(address, router).await
}

/// Binds the address and returns what serves metrics on it over TLS, to those whom `gate` lets. The certificate is that of
/// `folder`, or one that is signed here.
///
/// # Errors
/// When the address cannot be bound, and where there is no certificate.
pub async fn secure_server(
    address: SocketAddr,
    counted: Counted,
    gate: Gate,
    folder: Option<PathBuf>,
) -> anyhow::Result<BoxFuture<'static, ()>> {
    let router = counted.router().layer(middleware::from_fn_with_state(gate, access::admit));
    let listener = TlsListener::new(bind(address).await?, folder).context("serve metrics")?;
    Ok(serve(address, listener, router))
}

/// Binds the address and returns what takes the posts of workers on it.
///
/// # Errors
/// When the address cannot be bound.
pub async fn progress_server(
    address: SocketAddr,
    receiver: Receiver,
) -> anyhow::Result<BoxFuture<'static, ()>> {
    listen(address, progress::router(receiver)).await
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
    Ok(serve(address, bind(address).await?, router))
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("listen on {address}: choose a free address"))
}

fn serve<L>(address: SocketAddr, listener: L, router: Router) -> BoxFuture<'static, ()>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    Box::pin(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, %address, "serving stopped");
        }
    })
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
