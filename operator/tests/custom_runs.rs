//! The controller of Tekton's CustomRuns against a fake API server: what it makes and writes, what it does not, and that
//! a cluster without Tekton is no error.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{error, operator, put};
use hone_crds::ModelCompilation;
use hone_operator::config::Config;
use hone_operator::context::Context;
use hone_operator::custom_run::{CustomRun, reconcile};
use hone_operator::runtime::queue::WorkQueue;
use hone_operator::runtime::worker::{FailureClass, ReconcileFailure};
use hone_operator::stores::{Scope, Stores};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

type Requests = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// A client whose API server takes everything but what `special` answers, and what it was asked.
fn server(
    special: impl Fn(&Method, &str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Client, Requests) {
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    let client = common::client(move |method, uri, body| {
        log.lock().unwrap().push((method.clone(), uri.to_owned(), body.clone()));
        if let Some(answer) = special(method, uri) {
            return answer;
        }
        match *method {
            Method::GET => not_found(),
            Method::POST => (201, body),
            _ if uri.contains("/customruns/") => {
                let mut object = run(&json!({}), &json!({}));
                object["metadata"]["resourceVersion"] = json!("9");
                (200, object)
            }
            _ => (200, compilation(&json!({}))),
        }
    });
    (client, requests)
}

/// As the API server says it of what does not exist.
fn not_found() -> (u16, Value) {
    let (code, mut status) = error(404, "not found");
    status["reason"] = json!("NotFound");
    (code, status)
}

fn bodies(requests: &Requests, method: &Method, part: &str) -> Vec<Value> {
    let requests = requests.lock().unwrap();
    let wanted = requests.iter().filter(|(m, uri, _)| m == method && uri.contains(part));
    wanted.map(|(_, _, body)| body.clone()).collect()
}

/// The condition that was written last.
fn condition(requests: &Requests) -> Value {
    let written = bodies(requests, &Method::PATCH, "/customruns/x/status");
    written.last().map(|body| body["status"]["conditions"][0].clone()).unwrap_or_default()
}

fn spec() -> Value {
    json!({"model": {"uri": "s3://models/x.onnx"}, "targets": [{"name": "main", "pool": "cpus"}],
        "output": {"uri": "s3://artifacts/x"}})
}

/// A run of a compilation, with more of its spec and a status.
fn run(further: &Value, status: &Value) -> Value {
    let mut object = json!({"apiVersion": "tekton.dev/v1beta1", "kind": "CustomRun",
        "metadata": {"name": "x", "namespace": "team", "uid": "1", "generation": 1, "resourceVersion": "7"},
        "spec": {"customSpec": {"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "spec": spec()}},
        "status": status});
    for (key, value) in further.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// The compilation of that run.
fn compilation(status: &Value) -> Value {
    json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "metadata": {"name": "x",
        "namespace": "team", "uid": "2", "generation": 1, "resourceVersion": "8", "ownerReferences": [
            {"apiVersion": "tekton.dev/v1beta1", "kind": "CustomRun", "name": "x", "uid": "1", "controller": true}]},
        "spec": spec(), "status": status})
}

fn made() -> Value {
    json!({"startTime": jiff::Timestamp::now().to_string(), "extraFields": {"object": {
        "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "name": "x"}}})
}

async fn context(client: Client, compilation: Option<Value>) -> Arc<Context> {
    let (context, publish) = operator(client, Config::default());
    tokio::spawn(publish);
    if let Some(value) = compilation {
        let object: ModelCompilation = serde_json::from_value(value).unwrap();
        put(&context.stores.compilations, object).await;
    }
    Arc::new(context)
}

async fn reconciled(client: Client, run: Value, compilation: Option<Value>) -> Option<Duration> {
    let context = context(client, compilation).await;
    let run: CustomRun = serde_json::from_value(run).unwrap();
    reconcile::reconcile(Arc::new(run), context).await.unwrap()
}

#[tokio::test]
async fn a_compilation_is_made_that_the_run_controls() {
    let (client, requests) = server(|_, _| None);
    let again = reconciled(client, run(&json!({"timeout": "10m0s"}), &json!({})), None).await;
    let made = bodies(&requests, &Method::POST, "/namespaces/team/modelcompilations");
    assert_eq!(made.len(), 1);
    let owner = &made[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("CustomRun"), &json!("1")), "{owner}");
    assert_eq!((&made[0]["metadata"]["name"], &made[0]["spec"]), (&json!("x"), &spec()));
    assert_eq!(condition(&requests)["status"], "Unknown");
    let written = bodies(&requests, &Method::PATCH, "/customruns/x/status");
    assert_eq!(written[0]["metadata"]["resourceVersion"], "7");
    assert_eq!(again, Some(Duration::from_secs(600)));
}

/// What was made and has not come over the watch yet is neither made again nor taken for deleted.
#[tokio::test]
async fn a_compilation_that_the_cache_lacks_is_asked_for() {
    let (client, requests) = server(|method, uri| {
        let asked = *method == Method::GET && uri.contains("/modelcompilations/x");
        asked.then(|| (200, compilation(&json!({}))))
    });
    reconciled(client, run(&json!({}), &made()), None).await;
    assert!(bodies(&requests, &Method::POST, "").is_empty());
    assert_eq!(condition(&requests)["status"], "Unknown");

    let (client, requests) = server(|_, _| None);
    reconciled(client, run(&json!({}), &made()), None).await;
    assert_eq!(condition(&requests)["reason"], "Deleted");
}

/// An earlier reconcile made it and was cut short before it wrote the status; or somebody else made one of the name.
#[tokio::test]
async fn a_name_that_is_there_is_the_runs_or_anothers() {
    for (uid, reason) in [("1", "Started"), ("66", "NameTaken")] {
        let (client, requests) = server(move |method, uri| match *method {
            Method::POST => Some(error(409, "exists")),
            Method::GET if uri.contains("/modelcompilations/x") => {
                let mut found = compilation(&json!({}));
                found["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
                Some((200, found))
            }
            _ => None,
        });
        reconciled(client, run(&json!({}), &json!({})), None).await;
        assert_eq!(condition(&requests)["reason"], reason);
    }
}

#[tokio::test]
async fn a_policy_that_refuses_ends_the_run_with_its_words() {
    let (client, requests) =
        server(|method, _| (*method == Method::POST).then(|| error(403, "denied by policy uris")));
    reconciled(client, run(&json!({"retries": 3}), &json!({})), None).await;
    let condition = condition(&requests);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Refused")));
    assert!(condition["message"].as_str().unwrap().contains("denied by policy uris"));
}

#[tokio::test]
async fn cancelling_suspends_the_compilation_before_it_is_said() {
    let (client, requests) = server(|_, _| None);
    let there = compilation(&json!({"observedGeneration": 1, "phase": "Running"}));
    reconciled(client, run(&json!({"status": "RunCancelled"}), &made()), Some(there)).await;
    let patches = requests.lock().unwrap().clone();
    let patches: Vec<_> =
        patches.iter().filter(|(method, _, _)| *method == Method::PATCH).collect();
    assert_eq!(patches.len(), 2, "{patches:?}");
    assert!(patches[0].1.contains("/modelcompilations/x"), "{}", patches[0].1);
    assert_eq!(patches[0].2, json!({"spec": {"suspend": true}}));
    assert_eq!(condition(&requests)["reason"], "CustomRunCancelled");
}

/// The compilation was made, and the cancellation came before the status: neither cache nor status know of it.
#[tokio::test]
async fn a_compilation_that_nobody_told_of_is_suspended_too() {
    let (client, requests) = server(|method, uri| {
        let asked = *method == Method::GET && uri.contains("/modelcompilations/x");
        asked.then(|| (200, compilation(&json!({}))))
    });
    reconciled(client, run(&json!({"status": "RunCancelled"}), &json!({})), None).await;
    let suspended = bodies(&requests, &Method::PATCH, "/modelcompilations/x");
    assert_eq!(suspended, [json!({"spec": {"suspend": true}})]);
    assert_eq!(condition(&requests)["reason"], "CustomRunCancelled");
}

#[tokio::test]
async fn conflicts_and_faults_are_told_apart_and_a_deposed_replica_writes_nothing() {
    for (code, class) in [(409, FailureClass::Conflict), (500, FailureClass::Fault)] {
        let (client, _) =
            server(move |method, _| (*method == Method::PATCH).then(|| error(code, "no")));
        let context = context(client, None).await;
        let run: CustomRun = serde_json::from_value(run(&json!({}), &json!({}))).unwrap();
        let failure = reconcile::reconcile(Arc::new(run), context).await.unwrap_err();
        assert_eq!(failure.class(), class);
    }
    let (client, requests) = server(|_, _| None);
    let context = context(client, None).await;
    context.fence.close();
    let run: CustomRun = serde_json::from_value(run(&json!({}), &json!({}))).unwrap();
    let failure = reconcile::reconcile(Arc::new(run), context).await.unwrap_err();
    assert_eq!(failure.class(), FailureClass::NotLeading);
    assert!(requests.lock().unwrap().iter().all(|(method, _, _)| *method == Method::GET));
}

/// The watches of `server`, until `until` says so.
async fn watching(
    client: &Client,
    tekton: bool,
    until: impl Fn(&Stores, &WorkQueue) -> bool,
) -> Arc<WorkQueue> {
    let (stores, queue) = (Stores::default(), Arc::<WorkQueue>::default());
    let scope = Scope { tekton, ..Scope::default() };
    for (_, watch) in stores.watches(client, &scope, &queue) {
        tokio::spawn(watch);
    }
    let wait = async {
        stores.synced().await;
        while !until(&stores, &queue) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
    queue
}

fn list(items: &[Value]) -> (u16, Value) {
    let metadata = json!({"resourceVersion": "1"});
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

fn watched(served: bool) -> impl Fn(&Method, &str) -> Option<(u16, Value)> + Send + Sync + 'static {
    move |_, uri| {
        let path = uri.split('?').next().unwrap_or_default();
        if uri.contains("watch=true") {
            return Some((200, Value::Null));
        }
        Some(match path.rsplit('/').next().unwrap_or_default() {
            "v1beta1" if served => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "tekton.dev/v1beta1", "resources": [
                    {"name": "customruns", "singularName": "customrun", "namespaced": true, "kind": "CustomRun",
                     "verbs": ["list", "watch"]}]}),
            ),
            "v1beta1" => error(404, "not found"),
            "customruns" => {
                let mut other = run(&json!({}), &json!({}));
                other["metadata"]["name"] = json!("other");
                other["spec"]["customSpec"]["apiVersion"] = json!("example.dev/v1");
                list(&[run(&json!({"retries": "many"}), &json!({})), other])
            }
            _ => list(&[]),
        })
    }
}

/// Runs of other controllers are not even kept, and one with a field that nobody can read ends no watch.
#[tokio::test]
async fn runs_of_our_kinds_are_queued() {
    let (client, _) = server(watched(true));
    let kept = |stores: &Stores, _: &WorkQueue| stores.custom_runs.is_synced();
    let queue = watching(&client, true, kept).await;
    assert_eq!(queue.depth("customrun"), 1);
    let taken = tokio::time::timeout(Duration::from_secs(20), queue.next()).await;
    let key = taken.unwrap().unwrap().key;
    assert_eq!((key.kind, &*key.name), ("customrun", "x"));
}

/// Without Tekton's CRDs everything else works, and nothing is listed in vain; without being asked for, nothing is asked.
#[tokio::test]
async fn a_cluster_without_tekton_is_no_error() {
    for (asked, wanted) in [(true, 1), (false, 0)] {
        let (client, requests) = server(watched(false));
        let log = Arc::clone(&requests);
        let asked_for = move || {
            let log = log.lock().unwrap();
            log.iter().filter(|(_, uri, _)| uri.contains("tekton.dev")).count()
        };
        watching(&client, asked, |_, _| asked_for() >= wanted).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(asked_for(), wanted);
        assert!(bodies(&requests, &Method::GET, "customruns").is_empty());
    }
}
