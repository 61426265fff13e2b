//! The client of the API server: requests are counted for `rest_client_requests_total`, and what comes over watches
//! is noted for the health of the replica.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::MapFrame;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Layer, Service};

use crate::metrics::Metrics;
use crate::runtime::health::{Health, LIST_PAGE};

/// The client for everything but the lease.
///
/// # Errors
/// When the configuration's certificates cannot be used.
pub fn observed(mut config: Config, metrics: &Metrics, health: &Health) -> anyhow::Result<Client> {
    config.connect_timeout = Some(Duration::from_secs(5));
    let host = config.cluster_url.host().unwrap_or_default().to_owned();
    let layer = ObserveLayer { metrics: metrics.clone(), health: health.clone(), host };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// Counts requests by code, method and host, and notes watches.
#[derive(Clone)]
struct ObserveLayer {
    metrics: Metrics,
    health: Health,
    host: String,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe { inner, layer: self.clone() }
    }
}

/// A service whose answers are observed.
#[derive(Clone)]
struct Observe<S> {
    inner: S,
    layer: ObserveLayer,
}

/// Called with each frame of an answer's body.
type Note = Box<dyn FnMut(Frame<Bytes>) -> Frame<Bytes> + Send>;

impl<S, B> Service<Request<Body>> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<MapFrame<B, Note>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().to_string();
        let layer = self.layer.clone();
        let watched = watched(&request);
        if let Some(resource) = &watched {
            layer.health.heard(resource);
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            layer.metrics.request(&code, &method, &layer.host);
            Ok(answer?.map(|body| body.map_frame(layer.note(watched))))
        })
    }
}

impl ObserveLayer {
    /// Notes every frame of a watch of `resource`.
    fn note(self, resource: Option<String>) -> Note {
        let Some(resource) = resource else { return Box::new(|frame| frame) };
        Box::new(move |frame| {
            self.health.heard(&resource);
            frame
        })
    }
}

/// The plural name of the kind that a request lists or watches in whole; `None` for other requests.
fn watched<B>(request: &Request<B>) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    // A watch begins with a list, and falls back to one.
    let page = format!("limit={LIST_PAGE}");
    let is_watch =
        query.split('&').any(|part| part == "watch=true" || part == "watch=1" || part == page);
    is_watch.then(|| request.uri().path().rsplit('/').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn watches_are_told_from_other_requests() {
        let of = |uri: &str| watched(&Request::get(uri).body(()).unwrap());
        assert_eq!(of("/apis/batch/v1/jobs?watch=true&a=b").as_deref(), Some("jobs"));
        assert_eq!(of("/api/v1/namespaces/x/pods?a=b&watch=1").as_deref(), Some("pods"));
        assert_eq!(of("/apis/batch/v1/jobs?limit=500&a=b").as_deref(), Some("jobs"));
        assert_eq!(of("/api/v1/namespaces/x/events?limit=50"), None);
        assert_eq!(of("/apis/batch/v1/namespaces/x/jobs/a"), None);
    }
}
