//! Clients of the API server, counted for `rest_client_requests_total`.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// The client for everything but the lease.
///
/// # Errors
/// When the configuration's certificates cannot be used.
pub fn counted(mut config: Config, metrics: &Metrics) -> anyhow::Result<Client> {
    config.connect_timeout = Some(Duration::from_secs(5));
    let host = config.cluster_url.host().unwrap_or_default().to_owned();
    let layer = CountLayer { metrics: metrics.clone(), host };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// Counts requests by code, method and host.
#[derive(Clone)]
struct CountLayer {
    metrics: Metrics,
    host: String,
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Count { inner, layer: self.clone() }
    }
}

/// A service whose answers are counted.
#[derive(Clone)]
struct Count<S> {
    inner: S,
    layer: CountLayer,
}

impl<S, B> Service<Request<Body>> for Count<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().to_string();
        let layer = self.layer.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            layer.metrics.request(&code, &method, &layer.host);
            answer
        })
    }
}
