//! What a worker does in an object store, on servers that speak S3 and Azure Blob Storage: artifacts are stored
//! once, shared by owners that come and go at once, and deleted with the last.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, product, repository};
use serde_json::{Value, json};

/// Azurite's well-known account.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A store, as a user of Hone names it.
struct Store {
    /// The folder for artifacts.
    uri: String,
    /// What the Secret would hold.
    options: Vec<(&'static str, String)>,
    /// What the administrator allows.
    allow: String,
}

fn host(endpoint: &str) -> &str {
    let address = endpoint.split("://").last().unwrap_or_default();
    address.split(['/', ':']).next().unwrap_or_default()
}

fn s3(context: &Context<'_>) -> Result<Store> {
    let endpoint = context.cluster.variable("HONE_S3_ENDPOINT")?;
    Ok(Store {
        uri: format!("s3://artifacts/{}", context.namespace),
        allow: format!("s3://artifacts@{}", host(&endpoint)),
        options: vec![
            ("AWS_ENDPOINT", endpoint),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", context.cluster.variable("HONE_S3_ACCESS_KEY")?),
            ("AWS_SECRET_ACCESS_KEY", context.cluster.variable("HONE_S3_SECRET_KEY")?),
        ],
    })
}

fn azure(context: &Context<'_>) -> Result<Store> {
    let endpoint = context.cluster.variable("HONE_AZURE_ENDPOINT")?;
    let container = &context.namespace;
    let script = repository().join("tests/cluster/azure-container.js");
    let made = Command::new("node")
        .arg(script)
        .args([&endpoint, ACCOUNT, ACCOUNT_KEY, container])
        .output()
        .context("cannot run node")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(Store {
        uri: format!("az://{container}/artifacts"),
        allow: format!("az://{container}@{}", host(&endpoint)),
        options: vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.into()),
            ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.into()),
            ("AZURE_STORAGE_ENDPOINT", format!("{endpoint}/{ACCOUNT}")),
            ("AZURE_ALLOW_HTTP", "true".into()),
        ],
    })
}

/// What `hone worker` does with a piece of work for the compilation `uid`, in a folder of its own.
fn worker(store: &Store, folder: &Path, uid: &str, work: &Value) -> Result<Output> {
    let scratch = folder.join(uid);
    std::fs::create_dir_all(&scratch)?;
    let request = json!({
        "version": 1,
        "subject": {"namespace": "stores", "name": uid, "uid": uid},
        "work": work,
    });
    Command::new(product::shipped("hone"))
        .args(["worker", "--threads", "1", "--file-root"])
        .arg(repository().join("examples/digits"))
        .arg("--termination")
        .arg(scratch.join("termination"))
        .arg("--scratch")
        .arg(&scratch)
        .env("HONE_REQUEST", request.to_string())
        .env("HONE_FETCH_ALLOW", &store.allow)
        .envs(store.options.iter().map(|(name, value)| (name, value)))
        .output()
        .context("cannot run hone")
}

fn compile(store: &Store, folder: &Path, uid: &str) -> Result<Output> {
    let work = json!({
        "kind": "compile",
        "model": {"uri": format!("file://{}", repository().join("examples/digits/digits.onnx").display())},
        "target": {"name": "main", "os": "linux", "arch": "amd64"},
        "precision": ["f32"],
        "tuning": {"policy": "Never"},
        "correctness": {"rtol": 1e-3, "atol": 1e-4},
        "output": {"uri": store.uri},
    });
    worker(store, folder, uid, &work)
}

/// The artifact of a compilation that succeeded.
fn artifact(folder: &Path, uid: &str, output: &Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{uid}: {said}");
    let text = std::fs::read_to_string(folder.join(uid).join("termination"))?;
    let termination: Value = serde_json::from_str(&text)?;
    let uri = termination.pointer("/artifact/uri").and_then(Value::as_str);
    Ok(uri.with_context(|| format!("no artifact in {text}"))?.to_owned())
}

/// Gives up what a compilation owns; what the worker said.
fn delete(store: &Store, folder: &Path, uid: &str, uri: &str) -> Result<String> {
    let work = json!({"kind": "delete", "uris": [uri], "folder": store.uri});
    let output = worker(store, folder, uid, &work)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{uid}: {said}");
    Ok(said)
}

/// Whether an artifact is there: a compilation of it as a model gets as far as to find that it is none.
fn is_stored(store: &Store, folder: &Path, uri: &str) -> Result<bool> {
    let work = json!({
        "kind": "compile",
        "model": {"uri": uri},
        "target": {"name": "probe", "os": "linux", "arch": "amd64"},
        "precision": ["f32"],
        "tuning": {"policy": "Never"},
        "correctness": {"rtol": 1e-3},
        "output": {"uri": store.uri},
    });
    let output = worker(store, folder, "probe", &work)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match (said.contains("NotFound"), said.contains("InvalidModel")) {
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        _ => Err(anyhow::anyhow!("reading {uri}: {said}")),
    }
}

/// Several compilations of equal work at once, which go one after the other.
fn owners_come_and_go(store: &Store) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let uids = ["one", "two", "three"];
    let outputs: Vec<Output> = thread::scope(|scope| {
        let workers = uids.map(|uid| scope.spawn(move || compile(store, folder, uid)));
        let ended = workers.into_iter().map(|worker| worker.join());
        ended
            .map(|ended| ended.map_err(|_| anyhow::anyhow!("a thread panicked"))?)
            .collect::<Result<_>>()
    })?;
    let artifacts: Vec<String> = uids
        .iter()
        .zip(&outputs)
        .map(|(uid, output)| artifact(folder, uid, output))
        .collect::<Result<_>>()?;
    let uri = &artifacts[0];
    ensure!(artifacts.iter().all(|other| other == uri), "{artifacts:?}");
    for (gone, uid) in uids.iter().enumerate() {
        ensure!(is_stored(store, folder, uri)?, "{uri} went before {uid} gave it up");
        let said = delete(store, folder, uid, uri)?;
        let last = gone + 1 == uids.len();
        ensure!(is_stored(store, folder, uri)? != last, "after {uid}: {said}");
    }
    // Whoever comes later stores it anew.
    let output = compile(store, folder, "four")?;
    ensure!(artifact(folder, "four", &output)? == *uri);
    ensure!(is_stored(store, folder, uri)?, "{uri} was not stored again");
    Ok(())
}

/// A wrong key, and a bucket that is not there: each its own reason, and nothing that the server said.
fn refusals_are_told_apart(store: &Store, wrong: &[(&'static str, &str)]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let refused = |options: Vec<(&'static str, String)>, uri: String| -> Result<String> {
        let other = Store { uri, options, allow: host_allowed(&store.allow) };
        let output = compile(&other, folder.path(), "refused")?;
        ensure!(!output.status.success(), "it was stored");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let absent = store.uri.replacen("://", "://absent-", 1);
    let said = refused(store.options.clone(), absent)?;
    ensure!(said.contains("error[NotFound]"), "an absent bucket: {said}");
    ensure!(!said.contains("<?xml") && !said.contains("<Error>"), "{said}");
    let mut options = store.options.clone();
    for (name, value) in wrong {
        options.retain(|(other, _)| other != name);
        options.push((name, (*value).to_owned()));
    }
    let said = refused(options, store.uri.clone())?;
    ensure!(wrong.is_empty() || said.contains("error[AccessDenied]"), "a wrong key: {said}");
    Ok(())
}

/// The address alone: whatever bucket.
fn host_allowed(entry: &str) -> String {
    entry.split('@').next_back().unwrap_or_default().to_owned()
}

fn main() {
    let options = ClusterOptions { s3: true, azure: true, ..ClusterOptions::default() };
    Suite::new("stores", options)
        .needs(&[Capability::Plane, Capability::S3, Capability::Azure])
        .test("s3_owners_come_and_go", |context| owners_come_and_go(&s3(context)?))
        .test("azure_owners_come_and_go", |context| owners_come_and_go(&azure(context)?))
        .test("s3_refusals_are_told_apart", |context| {
            refusals_are_told_apart(&s3(context)?, &[("AWS_SECRET_ACCESS_KEY", "wrong")])
        })
        .test("azure_refusals_are_told_apart", |context| {
            refusals_are_told_apart(&azure(context)?, &[("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")])
        })
        .main();
}
