//! The server of the page: files, events, reports. Nothing but GET, nothing that changes anything.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::Stream;
use tokio::net::TcpListener;

use super::state::{Filter, State};
use super::{trials, watch};
use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::reports::{self, ReportError, Reports};

/// What the page may load: files of this server. No script of another origin or in the text, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The object in a run's log that says how far the run is.
const RUN_PROGRESS: &str = "progress.json";

/// What a report may do: nothing but look as it does. It was written by a pod that ran beside a foreign model.
const REPORT_POLICY: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";
/// Changes within this time come as one batch.
const BATCH: Duration = Duration::from_millis(200);

/// What the handlers share.
#[derive(Clone)]
struct Page {
    state: Arc<State>,
    reports: Arc<Reports>,
    hosts: Arc<Vec<String>>,
}

/// Watches the cluster and serves the page on `listener` until the process ends. `namespace` bounds what is watched;
/// `hosts` are further names, beside those of loopback, under which a page that listens on loopback may be requested.
///
/// # Errors
/// When serving stops.
pub async fn serve(
    cluster: Cluster,
    namespace: Option<String>,
    reports: Reports,
    hosts: Vec<String>,
    listener: TcpListener,
) -> Result<(), ConsoleError> {
    let address = listener.local_addr().map_err(ConsoleError::io("reading the address"))?;
    let state = Arc::new(State::default());
    for watched in watch::all() {
        tokio::spawn(watch::follow(
            cluster.client.clone(),
            watched,
            namespace.clone(),
            Arc::clone(&state),
        ));
    }
    let page = Page { state, reports: Arc::new(reports), hosts: Arc::new(hosts) };
    let served = axum::serve(listener, router(page, address));
    served.await.map_err(ConsoleError::io("serving the page"))
}

fn router(page: Page, address: SocketAddr) -> Router {
    let guarded = address.ip().is_loopback();
    let hosts = Arc::clone(&page.hosts);
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("assets/index.html")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("assets/page.js")))
        .route("/draw.js", file("text/javascript; charset=utf-8", include_str!("assets/draw.js")))
        .route(
            "/trials.js",
            file("text/javascript; charset=utf-8", include_str!("assets/trials.js")),
        )
        .route("/page.css", file("text/css; charset=utf-8", include_str!("assets/page.css")))
        .route("/icon.svg", file("image/svg+xml", include_str!("assets/icon.svg")))
        .route("/healthz", get(|| async { "ok" }))
        .route("/events", get(events))
        .route("/report/{namespace}/{name}/{target}/{form}", get(report))
        .route("/run/{namespace}/{name}", get(run))
        .route("/run/{namespace}/{name}/trials/{segment}", get(run_trials))
        .with_state(page)
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let hosts = Arc::clone(&hosts);
            async move {
                // Another site's name that resolves to this machine must not read the cluster through a browser.
                if guarded && !is_this_machine(request.headers(), &hosts) {
                    return (
                        StatusCode::FORBIDDEN,
                        "this name is not served: open http://127.0.0.1, or pass --host\n",
                    )
                        .into_response();
                }
                secured(next.run(request).await)
            }
        }))
}

/// Whether the host of a request is a name of this machine.
fn is_this_machine(headers: &HeaderMap, hosts: &[String]) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    matches!(name, "127.0.0.1" | "localhost" | "::1") || hosts.iter().any(|allowed| allowed == name)
}

fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Everything first, then what changed, in batches.
async fn events(
    Shared(page): Shared<Page>,
    uri: Uri,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let text = query.into_owned().find(|(key, _)| key == "filter").map(|(_, text)| text);
    let filter = Filter::new(&text.unwrap_or_default());
    let start = (0, page.state.notifications());
    let stream = futures::stream::unfold(start, move |(last, mut notify)| {
        let (state, filter) = (Arc::clone(&page.state), filter.clone());
        async move {
            if last > 0 {
                // An error means that the state is gone, and with it the process.
                notify.changed().await.ok()?;
                tokio::time::sleep(BATCH).await;
            }
            notify.borrow_and_update();
            let (last, batch) = state.after(last, &filter);
            let event = Event::default().event("batch").data(batch.to_string());
            Some((Ok(event), (last, notify)))
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

/// The report of a target, for programs (`json`) or for people (`html`).
async fn report(
    Shared(page): Shared<Page>,
    Path((namespace, name, target, form)): Path<(String, String, String, String)>,
) -> Response {
    let key = ("ModelCompilation".to_owned(), namespace, name);
    let object = page.state.get(&key).unwrap_or_default();
    let targets = object.pointer("/status/targets").and_then(|targets| targets.as_array());
    let found = targets.into_iter().flatten().find(|status| status["name"] == target.as_str());
    let Some(uri) = found.and_then(|status| status["reportUri"].as_str()) else {
        return (StatusCode::NOT_FOUND, "this target has no report\n").into_response();
    };
    let (uri, kind) = match form.as_str() {
        "html" => (reports::page_of(uri), "text/html; charset=utf-8"),
        "json" => (uri.to_owned(), "application/json"),
        _ => return (StatusCode::NOT_FOUND, "a report is html or json\n").into_response(),
    };
    stored(&page, &uri, kind).await
}

/// How far a tuning run is, from its log: the curve, and where the time went.
async fn run(
    Shared(page): Shared<Page>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let Some(log) = log_of(&page, namespace, name) else { return no_run() };
    let uri = format!("{}/{RUN_PROGRESS}", log.trim_end_matches('/'));
    stored(&page, &uri, "application/json").await
}

/// The trials in a segment of a run's log.
async fn run_trials(
    Shared(page): Shared<Page>,
    Path((namespace, name, segment)): Path<(String, String, u64)>,
) -> Response {
    let Some(log) = log_of(&page, namespace, name) else { return no_run() };
    match page.reports.fetch(&trials::segment_uri(&log, segment)).await {
        Ok(bytes) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, trials::of(&bytes).to_string()).into_response()
        }
        Err(error) => refused(&error),
    }
}

/// Where the log of a run lies.
fn log_of(page: &Page, namespace: String, name: String) -> Option<String> {
    let object = page.state.get(&("TuningRun".to_owned(), namespace, name))?;
    object.pointer("/spec/log/uri").and_then(|uri| uri.as_str()).map(str::to_owned)
}

fn no_run() -> Response {
    (StatusCode::NOT_FOUND, "there is no such run\n").into_response()
}

/// What a worker stored.
async fn stored(page: &Page, uri: &str, kind: &'static str) -> Response {
    match page.reports.fetch(uri).await {
        Ok(bytes) => {
            let headers =
                [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, REPORT_POLICY)];
            (headers, bytes).into_response()
        }
        Err(error) => refused(&error),
    }
}

/// Why something that a worker stored is not shown.
fn refused(error: &ReportError) -> Response {
    let code = match error {
        ReportError::NotFound { .. } => StatusCode::NOT_FOUND,
        ReportError::NotAllowed { .. } | ReportError::Denied { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    };
    (code, format!("{error}\n")).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_served_on_loopback() {
        let accepted = |host: &str, hosts: &[String]| {
            is_this_machine(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]), hosts)
        };
        for host in ["127.0.0.1:8090", "localhost", "[::1]:8090"] {
            assert!(accepted(host, &[]), "{host}");
        }
        for other in ["evil.example:8090", "127.0.0.1.evil.example", ""] {
            assert!(!accepted(other, &[]), "{other}");
        }
        assert!(accepted("hone.example", &["hone.example".to_owned()]));
        assert!(!is_this_machine(&HeaderMap::new(), &[]));
    }
}
