//! `cargo xtask trials`: one tuning run of many trials over many simulated sessions. What is real is the control plane, the
//! operator, the store and the pod that searches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, Kubectl, eventually, product};
use serde_json::Value;

use crate::scale::Metrics;
use crate::{models, repository, tuning_log};

mod sessions;

use sessions::Sessions;

/// Name of the run, of its pool and of its folders.
const NAME: &str = "trials";
/// Time between two looks at the run.
const LOOK: Duration = Duration::from_secs(5);
/// Longest time that a session may take to announce itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `trials`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Trials of the run.
    #[arg(long, default_value_t = 100_000)]
    trials: usize,
    /// Simulated sessions.
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// The model, of `tests/models/zoo.py`.
    #[arg(long, default_value = "resnet50")]
    model: String,
    /// The strategy: Evolutionary, or another one of `spec.search.strategy`.
    #[arg(long, default_value = "Evolutionary")]
    strategy: String,
    /// Milliseconds that a session takes for a round of 16 candidates.
    #[arg(long, default_value_t = 1000)]
    round: u64,
    /// Longest time of the run, in seconds.
    #[arg(long, default_value_t = 7200)]
    limit: u64,
}

/// Runs the suite, prints its figures, and judges the log.
pub fn run(arguments: &Arguments) -> Result<()> {
    models::export(std::slice::from_ref(&arguments.model))?;
    let model = repository::scratch().join(format!("models/{}.onnx", arguments.model));
    let cluster = Cluster::start(&product::options()?)?;
    product::install(&cluster)?;
    product::store_secret(&cluster, cluster.kubectl())?;
    product::upload(&cluster, &model, "models/model.onnx")?;
    let artifacts = cluster.directory().join("s3/artifacts");
    let hone = product::shipped("hone");
    let sessions = Sessions {
        folder: artifacts.join(format!("sessions/pools/{NAME}")),
        count: arguments.sessions,
        round: Duration::from_millis(arguments.round),
        target: announced_target(&hone)?,
        hone,
    };
    let (ended, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| sessions.run(&ended, &answered));
        let done = measure(&cluster, arguments, &artifacts, &answered);
        ended.store(true, Ordering::Relaxed);
        let answers = answers.join().unwrap_or_else(|_| bail!("the sessions panicked"));
        answers.and(done)
    })
}

/// Makes the run, looks at it until it is finished, and prints what was seen.
fn measure(
    cluster: &Cluster,
    arguments: &Arguments,
    artifacts: &Path,
    answered: &AtomicUsize,
) -> Result<()> {
    let kubectl = cluster.kubectl();
    let before = writes(kubectl)?;
    let begin = Instant::now();
    kubectl.apply(&objects(arguments))?;
    let mut largest = 0;
    let status = loop {
        std::thread::sleep(LOOK);
        let status = kubectl.json(&format!("tuningrun/{NAME}"))?["status"].clone();
        largest = largest.max(status.to_string().len());
        let took = begin.elapsed().as_secs_f64();
        let measured = status["trials"]["measured"].as_u64().unwrap_or_default();
        println!(
            "{took:6.0} s  {} {measured} trials in the status, {} answered",
            status["phase"].as_str().unwrap_or("no phase"),
            answered.load(Ordering::Relaxed)
        );
        if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
            break status;
        }
        ensure!(took < arguments.limit as f64, "not finished within {} s", arguments.limit);
    };
    let took = begin.elapsed().as_secs_f64();
    let writes = writes(kubectl)? - before;
    ensure!(status["phase"] == "Succeeded", "{}", status["failure"]);
    let segments = tuning_log::segments(&artifacts.join(NAME))?;
    let trials = tuning_log::judge(&segments, &status)?;
    let bytes: usize = segments.iter().map(|(_, bytes)| bytes.len()).sum();
    println!(
        "\ntrials        {trials} on {} sessions in {took:.0} s: {:.0} /s",
        arguments.sessions,
        trials as f64 / took
    );
    println!(
        "log           {} segments, {:.1} MiB; no trial lost, none twice",
        segments.len(),
        bytes as f64 / f64::from(1 << 20)
    );
    println!("status        {} bytes at most", largest);
    println!(
        "API writes    {writes:.0} to objects of Hone's kinds, one for {:.0} trials",
        trials as f64 / writes.max(1.0)
    );
    ensure!(trials == arguments.trials, "{trials} of {}", arguments.trials);
    ensure!(largest < 16 << 10, "the status has {} bytes", largest);
    Ok(())
}

/// Requests so far that change an object of Hone's kinds, as the API server counts them.
fn writes(kubectl: &Kubectl) -> Result<f64> {
    let metrics = Metrics::of(kubectl.run(&["get", "--raw", "/metrics"])?);
    let ours = metrics.samples("apiserver_request_total").filter(|sample| {
        sample.label("group") == Some("hone.dev")
            && matches!(sample.label("verb"), Some("POST" | "PUT" | "PATCH" | "APPLY" | "DELETE"))
    });
    Ok(ours.map(|sample| sample.value).sum())
}

/// What a session of this machine says it runs code for.
fn announced_target(hone: &Path) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut session = Command::new(hone)
        .args(["session", "--target", "linux/amd64", "--name", "here", "--idle", "2s", "--fleet"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let path: PathBuf = folder.path().join("sessions/here.json");
    let text = eventually("a session's announcement", PATIENCE, || Ok(fs::read(&path).ok()));
    session.wait()?;
    let announcement: Value = serde_json::from_slice(&text?)?;
    Ok(announcement["target"].as_str().context("no target is announced")?.to_owned())
}

/// The pool of the sessions, and the run.
fn objects(arguments: &Arguments) -> String {
    let Arguments { trials, strategy, .. } = arguments;
    let secret = "credentialsSecretRef: {name: store}";
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: DevicePool
metadata: {{name: {NAME}}}
spec:
  kind: External
  platform: {{os: linux, arch: amd64}}
  sessions: {{uri: 's3://artifacts/sessions', {secret}}}
---
apiVersion: hone.dev/v1alpha1
kind: TuningRun
metadata: {{name: {NAME}}}
spec:
  model: {{uri: 's3://models/model.onnx', {secret}}}
  target: {{os: linux, arch: amd64}}
  pool: {NAME}
  search: {{strategy: {strategy}, seed: 1}}
  stop: {{maxTrials: {trials}, noImprovementTrials: {trials}}}
  log: {{uri: 's3://artifacts/{NAME}', {secret}}}
"
    )
}
