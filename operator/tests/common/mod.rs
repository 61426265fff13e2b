//! What tests share: a client of a fake API server, and an operator over it whose caches the test fills.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::convert::Infallible;
use std::sync::Arc;

use futures::future::BoxFuture;
use hone_operator::children::events::Events;
use hone_operator::cloud_events::CloudEvents;
use hone_operator::config::Config;
use hone_operator::context::Context;
use hone_operator::device_pool::status::Written;
use hone_operator::fence::Fence;
use hone_operator::metrics::Metrics;
use hone_operator::runtime::cache::{self, Cache, Object};
use hone_operator::stores::Stores;
use hone_operator::traces::Traces;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde_json::{Value, json};

/// A status code and a body.
pub type Answer = (u16, Value);

/// A client whose API server is `answer`: from method, path with query, and body.
pub fn client(answer: impl Fn(&Method, &str, Value) -> Answer + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let (code, answer) = answer(&parts.method, &parts.uri.to_string(), value);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "team")
}

/// An answer that refuses.
pub fn error(code: u16, message: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": message, "reason": "Test"});
    (code, status)
}

/// A leader with empty caches, and the task that publishes its events.
pub fn operator(client: Client, config: Config) -> (Context, BoxFuture<'static, ()>) {
    let stores = Stores::default();
    let (events, publish) = Events::new(client.clone(), "one");
    let context = Context {
        client,
        config,
        broker: Arc::clone(&stores.broker),
        stores,
        pool_statuses: Written::default(),
        queue: Arc::default(),
        metrics: Metrics::new().unwrap(),
        traces: Traces::default(),
        cloud_events: CloudEvents::default(),
        fence: Arc::new(Fence::open()),
        events,
    };
    (context, Box::pin(publish))
}

/// Brings an object into a cache, as its watch would.
pub async fn put<K: Resource + Clone>(cache: &Cache<Object<K>>, object: K) {
    let events = futures::stream::iter([Ok(Event::Apply(object))]);
    cache.follow("objects", events, cache::object, |_, _| {}).await;
}
