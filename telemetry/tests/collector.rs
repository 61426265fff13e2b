//! Spans reach a collector, as OTLP over HTTP; and nothing waits for one.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use hone_telemetry::{Span, TraceContext, Tracer, endpoint};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

fn span(context: TraceContext, parent: Option<TraceContext>, error: Option<&str>) -> Span {
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
    Span {
        context,
        parent,
        name: "work".to_owned(),
        start,
        end: start + Duration::from_secs(2),
        attributes: vec![("hone.target", "cpu".to_owned())],
        error: error.map(str::to_owned),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_a_collector() {
    let received: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
    let kept = Arc::clone(&received);
    let take = move |body: Bytes| async move {
        kept.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let root = TraceContext::root("uid", "");
    let tracer = Tracer::new(&endpoint(Some(&address), None).unwrap(), "hone-test", |_| {});
    let tracer = tracer.unwrap();
    tracer.send(span(root, None, None));
    tracer.send(span(root.child("job"), Some(root), Some("failed")));
    while received.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let received = received.lock().unwrap();
    let resource = &received[0].resource_spans[0];
    let service = &resource.resource.as_ref().unwrap().attributes;
    assert!(service.iter().any(|a| a.key == "service.name"), "{service:?}");
    let spans = &resource.scope_spans[0].spans;
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0].trace_id, spans[1].trace_id);
    assert_eq!(spans[1].parent_span_id, spans[0].span_id);
    assert!(spans[0].parent_span_id.iter().all(|byte| *byte == 0));
    assert_eq!(spans[1].end_time_unix_nano - spans[1].start_time_unix_nano, 2_000_000_000);
    assert_eq!(spans[1].status.as_ref().unwrap().message, "failed");
}

/// Somebody who accepts connections and never answers is the worst collector: the end of a process does not wait for the
/// time that a batch may take, and more spans than the queue holds block nobody.
#[test]
fn nobody_waits_for_a_collector_that_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    for address in [address.as_str(), "http://127.0.0.1:9"] {
        let tracer = Tracer::new(&endpoint(Some(address), None).unwrap(), "hone-test", |_| {});
        let tracer = tracer.unwrap();
        for number in 0..10_000 {
            let context = TraceContext::root("uid", &number.to_string());
            tracer.send(span(context, None, None));
        }
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tracer.finish();
            done.send(()).unwrap();
        });
        // A batch may take five seconds.
        told.recv_timeout(Duration::from_secs(4)).unwrap();
    }
}

#[test]
fn an_endpoint_that_is_no_address_is_refused() {
    let error = Tracer::new("not an address", "hone-test", |_| {}).unwrap_err();
    assert!(error.to_string().contains("'not an address'"), "{error}");
}

#[test]
fn the_variable_for_traces_goes_before_the_one_for_all() {
    let of = |all: &str, traces: &str| endpoint(Some(all), Some(traces));
    assert_eq!(of("", ""), None);
    assert_eq!(of("http://c:4318/", "").as_deref(), Some("http://c:4318/v1/traces"));
    assert_eq!(of("http://c:4318", "http://t/x").as_deref(), Some("http://t/x"));
}
