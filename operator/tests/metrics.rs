//! Metrics over TLS, for those alone whom a fake API server lets read them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hone_operator::endpoints::{self, Counted};
use hone_operator::metrics::Metrics;
use hone_operator::runtime::health::Health;
use hone_operator::secure::access::Gate;
use kube::Client;
use serde_json::{Value, json};

/// What the API server was asked, by kind.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that knows the tokens `reader` and `stranger`, and lets the reader read /metrics.
fn api() -> (Client, Asked) {
    let asked: Asked = Arc::default();
    let kept = Arc::clone(&asked);
    let client = common::client(move |_, uri, body| {
        let kind = uri.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
        kept.lock().unwrap().push((kind.clone(), body.clone()));
        let mut answer = body.clone();
        answer["status"] = match kind.as_str() {
            "tokenreviews" => match body["spec"]["token"].as_str().unwrap() {
                "broken" => return common::error(500, "no answer"),
                token @ ("reader" | "stranger") => json!({"authenticated": true, "user": {
                    "username": token, "uid": "7", "groups": ["system:authenticated"], "extra": {"a": ["b"]}}}),
                _ => json!({"authenticated": false}),
            },
            _ => json!({"allowed": body["spec"]["user"] == "reader"
                && body["spec"]["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"})}),
        };
        (201, answer)
    });
    (client, asked)
}

fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn counted() -> Counted {
    Counted { metrics: Metrics::new().unwrap(), queue: Arc::default() }
}

async fn serve(client: Client, folder: Option<PathBuf>) -> String {
    let address = free();
    let server = endpoints::secure_server(address, counted(), Gate::new(client), folder).await;
    tokio::spawn(server.unwrap());
    format!("https://localhost:{}/metrics", address.port())
}

/// A client that takes any certificate, or only those that `authority` signed.
fn reader(authority: Option<&str>) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy();
    match authority {
        Some(pem) => {
            let certificate = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
            builder.tls_certs_only([certificate]).build().unwrap()
        }
        None => builder.tls_danger_accept_invalid_certs(true).build().unwrap(),
    }
}

async fn get(url: &str, token: Option<&str>) -> (u16, String) {
    let mut request = reader(None).get(url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them() {
    let (client, asked) = api();
    let url = serve(client, None).await;
    assert_eq!(get(&url, None).await, (401, String::new()));
    assert!(asked.lock().unwrap().is_empty(), "nobody asks about no token");
    assert_eq!(get(&url, Some("nobody's")).await.0, 401);
    assert_eq!(get(&url, Some("stranger")).await.0, 403);
    assert_eq!(get(&url, Some("broken")).await.0, 503);
    let (code, text) = get(&url, Some("reader")).await;
    assert_eq!(code, 200);
    assert!(text.contains("hone_jobs_created_total"), "{text}");
    // The API server is told all that it knows of the user, and asked once while its answer counts.
    let questions = asked.lock().unwrap().len();
    let review = asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(review.0, "subjectaccessreviews");
    assert_eq!(review.1["spec"]["groups"], json!(["system:authenticated"]));
    assert_eq!(
        (&review.1["spec"]["uid"], &review.1["spec"]["extra"]),
        (&json!("7"), &json!({"a": ["b"]}))
    );
    assert_eq!(get(&url, Some("reader")).await.0, 200);
    assert_eq!(get(&url, Some("stranger")).await.0, 403);
    assert_eq!(asked.lock().unwrap().len(), questions);
}

/// No metric over plain HTTP, neither on the port of TLS nor beside the health.
#[tokio::test]
async fn nothing_is_told_in_plain() {
    let (client, _) = api();
    let secure = serve(client, None).await.replace("https", "http");
    let plain = reader(None).get(&secure).bearer_auth("reader").send().await;
    assert!(plain.is_err(), "{plain:?}");
    let address = free();
    let server = endpoints::server(address, Health::default(), None).await.unwrap();
    tokio::spawn(server);
    assert_eq!(get(&format!("http://{address}/metrics"), None).await.0, 404);
    let health = get(&format!("http://{address}/healthz"), None).await.0;
    assert!(matches!(health, 200 | 503), "{health}");
}

/// Somebody who connects and says nothing keeps no one else waiting.
#[tokio::test]
async fn silent_connections_block_nobody() {
    let (client, _) = api();
    let url = serve(client, None).await;
    let port: u16 = url.split([':', '/']).nth(4).unwrap().parse().unwrap();
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    assert_eq!(get(&url, Some("reader")).await.0, 200);
}

fn write(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

#[tokio::test]
async fn the_certificate_is_that_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let pem = write(folder.path());
    let (client, _) = api();
    let url = serve(client.clone(), Some(folder.path().to_owned())).await;
    let answer = reader(Some(&pem)).get(&url).bearer_auth("reader").send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    assert!(reader(Some(&other.cert.pem())).get(&url).send().await.is_err());

    std::fs::write(folder.path().join("tls.key"), "no key").unwrap();
    let folder = Some(folder.path().to_owned());
    let refused = endpoints::secure_server(free(), counted(), Gate::new(client), folder).await;
    let why = format!("{:#}", refused.err().unwrap());
    assert!(why.contains("tls.key"), "{why}");
}
