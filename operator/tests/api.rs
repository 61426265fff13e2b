//! The half of the operator that talks to the API server, against a fake one: what it writes after a conflict, a
//! refusal, an absent object, a relist, and for children that it does not own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{error, operator, put};
use hone_artifact::termination::Termination;
use hone_crds::{DevicePool, ModelCompilation};
use hone_operator::config::Config;
use hone_operator::context::Context;
use hone_operator::model_compilation::{digest, reconcile};
use hone_operator::runtime::worker::{FailureClass, ReconcileFailure};
use hone_operator::stores::{Scope, Stores};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

/// How a fake API server answers a request: status code and body.
type Answer = Box<dyn Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync>;

/// What the fake API server was asked, and how it answers.
struct Api {
    requests: Mutex<Vec<(Method, String, Value)>>,
    answer: Answer,
}

impl Api {
    fn new(
        answer: impl Fn(&Method, &str, &Value) -> (u16, Value) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { requests: Mutex::default(), answer: Box::new(answer) })
    }

    fn client(self: &Arc<Self>) -> Client {
        let api = Arc::clone(self);
        common::client(move |method, uri, body| {
            let answer = (api.answer)(method, uri, &body);
            api.requests.lock().unwrap().push((method.clone(), uri.to_owned(), body));
            answer
        })
    }

    /// The bodies of requests with this method whose path contains `part`.
    fn bodies(&self, method: &Method, part: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        let wanted = requests.iter().filter(|(m, uri, _)| m == method && uri.contains(part));
        wanted.map(|(_, _, body)| body.clone()).collect()
    }

    /// The status that was written last.
    fn status(&self) -> Value {
        let written = self.bodies(&Method::PUT, "/status");
        written.last().map(|body| body["status"].clone()).unwrap_or_default()
    }
}

fn compilation() -> ModelCompilation {
    let text = r#"
        apiVersion: hone.dev/v1alpha1
        kind: ModelCompilation
        metadata: {name: digits, namespace: team, uid: "1", generation: 1, resourceVersion: "7"}
        spec:
          model: {uri: "s3://models/x.onnx"}
          output: {uri: "s3://artifacts/x"}
          targets: [{name: cpu, pool: cpus}]
    "#;
    let mut value: Value = serde_yaml::from_str(text).unwrap();
    value["spec"]["correctness"] = json!({});
    serde_json::from_value(value).unwrap()
}

fn pool() -> DevicePool {
    serde_json::from_value(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "DevicePool",
        "metadata": {"name": "cpus", "resourceVersion": "3"},
        "spec": {"kind": "CPU", "exclusivity": "Shared"}}))
    .unwrap()
}

async fn context(api: &Arc<Api>) -> Arc<Context> {
    let (context, publish) = operator(api.client(), Config::default());
    tokio::spawn(publish);
    put(&context.stores.pools, pool()).await;
    put(&context.stores.compilations, compilation()).await;
    Arc::new(context)
}

/// An API server that takes everything but what `special` answers.
fn taking(
    special: impl Fn(&Method, &str) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> Arc<Api> {
    Api::new(move |method, uri, body| {
        if let Some(answer) = special(method, uri) {
            return answer;
        }
        let mut object = serde_json::to_value(compilation()).unwrap();
        object["metadata"]["resourceVersion"] = json!("9");
        match uri {
            uri if uri.contains("/jobs") || uri.contains("/events") => (201, body.clone()),
            _ => (200, object),
        }
    })
}

fn is_job_creation(method: &Method, uri: &str) -> bool {
    method == Method::POST && uri.contains("/jobs")
}

async fn reconciled(api: &Arc<Api>) -> (Arc<Context>, Option<Duration>) {
    let context = context(api).await;
    let object = context.stores.compilations.get("team", "digits").unwrap();
    let again = reconcile::reconcile(object, Arc::clone(&context)).await.unwrap();
    (context, again)
}

#[tokio::test]
async fn a_job_is_made_and_the_status_says_so() {
    let api = taking(|_, _| None);
    let (context, _) = reconciled(&api).await;
    let jobs = api.bodies(&Method::POST, "/jobs");
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0]["metadata"]["ownerReferences"][0]["uid"], "1");
    assert_eq!(api.status()["phase"], "Pending");
    assert_eq!(api.status()["targets"][0]["pool"], "cpus");
    // What was written and has not come back from the watch is not planned from.
    let object = context.stores.compilations.get("team", "digits").unwrap();
    reconcile::reconcile(object, Arc::clone(&context)).await.unwrap();
    assert_eq!(api.bodies(&Method::POST, "/jobs").len(), 1);
}

/// B3: what the API server refuses as invalid will never be let in.
#[tokio::test]
async fn an_invalid_job_is_terminal_at_once() {
    for code in [422, 400] {
        let api = taking(move |method, uri| {
            let message = "requests: Invalid value: must be less than or equal to memory limit";
            is_job_creation(method, uri).then(|| error(code, message))
        });
        let (_, again) = reconciled(&api).await;
        let status = api.status();
        assert_eq!(status["phase"], "Failed", "{status}");
        assert_eq!(status["failure"]["reason"], "JobInvalid");
        let stalled = |c: &&Value| c["type"] == "Stalled" && c["status"] == "True";
        assert!(status["conditions"].as_array().unwrap().iter().any(|c| stalled(&c)), "{status}");
        assert_eq!(again, None);
        assert_eq!(api.bodies(&Method::POST, "/jobs").len(), 1);
    }
}

/// B3: a quota may be raised, so it waits, but ever longer.
#[tokio::test]
async fn a_forbidden_job_backs_off() {
    let api = taking(|method, uri| {
        is_job_creation(method, uri).then(|| error(403, "exceeded quota: jobs"))
    });
    let (context, again) = reconciled(&api).await;
    let first = api.status();
    assert_eq!(first["phase"], "Pending", "{first}");
    assert_eq!(first["targets"][0]["failure"]["reason"], "JobForbidden");
    assert_eq!(first["targets"][0]["retry"]["attempts"], 1);
    assert!(again.unwrap() >= Duration::from_secs(10) && again.unwrap() < Duration::from_secs(14));

    let mut object = compilation();
    object.metadata.resource_version = Some("9".to_owned());
    let mut status = first.clone();
    status["targets"][0]["retry"]["after"] = json!("2020-01-01T00:00:00Z");
    object.status = serde_json::from_value(status).unwrap();
    let again = reconcile::reconcile(Arc::new(object), context).await.unwrap();
    assert_eq!(api.status()["targets"][0]["retry"]["attempts"], 2);
    assert!(again.unwrap() >= Duration::from_secs(20), "{again:?}");
}

/// B12: who makes a Job of the expected name gains nothing by it.
#[tokio::test]
async fn a_job_of_another_owner_is_not_ours() {
    let foreign = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "x", "namespace": "team", "uid": "66"}});
    let api = taking(move |method, uri| match is_job_creation(method, uri) {
        true => Some(error(409, "exists")),
        false => (method == Method::GET && uri.contains("/jobs/")).then(|| (200, foreign.clone())),
    });
    reconciled(&api).await;
    let status = api.status();
    assert_eq!(status["failure"]["reason"], "JobNameTaken", "{status}");
}

/// B9: the pool of a Job that an earlier reconcile made, and whose status was lost, is the Job's.
#[tokio::test]
async fn the_pool_of_a_job_that_is_there_already_is_kept() {
    let ours = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x",
        "namespace": "team", "uid": "5", "annotations": {"hone.dev/pool": "another-pool"},
        "ownerReferences": [{"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
            "name": "digits", "uid": "1", "controller": true}]}});
    let api = taking(move |method, uri| match is_job_creation(method, uri) {
        true => Some(error(409, "exists")),
        false => (method == Method::GET && uri.contains("/jobs/")).then(|| (200, ours.clone())),
    });
    reconciled(&api).await;
    assert_eq!(api.status()["targets"][0]["pool"], "another-pool");
    assert_eq!(api.status()["phase"], "Pending");
}

#[tokio::test]
async fn a_conflict_is_expected_and_a_server_error_is_not() {
    for (code, class) in [(409, FailureClass::Conflict), (500, FailureClass::Fault)] {
        let api = taking(move |method, _| (method == Method::PUT).then(|| error(code, "no")));
        let context = context(&api).await;
        let object = context.stores.compilations.get("team", "digits").unwrap();
        let failure = reconcile::reconcile(object, context).await.unwrap_err();
        assert_eq!(failure.class(), class);
    }
}

#[tokio::test]
async fn an_object_that_is_gone_is_no_error() {
    let api = taking(|method, _| (method == Method::PUT).then(|| error(404, "gone")));
    reconciled(&api).await;
}

#[tokio::test]
async fn a_deposed_replica_writes_nothing() {
    let api = taking(|_, _| None);
    let context = context(&api).await;
    context.fence.close();
    let object = context.stores.compilations.get("team", "digits").unwrap();
    let failure = reconcile::reconcile(object, context).await.unwrap_err();
    assert_eq!(failure.class(), FailureClass::NotLeading);
    assert!(api.requests.lock().unwrap().is_empty());
}

/// A list of the API server, for the watches.
fn list(kind: &str, items: &[Value]) -> (u16, Value) {
    (
        200,
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
    )
}

fn job(owner_references: Value) -> Value {
    let created = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(30);
    let created = created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {
        "name": digest::job_name(&compilation(), &compilation().spec.targets[0]),
        "namespace": "team", "uid": "55", "resourceVersion": "4",
        "creationTimestamp": created, "annotations": {"hone.dev/pool": "cpus"},
        "labels": {"hone.dev/compilation-uid": "1", "app.kubernetes.io/managed-by": "hone-operator"},
        "ownerReferences": owner_references},
        "spec": {"activeDeadlineSeconds": 14400, "backoffLimit": 3}, "status": {}})
}

fn owned() -> Value {
    json!([{"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "name": "digits",
        "uid": "1", "controller": true}])
}

/// Reconciles once the caches are filled by watches of an API server with these Jobs, pods and events.
async fn watched(jobs: Vec<Value>, pods: Vec<Value>, events: Vec<Value>) -> Arc<Api> {
    let api = taking(move |method, uri| {
        if method != Method::GET {
            return None;
        }
        let path = uri.split('?').next().unwrap_or_default();
        if uri.contains("watch=true") {
            return Some((200, Value::Null));
        }
        Some(match path.rsplit('/').next().unwrap_or_default() {
            "jobs" => list("JobList", &jobs),
            "pods" => list("PodList", &pods),
            "events" => list("EventList", &events),
            "devicepools" => list("List", &[serde_json::to_value(pool()).unwrap()]),
            "modelcompilations" => list("List", &[serde_json::to_value(compilation()).unwrap()]),
            _ => list("List", &[]),
        })
    });
    let context = context(&api).await;
    for (_, watch) in context.stores.watches(&context.client, &Scope::default(), &context.queue) {
        tokio::spawn(watch);
    }
    let synced = async {
        context.stores.synced().await;
        context.stores.warnings.synced().await;
    };
    tokio::time::timeout(Duration::from_secs(20), synced).await.unwrap();
    let object = context.stores.compilations.get("team", "digits").unwrap();
    reconcile::reconcile(object, context).await.unwrap();
    api
}

/// A warning about the object with a uid.
fn event(about: &str, reason: &str, message: &str) -> Value {
    json!({"metadata": {"name": "e"}, "involvedObject": {"uid": about}, "type": "Warning", "reason": reason,
        "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"})
}

fn pod(status: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "team", "uid": "77", "resourceVersion": "5",
        "labels": {"hone.dev/compilation-uid": "1"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "55",
            "controller": true}]}, "status": status})
}

fn creating() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "worker", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]})
}

/// B4: what keeps a worker from starting is in the status, and its device is given back.
#[tokio::test]
async fn a_worker_that_cannot_start_is_explained_and_gives_its_device_back() {
    let secret =
        "MountVolume.SetUp failed for volume \"credentials-model\" : secret \"nope\" not found";
    let account = "Error creating: pods \"x-\" is forbidden: error looking up service account team/nope: serviceaccount \"nope\" not found";
    for (pods, events, reason, word) in [
        (vec![pod(creating())], vec![event("77", "FailedMount", secret)], "SecretNotFound", "nope"),
        (vec![], vec![event("55", "FailedCreate", account)], "ServiceAccountNotFound", "nope"),
    ] {
        let api = watched(vec![job(owned())], pods, events).await;
        let status = api.status();
        assert_eq!(status["targets"][0]["failure"]["reason"], reason, "{status}");
        let message = status["targets"][0]["failure"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
        assert_eq!(status["targets"][0]["retry"]["attempts"], 1);
        let deleted = api.requests.lock().unwrap();
        assert!(
            deleted
                .iter()
                .any(|(method, uri, _)| method == Method::DELETE && uri.contains("/jobs/"))
        );
    }
}

/// B4: a pod without a node waits with the scheduler's words, and holds nothing.
#[tokio::test]
async fn an_unschedulable_worker_waits_with_the_schedulers_words() {
    let words = "0/1 nodes are available: 1 Insufficient memory.";
    let status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": words}]});
    let api = watched(vec![job(owned())], vec![pod(status)], vec![]).await;
    let status = api.status();
    assert_eq!(status["targets"][0]["failure"]["reason"], "Unschedulable", "{status}");
    let ready = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready");
    assert!(ready.unwrap()["message"].as_str().unwrap().contains(words), "{status}");
    assert!(api.bodies(&Method::DELETE, "/jobs").is_empty());
}

/// B12: a finished Job that only carries our labels, with a forged report, gives no result.
#[tokio::test]
async fn a_job_that_only_carries_our_labels_is_not_believed() {
    let mut forged = job(json!([]));
    forged["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let digest = format!("sha256:{}", "0".repeat(64));
    let report = Termination::from_message(
        &json!({"version": 1, "artifact": {"uri": "s3://artifacts/x/cpu.hone", "digest": digest, "sizeBytes": 1}})
            .to_string(),
    );
    let mut ended = pod(json!({"phase": "Succeeded", "containerStatuses": [{"name": "worker",
        "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated":
            {"exitCode": 0, "message": report.unwrap().to_message()}}}]}));
    let api = watched(vec![forged], vec![ended.clone()], vec![]).await;
    assert_eq!(api.status()["phase"], "Pending", "{}", api.status());
    // The same pod is believed when Job and pod are controlled as ours are.
    ended["metadata"]["ownerReferences"][0]["uid"] = json!("55");
    let mut real = job(owned());
    real["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let api = watched(vec![real], vec![ended], vec![]).await;
    assert_eq!(api.status()["phase"], "Succeeded", "{}", api.status());
}

/// An API server whose watches are all cut off with 410 Gone, so that each is followed by a new list: the nth list of
/// a kind is what `items` gives for the kind and n.
fn relisting(items: impl Fn(&str, usize) -> Vec<Value> + Send + Sync + 'static) -> Arc<Api> {
    let lists: Mutex<std::collections::HashMap<String, usize>> = Mutex::default();
    Api::new(move |_, uri, _| {
        if uri.contains("watch=true") {
            let (_, gone) = error(410, "too old resource version");
            return (200, json!({"type": "ERROR", "object": gone}));
        }
        let path = uri.split('?').next().unwrap_or_default();
        let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
        let mut lists = lists.lock().unwrap();
        let number = lists.entry(kind.clone()).or_insert(0);
        *number += 1;
        list("List", &items(&kind, *number))
    })
}

/// The stores of an API server, whose watches run.
async fn following(api: &Arc<Api>) -> (Stores, Arc<hone_operator::runtime::queue::WorkQueue>) {
    let (stores, queue) = (Stores::default(), Arc::default());
    for (_, watch) in stores.watches(&api.client(), &Scope::default(), &queue) {
        tokio::spawn(watch);
    }
    tokio::time::timeout(Duration::from_secs(20), stores.synced()).await.unwrap();
    (stores, queue)
}

/// Takes the next compilation from the queue, and whether its object is in the cache.
async fn next_compilation(
    stores: &Stores,
    queue: &hone_operator::runtime::queue::WorkQueue,
) -> bool {
    use hone_operator::runtime::queue::Done;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
        let key = next.expect("nothing was queued").unwrap().key;
        let found = stores.compilations.get(&key.namespace, &key.name).is_some();
        queue.done(&key, Done::Settled);
        if key.kind == "modelcompilation" {
            return found;
        }
    }
}

/// B1: what was applied while the watch was cut off is queued, and found when its turn comes; so is what went.
#[tokio::test]
async fn a_relist_loses_nothing() {
    let api = relisting(|kind, number| match (kind, number) {
        ("modelcompilations", 2) => vec![serde_json::to_value(compilation()).unwrap()],
        _ => vec![],
    });
    let (stores, queue) = following(&api).await;
    assert!(next_compilation(&stores, &queue).await, "what a relist brought was not found");
    assert!(!next_compilation(&stores, &queue).await, "what a relist lacks was found");
}

/// B15: a pool that allows a namespace by label is tried as soon as the label is there.
#[tokio::test]
async fn a_label_on_the_namespace_wakes_who_waits_in_it() {
    let api = relisting(|kind, number| match (kind, number) {
        ("modelcompilations", _) => {
            let mut object = serde_json::to_value(compilation()).unwrap();
            object["status"] = json!({"phase": "Pending"});
            vec![object]
        }
        ("namespaces", number) => {
            let labels = if number > 1 { json!({"team": "a"}) } else { json!({}) };
            let version = number.to_string();
            vec![
                json!({"metadata": {"name": "team", "labels": labels, "resourceVersion": version}}),
            ]
        }
        _ => vec![],
    });
    let (stores, queue) = following(&api).await;
    // For itself, and for the label.
    assert!(next_compilation(&stores, &queue).await);
    assert!(next_compilation(&stores, &queue).await);
}

/// B15: who used a pool that is deleted learns so.
#[tokio::test]
async fn a_pool_that_goes_wakes_who_waits() {
    let api = relisting(|kind, number| match (kind, number) {
        ("modelcompilations", _) => {
            let mut object = serde_json::to_value(compilation()).unwrap();
            object["status"] = json!({"phase": "Pending"});
            vec![object]
        }
        ("devicepools", 1) => vec![serde_json::to_value(pool()).unwrap()],
        _ => vec![],
    });
    let (stores, queue) = following(&api).await;
    assert!(next_compilation(&stores, &queue).await);
    assert!(next_compilation(&stores, &queue).await);
}
