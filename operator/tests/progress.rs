//! Posts of pods that search: who may post, what is kept, and when a run looks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::{Arc, Mutex};

use hone_artifact::progress::{AUDIENCE, LARGEST, Progress};
use hone_operator::children::jobs;
use hone_operator::endpoints;
use hone_operator::fence::Fence;
use hone_operator::progress::{Leading, Posts, Receiver};
use hone_operator::runtime::cache::Cache;
use hone_operator::runtime::queue::WorkQueue;
use hone_operator::seen::SeenJob;
use kube::Client;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

/// What the API server was asked for, by path.
type Asked = Arc<Mutex<Vec<String>>>;

/// An API server that knows a pod for each token that begins with `pod-`, whose Job is the rest.
fn api() -> (Client, Asked) {
    let asked: Asked = Arc::default();
    let kept = Arc::clone(&asked);
    let client = common::client(move |_, uri, body| {
        let path = uri.split('?').next().unwrap().to_owned();
        kept.lock().unwrap().push(path.clone());
        let pod = path.strip_prefix("/api/v1/namespaces/team/pods/");
        match pod {
            Some("pod-gone") => {
                let (code, mut answer) = common::error(404, "not found");
                answer["reason"] = json!("NotFound");
                (code, answer)
            }
            Some(name) => (200, pod_of(name)),
            None => {
                assert_eq!(body["spec"]["audiences"], json!([AUDIENCE]));
                let mut answer = body.clone();
                answer["status"] = review(body["spec"]["token"].as_str().unwrap());
                (201, answer)
            }
        }
    });
    (client, asked)
}

fn review(token: &str) -> Value {
    let extra = match token {
        "person" => json!({}),
        _ => json!({
            "authentication.kubernetes.io/pod-name": [token],
            "authentication.kubernetes.io/pod-uid": [token],
        }),
    };
    let known = token.starts_with("pod-") || token == "person";
    json!({"authenticated": known, "audiences": [AUDIENCE],
        "user": {"username": "system:serviceaccount:team:default", "extra": extra}})
}

fn pod_of(name: &str) -> Value {
    let job = name.strip_prefix("pod-").unwrap();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team", "uid": name,
        "labels": {"hone.dev/compilation-uid": "run"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}]},
        "spec": {}, "status": {"phase": "Running"}})
}

fn job(name: &str, purpose: &str, ended: bool) -> SeenJob {
    let conditions = match ended {
        true => json!([{"type": "Complete", "status": "True"}]),
        false => json!([]),
    };
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "team", "uid": name,
        "labels": {"hone.dev/purpose": purpose},
        "ownerReferences": [{"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun", "name": "digits",
            "uid": "run", "controller": true}]},
        "spec": {}, "status": {"conditions": conditions}}))
    .unwrap()
}

/// A served receiver, and what it fills once it leads.
async fn serve(client: Client) -> (Receiver, String) {
    let receiver = Receiver::new(client);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    tokio::spawn(endpoints::progress_server(address, receiver.clone()).await.unwrap());
    (receiver, format!("http://{address}/progress"))
}

async fn lead(receiver: &Receiver, fence: &Arc<Fence>) -> (Arc<Posts>, Arc<WorkQueue>) {
    let (posts, queue): (Arc<Posts>, Arc<WorkQueue>) = Default::default();
    let cache = Arc::new(Cache::default());
    let all = [
        job("searches", "tune", false),
        job("done", "tune", true),
        job("measures", "measure", false),
    ];
    let events = futures::stream::iter(all.map(|job| Ok(Event::Apply(job))));
    let facts = |job: &SeenJob| jobs::facts(job, &["TuningRun"]);
    cache.follow("jobs", events, facts, |_, _| {}).await;
    receiver.lead(Leading {
        posts: Arc::clone(&posts),
        jobs: cache,
        queue: Arc::clone(&queue),
        fence: Arc::clone(fence),
    });
    (posts, queue)
}

async fn post(url: &str, token: Option<&str>, body: String) -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(url).body(body);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    request.send().await.unwrap().status().as_u16()
}

fn progress() -> Progress {
    Progress {
        measured: 12,
        failed: 1,
        used: 0.25,
        expected: 2_000_000,
        untuned: 3_000_000,
        revision: None,
        sessions: None,
    }
}

fn body() -> String {
    serde_json::to_string(&progress()).unwrap()
}

#[tokio::test]
async fn a_pod_that_searches_posts_for_its_run_alone() {
    let (client, asked) = api();
    let (receiver, url) = serve(client).await;
    // A replica that does not lead asks nobody.
    assert_eq!(post(&url, Some("pod-searches"), body()).await, 503);
    assert!(asked.lock().unwrap().is_empty());
    let fence = Arc::new(Fence::open());
    let (posts, queue) = lead(&receiver, &fence).await;
    assert_eq!(post(&url, None, body()).await, 401);
    assert_eq!(post(&url, Some("nobody's"), body()).await, 401);
    for other in ["person", "pod-gone", "pod-done", "pod-measures", "pod-unknown"] {
        assert_eq!(post(&url, Some(other), body()).await, 403, "{other}");
    }
    assert_eq!(post(&url, Some("pod-searches"), "{}".to_owned()).await, 400);
    assert_eq!(post(&url, Some("pod-searches"), " ".repeat(LARGEST + 1)).await, 413);
    assert_eq!(queue.depth("tuningrun"), 0);
    assert_eq!(post(&url, Some("pod-searches"), body()).await, 204);
    assert_eq!(posts.of("searches"), Some(progress()));
    let taken = queue.next().await.unwrap();
    assert_eq!((taken.key.namespace.as_str(), taken.key.name.as_str()), ("team", "digits"));
    // Whose the token is was asked once.
    let questions =
        asked.lock().unwrap().iter().filter(|path| path.ends_with("pod-searches")).count();
    assert_eq!(questions, 1);
    assert_eq!(post(&url, Some("pod-searches"), body()).await, 429);
    // Who leads no more takes nothing.
    fence.close();
    assert_eq!(post(&url, Some("pod-searches"), body()).await, 503);
}
