//! The program `kubectl-hone` against a fake API server: what each word prints.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fake;

use std::process::Output;
use std::sync::Arc;

use fake::{Api, compilation, condition, job_and_pod};
use serde_json::{Value, json};

/// Runs the program; its exit status, and what it printed on both streams.
async fn hone(api: &Arc<Api>, arguments: &[&str]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let config = api.kubeconfig(folder.path());
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let run = move || -> Output {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-hone"));
        command.args(arguments).env("KUBECONFIG", config).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn running() -> Value {
    json!({"phase": "Running", "observedGeneration": 1, "targetsReady": "0/1",
        "conditions": [condition("Ready", "False", "Running", "a worker is at work")],
        "targets": [{"name": "cpu", "phase": "Running", "pool": "cpus", "jobRef": {"name": "digits-job"}}]})
}

fn done(latency: &str, low: &str, high: &str, artifact: char) -> Value {
    let digest = format!("sha256:{}", artifact.to_string().repeat(64));
    json!({"phase": "Succeeded", "observedGeneration": 1, "targetsReady": "1/1",
        "conditions": [condition("Ready", "True", "Succeeded", "")],
        "targets": [{"name": "cpu", "phase": "Succeeded", "pool": "cpus",
            "artifact": {"uri": format!("s3://artifacts/team/cpu-{artifact}.hone"), "digest": digest, "sizeBytes": 1024},
            "reportUri": format!("s3://artifacts/team/cpu-{artifact}.uid.json"),
            "fingerprint": format!("sha256:{}", "f".repeat(64)),
            "latency": {"p50": latency, "ciLow": low, "ciHigh": high, "untuned": "9ms"},
            "correctness": {"maxAbs": "2e-5", "maxRel": "8e-5", "passed": true}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_draws_targets_jobs_and_pods() {
    let api = Api::start().await;
    api.put(compilation("digits", running()));
    let waiting = json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
    job_and_pod("digits", waiting).into_iter().for_each(|object| api.put(object));
    // Who wears our labels without being owned is not drawn.
    let [mut foreign, _] = job_and_pod("digits", json!({}));
    foreign["metadata"]["name"] = json!("foreign");
    foreign["metadata"]["uid"] = json!("66");
    foreign["metadata"]["ownerReferences"] = json!([]);
    api.put(foreign);
    let (fine, text) = hone(&api, &["tree", "digits"]).await;
    assert!(fine, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ModelCompilation team/digits  Running  0/1 ready"), "{text}");
    assert_eq!(lines[1], "└─ target cpu  Running  pool cpus");
    assert_eq!(lines[2], "   └─ Job digits-job  1 active, 0 failed");
    assert!(
        lines[3].starts_with("      └─ Pod digits-pod  Pending  on node-1  ImagePullBackOff"),
        "{text}"
    );
    assert!(!text.contains("foreign"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_the_reason_who_acts_and_what_follows() {
    let api = Api::start().await;
    let message = "secret \"nope\" not found\u{1b}[2J";
    let status = json!({"phase": "Pending", "observedGeneration": 1,
        "conditions": [condition("Ready", "False", "SecretNotFound", message)],
        "targets": [{"name": "cpu", "phase": "Pending", "pool": "cpus",
            "retry": {"attempts": 1, "after": "2026-01-01T00:01:00Z"},
            "failure": {"reason": "SecretNotFound", "message": message}}]});
    api.put(compilation("digits", status));
    let event = |uid: &str, message: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e-{uid}"), "namespace": "team"},
            "involvedObject": {"kind": "Pod", "name": "digits-pod", "uid": uid}, "type": "Warning",
            "reason": "FailedMount", "message": message, "lastTimestamp": "2026-01-01T00:00:30Z"})
    };
    job_and_pod("digits", json!({"phase": "Pending"}))
        .into_iter()
        .for_each(|object| api.put(object));
    api.put(event("pod-digits", "MountVolume.SetUp failed"));
    api.put(event("pod-of-another", "not ours"));
    api.put(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "cpus"},
        "spec": {"kind": "CPU"}, "status": {"capacity": {"nodes": 1, "total": 1, "leased": 1, "waiting": 2}}}));
    let (fine, text) = hone(&api, &["why", "digits"]).await;
    assert!(fine, "{text}");
    for part in [
        "digits is Pending",
        "SecretNotFound\n    secret \"nope\" not found",
        "means    A Secret that `credentialsSecretRef` names does not exist.",
        "acts     whoever wrote the compilation",
        "follows  it fails after 2 starts",
        "tried    1 times, not before 2026-01-01T00:01:00Z",
        "pool 'cpus': 1 of 1 devices held, 2 waiting",
        "MountVolume.SetUp failed",
    ] {
        assert!(text.contains(part), "'{part}' is missing:\n{text}");
    }
    assert!(!text.contains("not ours") && !text.contains('\u{1b}'), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_those_of_the_worker_without_steering_characters() {
    let api = Api::start().await;
    api.put(compilation("digits", running()));
    let (fine, text) = hone(&api, &["logs", "digits"]).await;
    assert!(!fine && text.contains("no worker of 'digits' is left to ask"), "{text}");
    job_and_pod("digits", json!({"phase": "Running"}))
        .into_iter()
        .for_each(|object| api.put(object));
    api.log("digits-pod", "fetch\ncompile \u{1b}]0;x\u{7}\nverify\n");
    let (fine, text) = hone(&api, &["logs", "digits", "--target", "cpu"]).await;
    assert!(fine, "{text}");
    assert_eq!(text, "fetch\ncompile \u{fffd}]0;x\u{fffd}\nverify\n");
    let (fine, text) = hone(&api, &["logs", "digits", "--target", "gpu"]).await;
    assert!(!fine && text.contains("has no target 'gpu': it has cpu"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_fetched_from_the_store_with_the_outputs_secret() {
    let api = Api::start().await;
    let store = Store::start().await;
    let mut object = compilation("digits", done("2ms", "1.9ms", "2.1ms", 'a'));
    object["spec"]["output"]["credentialsSecretRef"] = json!({"name": "store"});
    api.put(object);
    let (fine, text) = hone(&api, &["report", "digits"]).await;
    assert!(
        fine && text.contains("s3://artifacts/team/cpu-a.uid.html") && text.contains("9ms"),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let arguments = ["report", "digits", "--html", file.to_str().unwrap()];
    let (fine, text) = hone(&api, &arguments).await;
    assert!(!fine && text.contains("reading Secret 'store'"), "{text}");
    // "key" and "secret" in base64.
    let endpoint = base64(&store);
    api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store", "namespace": "team"},
        "data": {"AWS_ACCESS_KEY_ID": "a2V5", "AWS_SECRET_ACCESS_KEY": "c2VjcmV0", "AWS_ENDPOINT": endpoint,
            "AWS_ALLOW_HTTP": "dHJ1ZQ=="}}));
    let (fine, text) = hone(&api, &arguments).await;
    assert!(fine, "{text}");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "GET /artifacts/team/cpu-a.uid.html by key"
    );
    // Where the store has a name only inside the cluster.
    let arguments = ["report", "digits", "--json", "-", "--endpoint", store.as_str()];
    let (fine, text) = hone(&api, &arguments).await;
    assert!(fine && text == "GET /artifacts/team/cpu-a.uid.json by key", "{text}");
}

/// A store that responds with what was requested and by whom; its address.
struct Store;

impl Store {
    async fn start() -> String {
        use axum::http::{HeaderMap, Method, Uri};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let respond = |method: Method, uri: Uri, headers: HeaderMap| async move {
            let signed = headers.get("authorization").map(|h| h.to_str().unwrap().to_owned());
            let signed = signed.unwrap_or_default();
            let who = signed.split("Credential=").nth(1).and_then(|rest| rest.split('/').next());
            let text = format!("{method} {} by {}", uri.path(), who.unwrap_or("nobody"));
            ([("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"), ("etag", "\"e\"")], text)
        };
        let router = axum::Router::new().fallback(respond);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        address
    }
}

/// Base64 of a short text, for the data of a Secret.
fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).unwrap().as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_sets_the_annotation_where_something_failed() {
    let api = Api::start().await;
    api.put(compilation("fine", done("2ms", "1.9ms", "2.1ms", 'a')));
    let (fine, text) = hone(&api, &["retry", "fine"]).await;
    assert!(!fine && text.contains("no target of 'fine' has failed"), "{text}");
    assert!(api.patches().is_empty());
    let mut status = running();
    status["phase"] = json!("Failed");
    status["targets"][0]["phase"] = json!("Failed");
    api.put(compilation("digits", status));
    let (fine, text) = hone(&api, &["retry", "digits"]).await;
    assert!(fine && text.contains("digits is tried again: cpu"), "{text}");
    let patch = &api.patches()[0]["metadata"];
    assert!(patch["annotations"]["hone.dev/retry"].is_string(), "{patch}");
    // An edit in between is not written over.
    assert!(patch["resourceVersion"].is_string(), "{patch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_compares_specs_and_results() {
    let api = Api::start().await;
    api.put(compilation("before", done("4ms", "3.9ms", "4.1ms", 'a')));
    let mut after = compilation("after", done("2ms", "1.9ms", "2.1ms", 'b'));
    after["spec"]["model"]["uri"] = json!("s3://models/digits-2.onnx");
    api.put(after);
    let (fine, text) = hone(&api, &["diff", "before", "after"]).await;
    assert!(fine, "{text}");
    assert!(text.contains("2.00× faster"), "{text}");
    let uri = text.lines().find(|line| line.starts_with("spec.model.uri")).unwrap();
    assert!(uri.contains("digits.onnx") && uri.contains("digits-2.onnx"), "{text}");
    let (fine, text) = hone(&api, &["diff", "before", "nope"]).await;
    assert!(!fine && text.contains("ModelCompilation 'team/nope' does not exist"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_cannot_be_reached_is_an_error() {
    let api = Api::start().await;
    api.forbid("ModelCompilation");
    let (fine, text) = hone(&api, &["tree"]).await;
    assert!(
        !fine
            && text
                .starts_with("error: listing ModelCompilations failed: the API server answers 403"),
        "{text}"
    );
}
