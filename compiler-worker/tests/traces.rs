//! Operator, Job and worker send one trace to a collector: the program runs with the environment that the operator's own
//! manifest gives its pod.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use common::{Place, onnx};
use hone_crds::{DevicePool, DevicePoolStatus, ModelCompilation, ModelCompilationStatus};
use hone_operator::children::jobs::JobView;
use hone_operator::children::names;
use hone_operator::config::Config;
use hone_operator::model_compilation::model::{JobBounds, JobPlan, PoolView, Purpose};
use hone_operator::model_compilation::{job, request};
use hone_operator::traces::Traces;
use k8s_openapi::api::batch::v1::Job;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};

/// A collector of OTLP over HTTP on loopback.
struct Collector {
    address: String,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    fn start() -> Self {
        let requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
        let kept = Arc::clone(&requests);
        let take = move |body: Bytes| async move {
            kept.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(take));
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests, _runtime: runtime }
    }

    /// The spans that came, each with its service.
    fn spans(&self) -> Vec<(String, Span)> {
        let requests = self.requests.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let spans = resources.flat_map(|part| {
            let attributes = &part.resource.as_ref().unwrap().attributes;
            let name = attributes.iter().find(|a| a.key == "service.name").unwrap();
            let service = format!("{:?}", name.value);
            let service = service.split('"').nth(1).unwrap().to_owned();
            let spans = part.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            spans.map(move |span| (service.clone(), span))
        });
        spans.collect()
    }

    /// The spans once there are `count` of the service.
    fn wait_for(&self, service: &str, count: usize) -> Vec<(String, Span)> {
        let begin = Instant::now();
        loop {
            let spans = self.spans();
            if spans.iter().filter(|(own, _)| own == service).count() >= count {
                return spans;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{spans:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn compilation(place: &Place) -> ModelCompilation {
    let uri = |name: &str| format!("file://{}", place.path(name).display());
    serde_json::from_value(json!({
        "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u-1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"uri": uri("x.onnx")}, "output": {"uri": uri("out")}, "correctness": {},
            "targets": [{"name": "cpu", "platform": {"os": "linux", "arch": std::env::consts::ARCH
                .replace("x86_64", "amd64").replace("aarch64", "arm64"), "cpu": "host"}}]},
    }))
    .unwrap()
}

fn manifest(config: &Config, object: &ModelCompilation) -> Job {
    let pool: DevicePool = serde_json::from_value(json!({"apiVersion": "hone.dev/v1alpha1",
        "kind": "DevicePool", "metadata": {"name": "p"}, "spec": {"kind": "CPU"}}))
    .unwrap();
    let pool = PoolView {
        name: "p".to_owned(),
        spec: pool.spec,
        assigned: 0,
        machine: None,
        foreign: false,
        status: DevicePoolStatus::default(),
    };
    let bounds = JobBounds { name: "j".to_owned(), active_deadline_seconds: 600, backoff_limit: 0 };
    let plan = JobPlan {
        gated: false,
        suspended: false,
        name: "j".to_owned(),
        purpose: Purpose::Compile,
        target: Some("cpu".to_owned()),
        request: request::compile(object, &object.spec.targets[0], &pool, None),
        pool: Some(pool),
        grant: None,
        optional_secrets: Vec::new(),
        bounds,
    };
    job::manifest(config, object, &plan).unwrap()
}

/// The worker as its pod would run it.
fn run(place: &Place, job: &Job) -> common::Ended {
    let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let environment: BTreeMap<String, String> = pod.containers[0]
        .env
        .iter()
        .flatten()
        .map(|variable| (variable.name.clone(), variable.value.clone().unwrap_or_default()))
        .filter(|(name, _)| name != "HONE_SCRATCH" && name != "HOME")
        .collect();
    let mut command = place.command();
    command.args(["worker", "--threads", "1", "--termination", "message"]);
    command.envs(environment).env("HONE_SCRATCH", place.path("scratch"));
    command.env("HONE_FILE_ROOT", place.path("."));
    place.ended(command.output().unwrap())
}

/// What the operator sends when the Job ended.
fn end(traces: &Traces, object: &ModelCompilation, job: &Job, phase: &str) {
    let annotations = job.metadata.annotations.as_ref().unwrap();
    let view = JobView {
        name: "j".to_owned(),
        traceparent: annotations.get(names::TRACEPARENT_ANNOTATION).cloned(),
        created: object.metadata.creation_timestamp.clone(),
        ..JobView::default()
    };
    let failure = (phase == "Failed").then(|| json!({"reason": "InvalidModel", "message": "m"}));
    let status: ModelCompilationStatus = serde_json::from_value(json!({"phase": phase,
        "observedGeneration": 1, "startTime": "2026-01-01T00:00:00Z", "failure": failure, "targets": [
            {"name": "cpu", "phase": phase, "jobRef": {"name": "j"}, "failure": failure}]}))
    .unwrap();
    traces.transition(object, &[view], &status);
}

#[test]
fn operator_job_and_worker_are_one_trace() {
    let collector = Collector::start();
    let place = Place::new();
    place.write("x.onnx", onnx::unary("Exp", &["1", "8"]));
    let object = compilation(&place);
    let config = Config { traces_endpoint: Some(collector.address.clone()), ..Config::default() };
    let job = manifest(&config, &object);
    let ended = run(&place, &job);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let traces = Traces::to(config.traces_endpoint.as_deref()).unwrap();
    end(&traces, &object, &job, "Succeeded");
    let spans = collector.wait_for("hone-operator", 3);

    // One trace, from one span without a parent, and every other span under one that is there.
    let (_, first) = &spans[0];
    assert!(spans.iter().all(|(_, span)| span.trace_id == first.trace_id), "{spans:?}");
    let named = |name: &str| {
        let mut found = spans.iter().filter(|(_, span)| span.name == name);
        let (service, span) = found.next().unwrap_or_else(|| panic!("no '{name}' in {spans:?}"));
        assert!(found.next().is_none(), "two of '{name}'");
        (service.as_str(), span)
    };
    let (root, work, worker) = (named("ModelCompilation"), named("Job"), named("worker"));
    assert_eq!((root.0, work.0, worker.0), ("hone-operator", "hone-operator", "hone-worker"));
    assert!(root.1.parent_span_id.iter().all(|byte| *byte == 0));
    assert_eq!(named("wait for a device").1.parent_span_id, root.1.span_id);
    assert_eq!(work.1.parent_span_id, root.1.span_id);
    assert_eq!(worker.1.parent_span_id, work.1.span_id);
    let mut stages: Vec<&Span> = ["fetch", "parse", "compile", "verify", "measure", "store"]
        .map(|name| named(name).1)
        .into();
    assert!(stages.iter().all(|stage| stage.parent_span_id == worker.1.span_id));
    stages.sort_by_key(|stage| stage.start_time_unix_nano);
    assert!(
        stages.windows(2).all(|pair| pair[0].end_time_unix_nano <= pair[1].start_time_unix_nano)
    );
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["fetch", "parse", "compile", "verify", "measure", "store"]);
}

#[test]
fn a_failure_stands_in_the_stage_the_worker_the_job_and_the_whole() {
    let collector = Collector::start();
    let place = Place::new();
    place.write("x.onnx", "no model");
    let object = compilation(&place);
    let config = Config { traces_endpoint: Some(collector.address.clone()), ..Config::default() };
    let job = manifest(&config, &object);
    assert_eq!(run(&place, &job).code, 11);
    let traces = Traces::to(config.traces_endpoint.as_deref()).unwrap();
    end(&traces, &object, &job, "Failed");
    let spans = collector.wait_for("hone-operator", 3);
    let failed: Vec<(&str, &str)> = spans
        .iter()
        .filter_map(|(_, span)| {
            let status = span.status.as_ref().filter(|status| !status.message.is_empty())?;
            Some((span.name.as_str(), status.message.as_str()))
        })
        .collect();
    let worker = "InvalidModel";
    let operator = "InvalidModel: m";
    let all =
        [("parse", worker), ("worker", worker), ("Job", operator), ("ModelCompilation", operator)];
    assert_eq!(failed, all);
}

/// The worker does its work as well, and says that the spans are lost, where nobody takes them.
#[test]
fn a_worker_needs_no_collector() {
    let place = Place::new();
    place.write("x.onnx", onnx::unary("Exp", &["1", "8"]));
    let object = compilation(&place);
    for endpoint in ["http://127.0.0.1:9/v1/traces", "no address"] {
        let config = Config { traces_endpoint: Some(endpoint.to_owned()), ..Config::default() };
        let ended = run(&place, &manifest(&config, &object));
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.err.contains("traces"), "{}", ended.err);
        let report: Value =
            serde_json::from_slice(&std::fs::read(place.path("message")).unwrap()).unwrap();
        assert!(report["artifact"]["digest"].is_string(), "{report}");
    }
    // Without traces the pod is told nothing of them.
    let job = serde_json::to_string(&manifest(&Config::default(), &object)).unwrap();
    assert!(!job.contains("OTEL") && !job.to_lowercase().contains("traceparent"), "{job}");
}
