//! A fake API server over HTTP: lists, watches, single objects, merge patches and pods' logs, from memory.
#![allow(dead_code)] // Each test uses a part.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Objects by the path of their list, such as `/apis/hone.dev/v1alpha1/modelcompilations`.
#[derive(Default)]
struct Objects {
    version: u64,
    stored: Vec<(String, Value)>,
    patches: Vec<Value>,
    logs: Vec<(String, String)>,
    forbidden: Vec<String>,
}

/// The server; it ends with its runtime.
pub struct Api {
    objects: Mutex<Objects>,
    events: broadcast::Sender<(String, Value)>,
    address: Mutex<String>,
}

/// Where objects of a kind are listed.
fn list_of(kind: &str) -> &'static str {
    match kind {
        "ModelCompilation" => "/apis/hone.dev/v1alpha1/modelcompilations",
        "TuningRun" => "/apis/hone.dev/v1alpha1/tuningruns",
        "DevicePool" => "/apis/hone.dev/v1alpha1/devicepools",
        "Lease" => "/apis/coordination.k8s.io/v1/leases",
        "Job" => "/apis/batch/v1/jobs",
        "Pod" => "/api/v1/pods",
        "Event" => "/api/v1/events",
        "Secret" => "/api/v1/secrets",
        other => panic!("no kind '{other}'"),
    }
}

impl Api {
    pub async fn start() -> Arc<Self> {
        let api = Arc::new(Self {
            objects: Mutex::default(),
            events: broadcast::Sender::new(1024),
            address: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        *api.address.lock().unwrap() = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(respond).with_state(Arc::clone(&api));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        api
    }

    /// A kubeconfig for it, in `folder`.
    pub fn kubeconfig(&self, folder: &std::path::Path) -> PathBuf {
        let server = self.address.lock().unwrap().clone();
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "team"}}]});
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Stores an object, over one of the same name, and tells the watches.
    pub fn put(&self, mut object: Value) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let mut objects = self.objects.lock().unwrap();
        objects.version += 1;
        object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
        let path = list_of(&kind).to_owned();
        let same = |stored: &(String, Value)| {
            stored.0 == path
                && stored.1["metadata"]["name"] == object["metadata"]["name"]
                && stored.1["metadata"]["namespace"] == object["metadata"]["namespace"]
        };
        let before = objects.stored.len();
        objects.stored.retain(|stored| !same(stored));
        let word = if objects.stored.len() < before { "MODIFIED" } else { "ADDED" };
        objects.stored.push((path.clone(), object.clone()));
        drop(objects);
        let _ = self.events.send((path, json!({"type": word, "object": object})));
    }

    /// What a pod's log says.
    pub fn log(&self, pod: &str, text: &str) {
        self.objects.lock().unwrap().logs.push((pod.to_owned(), text.to_owned()));
    }

    /// Refuses everything of a kind.
    pub fn forbid(&self, kind: &str) {
        self.objects.lock().unwrap().forbidden.push(list_of(kind).to_owned());
    }

    /// The patches that were sent.
    pub fn patches(&self) -> Vec<Value> {
        self.objects.lock().unwrap().patches.clone()
    }
}

async fn respond(State(api): State<Arc<Api>>, method: Method, uri: Uri, body: Bytes) -> Response {
    let query: Vec<(String, String)> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let of = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let (path, namespace, name) = parts(uri.path());
    if api.objects.lock().unwrap().forbidden.contains(&path) {
        return status(403, "forbidden");
    }
    if let Some(pod) = name.strip_suffix("/log") {
        let objects = api.objects.lock().unwrap();
        let text = objects.logs.iter().find(|(name, _)| name == pod).map(|(_, text)| text.clone());
        return text.map_or_else(|| status(404, "no log"), IntoResponse::into_response);
    }
    if of("watch").is_some_and(|watch| watch == "true" || watch == "1") {
        return watch(&api, path);
    }
    match name.is_empty() {
        true => api.list(&path, &namespace, of("labelSelector").as_deref()),
        false => api.single(&method, &path, &namespace, &name, &body),
    }
}

/// The path of the list without its namespace, the namespace, and the name.
fn parts(path: &str) -> (String, String, String) {
    let (mut kept, mut namespace) = (path.to_owned(), String::new());
    if let Some((head, rest)) = path.split_once("/namespaces/") {
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        namespace = name.to_owned();
        kept = format!("{head}/{rest}");
    }
    let depth = if kept.starts_with("/api/") { 4 } else { 5 };
    let pieces: Vec<&str> = kept.split('/').collect();
    let name = pieces.get(depth..).map(|rest| rest.join("/")).unwrap_or_default();
    (pieces[..depth.min(pieces.len())].join("/"), namespace, name)
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": if code == 404 { "NotFound" } else { "Forbidden" }, "message": message});
    let code = StatusCode::from_u16(code).unwrap();
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn found(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// What was sent while nobody listened is lost, so a watch begins with everything that is stored.
fn watch(api: &Api, path: String) -> Response {
    let line = |event: &Value| format!("{event}\n");
    let objects = api.objects.lock().unwrap();
    let stored = objects.stored.iter().filter(|(stored_path, _)| stored_path == &path);
    let stored: Vec<String> =
        stored.map(|(_, object)| line(&json!({"type": "MODIFIED", "object": object}))).collect();
    let receiver = api.events.subscribe();
    drop(objects);
    let later = futures::stream::unfold(receiver, move |mut receiver| {
        let path = path.clone();
        async move {
            loop {
                let (changed_path, event) = receiver.recv().await.ok()?;
                if changed_path == path {
                    return Some((line(&event), receiver));
                }
            }
        }
    });
    let all = futures::stream::iter(stored).chain(later).map(Ok::<_, Infallible>);
    Body::from_stream(all).into_response()
}

impl Api {
    fn list(&self, path: &str, namespace: &str, selector: Option<&str>) -> Response {
        let objects = self.objects.lock().unwrap();
        let wanted = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            let labelled = selector.is_none_or(|selector| match selector.split_once('=') {
                Some((key, value)) => labels[key] == value,
                None => !labels[selector].is_null(),
            });
            labelled && (namespace.is_empty() || object["metadata"]["namespace"] == namespace)
        };
        let listed = objects
            .stored
            .iter()
            .filter(|(stored_path, object)| stored_path == path && wanted(object));
        let items: Vec<&Value> = listed.map(|(_, object)| object).collect();
        found(&json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": objects.version.to_string()}, "items": items}))
    }

    fn single(
        &self,
        method: &Method,
        path: &str,
        namespace: &str,
        name: &str,
        body: &[u8],
    ) -> Response {
        let mut objects = self.objects.lock().unwrap();
        let is_it = |(stored_path, object): &&(String, Value)| {
            stored_path == path
                && object["metadata"]["name"] == name
                && (namespace.is_empty() || object["metadata"]["namespace"] == namespace)
        };
        let object = objects.stored.iter().find(is_it).map(|(_, object)| object.clone());
        let Some(object) = object else { return status(404, "not found") };
        if method == Method::PATCH {
            objects.patches.push(serde_json::from_slice(body).unwrap());
        }
        found(&object)
    }
}

/// A compilation with one target, at work unless `status` says otherwise.
pub fn compilation(name: &str, status: Value) -> Value {
    json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"uri": "s3://models/digits.onnx"}, "output": {"uri": "s3://artifacts/team"},
            "targets": [{"name": "cpu", "pool": "cpus"}]},
        "status": status})
}

/// A condition.
pub fn condition(kind: &str, state: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": state, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:05Z"})
}

/// A Job of a compilation, and its pod.
pub fn job_and_pod(compilation: &str, pod_status: Value) -> [Value; 2] {
    let labels =
        json!({"hone.dev/compilation-uid": format!("uid-{compilation}"), "hone.dev/target": "cpu"});
    let owner = |kind: &str, api: &str, name: &str, uid: &str| json!([{"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let uid = format!("uid-{compilation}");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("{compilation}-job"),
        "namespace": "team", "uid": format!("job-{compilation}"), "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:01Z",
        "ownerReferences": owner("ModelCompilation", "hone.dev/v1alpha1", compilation, &uid)},
        "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}}, "status": {"active": 1}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{compilation}-pod"),
        "namespace": "team", "uid": format!("pod-{compilation}"), "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:02Z",
        "ownerReferences": owner("Job", "batch/v1", &format!("{compilation}-job"), &format!("job-{compilation}"))},
        "spec": {"containers": [], "nodeName": "node-1"}, "status": pod_status});
    [job, pod]
}
