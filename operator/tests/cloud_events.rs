//! CloudEvents reach a webhook: what they say, what becomes of those that it does not take, and that nobody waits for it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hone_crds::{ModelCompilation, ModelCompilationStatus};
use hone_operator::cloud_events::delivery::Policy;
use hone_operator::cloud_events::{CloudEvents, Webhook};
use hone_operator::metrics::Metrics;
use hone_operator::stores::Stores;
use serde_json::{Value, json};

/// What a webhook was sent: headers and bodies.
type Received = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// A webhook on loopback whose nth answer is `answer(n)`.
async fn webhook(
    answer: impl Fn(usize) -> u16 + Clone + Send + Sync + 'static,
) -> (String, Received) {
    let received = Received::default();
    let kept = Arc::clone(&received);
    let take = move |headers: HeaderMap, body: String| async move {
        let mut kept = kept.lock().unwrap();
        kept.push((headers, serde_json::from_str(&body).unwrap()));
        StatusCode::from_u16(answer(kept.len())).unwrap()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hone", listener.local_addr().unwrap());
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/hone", post(take))).await.unwrap();
    });
    (address, received)
}

fn start(endpoint: &str) -> (CloudEvents, Metrics) {
    let short = Duration::from_millis(5);
    let policy =
        Policy { tries: 4, first: short, longest: short * 4, timeout: Duration::from_secs(5) };
    let webhook = Webhook {
        endpoint: endpoint.to_owned(),
        authorization: Some("Bearer secret".to_owned()),
        cluster: "https://cluster-a.example.com/".to_owned(),
        policy,
    };
    let metrics = Metrics::new().unwrap();
    let (events, deliver) = CloudEvents::to(webhook, metrics.clone()).unwrap();
    tokio::spawn(deliver);
    (events, metrics)
}

fn compilation(status: Option<Value>) -> ModelCompilation {
    serde_json::from_value(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u", "generation": 2,
            "resourceVersion": "7"},
        "spec": {"model": {"uri": "s3://models/x.onnx"}, "output": {"uri": "s3://artifacts/x"},
            "targets": [{"name": "cpu", "pool": "cpus"}], "correctness": {}},
        "status": status}))
    .unwrap()
}

fn status(phase: &str, end: Option<&str>) -> Value {
    let artifact =
        json!({"uri": "s3://artifacts/x/cpu.hone", "digest": "sha256:1", "sizeBytes": 5});
    json!({"phase": phase, "observedGeneration": 2, "startTime": "2026-01-01T00:00:00Z",
        "completionTime": end, "targets": [{"name": "cpu", "phase": phase, "pool": "cpus",
            "artifact": (phase == "Succeeded").then_some(artifact)}],
        "failure": (phase == "Failed").then(|| json!({"reason": "InvalidModel", "message": "no model"}))})
}

fn written(status: &Value) -> ModelCompilationStatus {
    serde_json::from_value(status.clone()).unwrap()
}

const END: Option<&str> = Some("2026-01-01T00:00:14Z");

/// Waits until `done` holds of what was received.
async fn until(received: &Received, done: impl Fn(&[(HeaderMap, Value)]) -> bool) {
    let look = async {
        while !done(&received.lock().unwrap()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look).await.expect("not received");
}

async fn counted(metrics: &Metrics, result: &str, count: usize) {
    let line = format!("hone_cloud_events_total{{result=\"{result}\"}} {count}");
    let look = async {
        while !metrics.text().contains(&line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look)
        .await
        .unwrap_or_else(|_| panic!("{line}: {}", metrics.text()));
}

#[tokio::test]
async fn what_happens_is_told_in_the_form_of_the_specification() {
    let (address, received) = webhook(|_| 202).await;
    let (events, metrics) = start(&address);
    let (running, done) = (status("Running", None), status("Succeeded", END));
    events.transition(&compilation(None), &written(&status("Pending", None)));
    events.transition(&compilation(Some(status("Pending", None))), &written(&running));
    events.transition(&compilation(Some(running.clone())), &written(&running));
    until(&received, |all| all.len() == 1).await;
    events.transition(&compilation(Some(running.clone())), &written(&done));
    events.transition(&compilation(Some(done.clone())), &written(&done));
    until(&received, |all| all.len() == 2).await;
    events.transition(&compilation(Some(running)), &written(&status("Failed", END)));
    until(&received, |all| all.len() == 3).await;
    counted(&metrics, "delivered", 3).await;

    let received = received.lock().unwrap();
    let types: Vec<&str> = received.iter().map(|(_, e)| e["type"].as_str().unwrap()).collect();
    let of = |word: &str| format!("dev.hone.modelcompilation.{word}");
    assert_eq!(types, [of("running"), of("succeeded"), of("failed")]);
    let (headers, event) = &received[1];
    assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
    assert_eq!(headers["authorization"], "Bearer secret");
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(
        event["source"],
        "https://cluster-a.example.com/apis/hone.dev/v1alpha1/namespaces/team/modelcompilations/digits"
    );
    assert_eq!(event["subject"], "team/digits");
    assert_eq!(event["time"], "2026-01-01T00:00:14Z");
    assert_eq!(event["datacontenttype"], "application/json");
    assert_eq!(event["data"]["generation"], 2);
    assert_eq!(event["data"]["targets"][0]["artifact"]["uri"], "s3://artifacts/x/cpu.hone");
    assert_eq!(received[2].1["data"]["failure"]["reason"], "InvalidModel");
    let mut ids: Vec<&Value> = received.iter().map(|(_, event)| &event["id"]).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn what_is_not_taken_is_tried_again_under_the_same_id() {
    let (address, received) = webhook(|number| if number < 3 { 503 } else { 200 }).await;
    let (events, metrics) = start(&address);
    events.transition(&compilation(None), &written(&status("Succeeded", END)));
    counted(&metrics, "delivered", 1).await;
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|(_, event)| event == &received[0].1));
}

#[tokio::test]
async fn tries_are_bounded_and_refusals_are_final() {
    for (code, result, tries) in
        [(500, "dropped", 4), (429, "dropped", 4), (400, "refused", 1), (302, "refused", 1)]
    {
        let (address, received) = webhook(move |_| code).await;
        let (events, metrics) = start(&address);
        events.transition(&compilation(None), &written(&status("Succeeded", END)));
        counted(&metrics, result, 1).await;
        assert_eq!(received.lock().unwrap().len(), tries, "{code}");
    }
    let (events, metrics) = start("http://127.0.0.1:9/");
    events.transition(&compilation(None), &written(&status("Succeeded", END)));
    counted(&metrics, "dropped", 1).await;
}

/// Events that the webhook does not take now wait for their next try, and not the others with them.
#[tokio::test]
async fn what_is_not_taken_keeps_no_others_waiting() {
    let (address, received) = webhook(|number| if number <= 20 { 503 } else { 200 }).await;
    let long = Duration::from_secs(3600);
    let (events, deliver) = CloudEvents::to(
        Webhook {
            endpoint: address,
            authorization: None,
            cluster: String::new(),
            policy: Policy { tries: 2, first: long, longest: long, timeout: long },
        },
        Metrics::new().unwrap(),
    )
    .unwrap();
    tokio::spawn(deliver);
    for _ in 0..20 {
        events.transition(&compilation(None), &written(&status("Failed", END)));
    }
    until(&received, |all| all.len() == 20).await;
    events.transition(&compilation(None), &written(&status("Succeeded", END)));
    until(&received, |all| all.len() == 21).await;
}

/// A webhook that never answers: the queue fills, what is more is counted as lost, and whoever writes a status goes on.
#[tokio::test]
async fn a_webhook_that_does_not_answer_keeps_nobody_waiting() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (events, metrics) = start(&format!("http://{}/", silent.local_addr().unwrap()));
    // Nothing else runs on this thread until the last was taken or dropped.
    for _ in 0..2000 {
        events.transition(&compilation(None), &written(&status("Succeeded", END)));
    }
    counted(&metrics, "dropped", 2000 - 1024).await;
}

/// An end whose event was lost with the replica is told by the next, under the same id; old ends are not.
#[tokio::test]
async fn who_begins_to_lead_tells_the_last_ends_again() {
    let (address, received) = webhook(|_| 200).await;
    let (events, _) = start(&address);
    events.transition(&compilation(None), &written(&status("Succeeded", END)));
    until(&received, |all| all.len() == 1).await;

    let now: jiff::Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let (fresh, _) = start(&address);
    let client = common::client(|_, uri, _| {
        let ended = compilation(Some(status("Succeeded", END)));
        let mut old = compilation(Some(status("Failed", Some("2025-12-31T23:00:00Z"))));
        old.metadata.name = Some("old".to_owned());
        let items = match uri.contains("/modelcompilations") {
            true => vec![ended, old],
            false => vec![],
        };
        match uri.contains("watch=true") {
            true => (200, Value::Null),
            false => (
                200,
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
            ),
        }
    });
    let stores = Stores::default();
    for (_, watch) in stores.watches(&client, &Default::default(), &Arc::default()) {
        tokio::spawn(watch);
    }
    tokio::spawn(fresh.replay(stores, now));
    until(&received, |all| all.len() == 2).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let received = received.lock().unwrap();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].1["id"], received[1].1["id"]);
}

#[tokio::test]
async fn an_endpoint_that_is_no_address_is_refused() {
    let webhook = |endpoint: &str, authorization: &str| Webhook {
        endpoint: endpoint.to_owned(),
        authorization: Some(authorization.to_owned()),
        cluster: String::new(),
        policy: Policy::default(),
    };
    for (endpoint, authorization) in
        [("events", ""), ("ftp://events/", ""), ("http://events/", "a\nb")]
    {
        let made = CloudEvents::to(webhook(endpoint, authorization), Metrics::new().unwrap());
        assert!(made.is_err(), "{endpoint}");
    }
}
