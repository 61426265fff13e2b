//! A search that publishes what it has found while it goes on: the artifact without tuning, the revision in its place, and
//! what the log, the store and the status say of both.
//!
//! The network is one for which the analytic model's schedules take several times what a search finds within a few rounds:
//! a transposed convolution in groups, a normalization over channels and a pool of large windows. Three programs, so that
//! the test needs another network only when none of them can be made 2 % faster any more; it says so then.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Context, eventually, product};
use serde_json::{Value, json};

use crate::improved::{condition, trials};
use crate::onnx::Attribute::{Integer, Integers};
use crate::onnx::Graph;
use crate::tuning::shared_pool;
use crate::{LONG, SOON, finished, hone, prepare};

/// The network as an ONNX file.
fn slow_without_tuning() -> Vec<u8> {
    let mut graph = Graph::default();
    graph.input("x", &[1, 10, 16, 16]);
    // Weights of both signs that repeat nowhere near.
    let weights = (0..10 * 7 * 5 * 5).map(|place| (place * 37 % 101) as f32 / 101.0 - 0.5);
    graph.constant("w", &[10, 7, 5, 5], weights);
    let stride = [Integers("strides", &[3, 3]), Integer("group", 2)];
    graph.node("larger", "ConvTranspose", &["x", "w"], &stride);
    graph.node("normalized", "LRN", &["larger"], &[Integer("size", 5)]);
    graph.output("normalized", &[1, 14, 50, 50]);
    let windows = [Integers("kernel_shape", &[13, 13]), Integers("pads", &[6; 4])];
    graph.node("mean", "AveragePool", &["x"], &windows);
    graph.output("mean", &[1, 10, 16, 16]);
    graph.file()
}

/// A compilation `slow` of that network, with more trials than will be done.
fn compilation(context: &Context<'_>, pool: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), slow_without_tuning())?;
    let key = format!("models/{}.onnx", context.namespace);
    product::upload(context.cluster, file.path(), &key)?;
    let namespace = &context.namespace;
    Ok(format!(
        "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: slow}}
spec:
  model: {{uri: 's3://{key}', credentialsSecretRef: {{name: store}}}}
  targets: [{{name: main, pool: {pool}, platform: {{os: linux, arch: amd64, cpu: host}}}}]
  tuning: {{maxTrials: 20000}}
  output: {{uri: 's3://artifacts/{namespace}', credentialsSecretRef: {{name: store}}, deletionPolicy: Delete}}
  worker: {{resources: {{requests: {{cpu: 250m}}}}}}
"
    ))
}

/// The target before the search has ended, once it is published without tuning.
fn published_first(context: &Context<'_>) -> Result<Value> {
    eventually("an artifact without tuning", LONG, || {
        let object = context.kubectl.json("modelcompilation/slow")?;
        let has_ended = condition(&object, "Finished").0 == "True";
        ensure!(!has_ended, "it ended unseen: {}", object["status"]);
        let is_ready = condition(&object, "Ready") == ("True".to_owned(), "Tuning".to_owned());
        Ok(is_ready.then(|| object["status"]["targets"][0].clone()))
    })
}

/// The target with a revision, and whether the search went on then: it does but where it found everything before the
/// revision was compiled, and `Ready` stays true in any case.
fn revised(context: &Context<'_>) -> Result<(Value, bool)> {
    eventually("a revision", LONG, || {
        let object = context.kubectl.json("modelcompilation/slow")?;
        ensure!(condition(&object, "Ready").0 == "True", "{}", object["status"]);
        let target = object["status"]["targets"][0].clone();
        let is_revised = target["tuning"]["revision"].as_i64() > Some(1);
        let has_ended = condition(&object, "Finished").0 == "True";
        ensure!(is_revised || !has_ended, "nothing was found, take a slower network: {target}");
        Ok(is_revised.then_some((target, !has_ended)))
    })
}

/// The artifact of a target, downloaded: right by the reference.
fn right(context: &Context<'_>, target: &Value, file: &Path, model: &Path) -> Result<()> {
    ensure!(target["correctness"]["passed"] == true, "{target}");
    let uri = target["artifact"]["uri"].as_str().context("no uri")?;
    product::download(context.cluster, uri, file)?;
    let [file, model] = [file, model].map(|path| path.to_string_lossy().into_owned());
    hone(context, &["verify", &file, "--model", &model]).map(drop)
}

fn nanoseconds(time: &Value) -> Result<f64> {
    let text = time.as_str().with_context(|| format!("{time} is no time"))?;
    let digits = text.find(|letter: char| letter.is_ascii_alphabetic() || letter == 'µ');
    let (number, unit) = text.split_at(digits.context("no unit")?);
    let unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        other => anyhow::bail!("another unit: {other}"),
    };
    Ok(number.parse::<f64>()? * unit)
}

/// The programs whose schedules won, by the log of `run` as it lies in the store.
fn winners(context: &Context<'_>, run: &str) -> Result<BTreeSet<String>> {
    let log = context.kubectl.json(&format!("tuningrun/{run}"))?["spec"]["log"]["uri"].clone();
    let log = log.as_str().context("a run without a log")?.to_owned();
    let file = tempfile::NamedTempFile::new()?;
    let mut programs = BTreeSet::new();
    for number in 1.. {
        let uri = format!("{log}/segments/{number:08}.jsonl");
        if !product::stored(context.cluster, &uri)? {
            break;
        }
        product::download(context.cluster, &uri, file.path())?;
        for line in fs::read_to_string(file.path())?.lines() {
            let record: Value = serde_json::from_str(line)?;
            let won = record["kind"] == "winner";
            programs.extend(won.then(|| record["program"].to_string()));
        }
    }
    Ok(programs)
}

/// Waits for the event of a revision that was published while `run` went on.
fn told(context: &Context<'_>, run: &str) -> Result<()> {
    let lines = r#"jsonpath={range .items[*]}{.reason}: {.note}{.message}{"\n"}{end}"#;
    eventually("the event of the revision", SOON, || {
        let events = context.kubectl.run(&["get", "events", "-o", lines])?;
        let told = events.lines().any(|event| event.starts_with("Revised") && event.contains(run));
        Ok(told.then_some(()))
    })
}

/// The network without tuning at once, the revision while the search goes on, and its end and deletion.
pub fn a_search_publishes_a_revision(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let pool = shared_pool(context)?;
    context.kubectl.apply(&compilation(context, &pool)?)?;
    let first = published_first(context)?;
    ensure!(first["tuned"] != true && first["tuning"]["revision"].is_null(), "{first}");
    let (revision, goes_on) = revised(context)?;
    ensure!(revision["tuned"] == true, "{revision}");
    let uri = |target: &Value| target["artifact"]["uri"].as_str().unwrap_or_default().to_owned();
    ensure!(uri(&first) != uri(&revision), "{revision}");

    // The run measured the gain in turn; what both compilations measured alone tells the same.
    let run = revision["tuningRunRef"]["name"].as_str().context("no run")?.to_owned();
    let best = context.kubectl.json(&format!("tuningrun/{run}"))?["status"]["best"].clone();
    let (tuned, untuned) = (nanoseconds(&best["latency"])?, nanoseconds(&best["untuned"])?);
    println!("a revision: {best}, {} to {}", first["latency"]["p50"], revision["latency"]["p50"]);
    ensure!(tuned <= 0.98 * untuned, "{best}");
    let p50 = |target: &Value| nanoseconds(&target["latency"]["p50"]);
    ensure!(p50(&revision)? <= p50(&first)?, "{} to {}", first["latency"], revision["latency"]);
    ensure!(!winners(context, &run)?.is_empty(), "a revision without a winner in the log");
    if goes_on {
        told(context, &run)?;
    }

    let folder = tempfile::tempdir()?;
    let model = folder.path().join("model.onnx");
    fs::write(&model, slow_without_tuning())?;
    right(context, &first, &folder.path().join("first.hone"), &model)?;
    right(context, &revision, &folder.path().join("revision.hone"), &model)?;

    // The search is told to end, and what was published before goes as the policy says: with the object.
    let enough = json!({"spec": {"tuning": {"maxTrials": trials(context, &run)?.max(1)}}});
    let patch = ["patch", "modelcompilation", "slow", "--type=merge", "-p", &enough.to_string()];
    context.kubectl.run(&patch)?;
    let status = finished(context, "slow", LONG)?;
    ensure!(status["phase"] == "Succeeded", "{status}");
    let last = &status["targets"][0];
    ensure!(last["tuned"] == true && last["tuning"]["revision"].as_i64() >= Some(2), "{last}");
    let superseded = status["superseded"].to_string();
    ensure!(superseded.contains(&uri(&first)), "{superseded}");
    context.kubectl.run(&["delete", "modelcompilation", "slow"])?;
    for gone in [uri(&first), uri(&revision), uri(last)] {
        ensure!(!product::stored(context.cluster, &gone)?, "{gone} is left");
    }
    context.kubectl.run(&["delete", "devicepool", &pool]).map(drop)
}
