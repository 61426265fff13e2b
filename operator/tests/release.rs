//! B6: after the operator was uninstalled its finalizer holds nothing up.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// Compilations that have the finalizer, looks at them, and what was patched.
#[derive(Default)]
struct Server {
    held: Vec<String>,
    looks: usize,
    patches: Vec<Value>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> Value {
        if method == Method::PATCH {
            self.held.retain(|name| !path.ends_with(&format!("/{name}")));
            self.patches.push(body);
            let version = "meta.k8s.io/v1";
            return json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": {}});
        }
        self.looks += 1;
        if self.looks == 2 {
            // The operator that was told to end had one more to write.
            self.held.push("late".to_owned());
        }
        let item = |name: &str, finalizers: Value| {
            json!({"metadata": {"name": name, "namespace": "team", "resourceVersion": "1",
                "finalizers": finalizers}})
        };
        let both = || json!(["hone.dev/artifacts", "other/one"]);
        let mut items: Vec<Value> = self.held.iter().map(|name| item(name, both())).collect();
        items.push(item("retained", json!(["other/one"])));
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": items})
    }
}

fn client(server: &Arc<Mutex<Server>>) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let answer = server.lock().unwrap().answer(&parts.method, parts.uri.path(), body);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, std::convert::Infallible>(Response::new(body))
        }
    });
    Client::new(service, "team")
}

#[tokio::test(start_paused = true)]
async fn objects_are_released_also_those_that_come_meanwhile() {
    let server = Arc::new(Mutex::new(Server::default()));
    server.lock().unwrap().held = vec!["a".to_owned(), "b".to_owned()];
    let released = hone_operator::release::release(client(&server), None).await.unwrap();
    assert_eq!(released, 3);
    let server = server.lock().unwrap();
    assert!(server.held.is_empty());
    assert_eq!(server.patches.len(), 3);
    let kept = |patch: &Value| patch["metadata"]["finalizers"] == json!(["other/one"]);
    assert!(server.patches.iter().all(kept), "{:?}", server.patches);
}
