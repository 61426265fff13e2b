//! Tuning runs: searched on the node, killed, suspended, edited and resumed, and no trial is lost or counted twice.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::product::{self, SYSTEM};
use hone_cluster_tests::{Context, eventually, repository};
use serde_json::{Value, json};

use crate::{LONG, SOON, prepare};

/// Where a test's log lies.
pub fn log(context: &Context<'_>) -> String {
    format!("s3://artifacts/{}/tuning", context.namespace)
}

/// `examples/kubernetes/tuning.yaml` under another name, with its own log and another end.
pub fn example(context: &Context<'_>, name: &str, stop: &str) -> Result<String> {
    let path = repository().join("examples/kubernetes/tuning.yaml");
    let text = fs::read_to_string(path)?.replace("  name: digits\n", &format!("  name: {name}\n"));
    let text = text.replace("s3://artifacts/tuning/digits", &log(context));
    let (before, rest) = text.split_once("  stop:\n").context("no stop")?;
    let after = rest.find("  log:\n").context("no log")?;
    // Random candidates need no time for learning.
    let before = before.replace("Evolutionary", "Random");
    Ok(format!("{before}  stop: {stop}\n{}", &rest[after..]))
}

fn patch(context: &Context<'_>, name: &str, patch: &Value) -> Result<()> {
    let object = format!("tuningrun/{name}");
    context.kubectl.run(&["patch", &object, "--type=merge", "-p", &patch.to_string()]).map(drop)
}

fn segment(context: &Context<'_>, number: usize) -> String {
    format!("{}/segments/{number:08}.jsonl", log(context))
}

/// The text of every segment, in order.
fn segments(context: &Context<'_>) -> Result<Vec<String>> {
    let file = tempfile::NamedTempFile::new()?;
    let mut texts = Vec::new();
    while product::stored(context.cluster, &segment(context, texts.len() + 1))? {
        product::download(context.cluster, &segment(context, texts.len() + 1), file.path())?;
        texts.push(fs::read_to_string(file.path())?);
    }
    Ok(texts)
}

/// The candidates of the trials in segments, one for each trial.
fn trials(segments: &[String]) -> Result<Vec<String>> {
    let records = segments.iter().flat_map(|text| text.lines());
    let records: Vec<Value> =
        records.map(serde_json::from_str).collect::<std::result::Result<_, _>>()?;
    let trials = records.iter().filter(|record| record["kind"] == "trial");
    let candidate =
        |record: &Value| json!([record["program"], record["template"], record["decisions"]]);
    Ok(trials.map(|record| candidate(record).to_string()).collect())
}

/// The candidates of the trials in the log, one for each trial.
pub fn trials_of(context: &Context<'_>) -> Result<Vec<String>> {
    trials(&segments(context)?)
}

/// Waits until there are more segments than `count`.
fn more_segments(context: &Context<'_>, count: usize) -> Result<()> {
    let next = segment(context, count + 1);
    eventually("another segment of the log", LONG, || {
        Ok(product::stored(context.cluster, &next)?.then_some(()))
    })
}

/// The status of a run.
pub fn status(context: &Context<'_>, name: &str) -> Result<Value> {
    Ok(context.kubectl.json(&format!("tuningrun/{name}"))?["status"].clone())
}

fn in_phase(context: &Context<'_>, name: &str, phase: &str) -> Result<Value> {
    eventually(&format!("phase {phase}"), LONG, || {
        let status = status(context, name)?;
        Ok((status["phase"] == phase).then_some(status))
    })
}

/// Who holds a device.
fn holder(context: &Context<'_>, device: &str) -> Result<String> {
    let lease = format!("lease/{device}");
    context.cluster.kubectl().in_namespace(SYSTEM).text(&lease, "{.spec.holderIdentity}")
}

/// A run from end to end: measured on a leased node, its pod killed, suspended, resumed with another end, and finished.
pub fn a_run_survives_kill_suspension_and_edit(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "digits", "{maxTrials: 100000, maxDuration: 1h}")?)?;
    let running = in_phase(context, "digits", "Running")?;
    let device = running["workers"][0]["device"].as_str().context("no device")?.to_owned();
    let holder_is_ours = holder(context, &device)?.starts_with(&context.namespace);
    ensure!(holder_is_ours, "{device} is not the run's");
    more_segments(context, 0)?;
    // What its pod posts is shown while it searches, and by nothing but its posts.
    let posted = eventually("progress in status", SOON, || {
        let status = status(context, "digits")?;
        let measured = status["trials"]["measured"].as_u64().unwrap_or_default();
        Ok((measured > 0 && status["progress"]["expected"].is_string()).then_some(status))
    })?;
    ensure!(posted["phase"] == "Running" && posted["best"].is_null(), "{posted}");
    println!("while it searches: {} {}", posted["trials"], posted["progress"]);

    // The pod's process is killed; the Job's next pod goes on from the log.
    let pods = "{.items[?(@.status.phase==\"Running\")].metadata.name}";
    let pod = context.kubectl.text("pods", pods)?;
    product::container(context.cluster, &pod, "worker", "kill -s SIGKILL")?;
    let before = segments(context)?;
    more_segments(context, before.len())?;

    // Suspended, it gives its device back, and keeps everything.
    patch(context, "digits", &json!({"spec": {"suspend": true}}))?;
    let suspended = in_phase(context, "digits", "Suspended")?;
    ensure!(suspended["progress"].is_null(), "{suspended}");
    eventually("pods and lease to go", SOON, || {
        let pods = context.kubectl.text("pods", "{.items[*].metadata.name}")?;
        let free = !holder(context, &device)?.starts_with(&context.namespace);
        Ok((pods.is_empty() && free).then_some(()))
    })?;
    let kept = segments(context)?;
    ensure!(kept.starts_with(&before), "a segment changed");
    let most = trials(&kept)?.len() + 20;

    // Resumed with another end, it measures what is left.
    let stop = json!({"maxTrials": most});
    patch(context, "digits", &json!({"spec": {"suspend": false, "stop": stop}}))?;
    context.kubectl.wait("tuningrun/digits", "Finished", LONG)?;
    let done = status(context, "digits")?;
    ensure!(done["phase"] == "Succeeded", "{done}");
    let all = segments(context)?;
    ensure!(all.starts_with(&kept), "a segment changed");
    let found = trials(&all)?;
    let once: BTreeSet<&String> = found.iter().collect();
    ensure!(found.len() == most && once.len() == most, "{} of {most} trials", found.len());
    let count = |field: &str| done["trials"][field].as_u64().unwrap_or_default() as usize;
    ensure!(count("measured") + count("failed") == most, "{}", done["trials"]);
    ensure!(done["ended"] == "all trials are done", "{}", done["ended"]);
    for field in ["/best/latency", "/best/untuned", "/fingerprint", "/modelDigest"] {
        let value = done.pointer(field).and_then(Value::as_str).unwrap_or_default();
        ensure!(!value.is_empty(), "status has no {field}: {done}");
    }
    ensure!(done["checkpoint"]["segment"] == all.len(), "{}", done["checkpoint"]);
    let last = all.last().context("no segment")?;
    ensure!(done["checkpoint"]["digest"] == sha256(last)?, "{}", done["checkpoint"]);
    println!("tuned: {} trials, {}", most, done["best"]);
    compiled_with_the_log(context)?;
    deleted(context, all.len())
}

/// A compilation takes the schedules that won, and nothing else of the run.
fn compiled_with_the_log(context: &Context<'_>) -> Result<()> {
    let records = format!("{{uri: {}, credentialsSecretRef: {{name: store}}}}", log(context));
    let tuning = format!("  tuning: {{policy: Never, records: {records}}}\n");
    let yaml = super::example(context, "tuned")?;
    context.kubectl.apply(&format!("{}\n{tuning}", yaml.trim_end()))?;
    super::succeeded(context, "tuned")?;
    // Without its segments a log is none.
    let nothing = tuning.replace(&log(context), &format!("{}-of-nobody", log(context)));
    let yaml = super::example(context, "untuned")?;
    context.kubectl.apply(&format!("{}\n{nothing}", yaml.trim_end()))?;
    let status = super::finished(context, "untuned", LONG)?;
    let failure = &status["failure"];
    ensure!(failure["reason"] == "NotFound", "{failure}");
    context.kubectl.run(&["delete", "modelcompilation", "tuned", "untuned"]).map(drop)
}

/// Deletion takes Jobs and pods along, and leaves the log.
fn deleted(context: &Context<'_>, segments: usize) -> Result<()> {
    context.kubectl.run(&["delete", "tuningrun", "digits"])?;
    eventually("Jobs to go", SOON, || {
        let jobs = context.kubectl.text("jobs", "{.items[*].metadata.name}")?;
        Ok(jobs.is_empty().then_some(()))
    })?;
    let left = product::stored(context.cluster, &segment(context, segments))?;
    ensure!(left, "the log went with the run");
    Ok(())
}

fn sha256(text: &str) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    let output = Command::new("sha256sum").arg(file.path()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let digest = text.split(' ').next().context("no digest")?;
    Ok(format!("sha256:{digest}"))
}

/// A pool whose workers share the node, so that a cluster of one node has a device for everybody.
pub fn shared_pool(context: &Context<'_>) -> Result<String> {
    let name = format!("shared-{}", context.namespace);
    context.kubectl.apply(&format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: DevicePool, metadata: {{name: {name}}}, spec: {{kind: CPU, \
          nodeSelector: {{kubernetes.io/arch: amd64}}, exclusivity: Shared}}}}"
    ))?;
    Ok(name)
}

/// A run on two devices: its session joins, its session's pod is killed, and still every trial counts once.
pub fn sessions_measure_for_a_run(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let pool = shared_pool(context)?;
    let yaml = example(context, "digits", "{maxTrials: 400}")?;
    let wanted = format!(
        "  pool: {pool}\n  parallelDevices: 2\n  worker: {{resources: {{requests: {{cpu: 250m}}}}}}\n"
    );
    context.kubectl.apply(&yaml.replace("  pool: amd64\n", &wanted))?;
    let running = eventually("a session at work", LONG, || {
        let status = status(context, "digits")?;
        let workers = status["workers"].as_array().map_or(0, Vec::len);
        ensure!(status["phase"] != "Succeeded", "the run ended without a session");
        Ok((workers == 2).then_some(status))
    })?;
    let names = [0, 1].map(|index| running["workers"][index]["name"].as_str().unwrap_or_default());
    let [tuner, session] = names.map(str::to_owned);
    let joined = format!("{}/fleet/sessions/{session}.json", log(context));
    eventually("the session to join", LONG, || {
        Ok(product::stored(context.cluster, &joined)?.then_some(()))
    })?;
    let selector = format!("--selector=batch.kubernetes.io/job-name={session}");
    let of_session = ["get", "pods", &selector, "-o", "jsonpath={.items[0].metadata.name}"];
    let pod = context.kubectl.run(&of_session)?;
    product::container(context.cluster, &pod, "worker", "kill -s SIGKILL")?;

    context.kubectl.wait("tuningrun/digits", "Finished", LONG)?;
    let done = status(context, "digits")?;
    ensure!(done["phase"] == "Succeeded", "{done}");
    let found = trials(&segments(context)?)?;
    let once: BTreeSet<&String> = found.iter().collect();
    ensure!(once.len() == found.len(), "{} of {} trials", once.len(), found.len());
    let count = |field: &str| done["trials"][field].as_u64().unwrap_or_default() as usize;
    ensure!(count("measured") + count("failed") == found.len(), "{}", done["trials"]);
    let said = context.kubectl.run(&["logs", &format!("job/{tuner}")])?;
    let by = said.lines().find(|line| line.contains("measured by")).context("one device")?;
    ensure!(by.contains(&session), "{by}");
    println!("{by}");
    // Nothing of the sessions stays.
    eventually("the session's Job to go", SOON, || {
        let jobs = context.kubectl.text("jobs", "{.items[*].metadata.name}")?;
        Ok((!jobs.contains("session")).then_some(()))
    })?;
    starts_warm(context, &pool)?;
    context.kubectl.run(&["delete", "devicepool", &pool]).map(drop)
}

/// Another run of the namespace learns from the log of `digits`.
fn starts_warm(context: &Context<'_>, pool: &str) -> Result<()> {
    let yaml = example(context, "second", "{maxTrials: 20}")?;
    let yaml = yaml.replace(&log(context), &format!("{}-second", log(context)));
    let yaml = yaml.replace("  pool: amd64\n", &format!("  pool: {pool}\n"));
    let yaml = yaml.replace("seed: 42", "seed: 42, warmStart: Namespace");
    context.kubectl.apply(&yaml)?;
    context.kubectl.wait("tuningrun/second", "Finished", LONG)?;
    let done = status(context, "second")?;
    ensure!(done["phase"] == "Succeeded", "{done}");
    let count = |field: &str| done["trials"][field].as_u64().unwrap_or_default();
    ensure!(count("measured") + count("failed") == 20, "{}", done["trials"]);
    let job = done["jobRef"]["name"].as_str().context("no Job")?;
    let said = context.kubectl.run(&["logs", &format!("job/{job}")])?;
    let segments = format!("segments of '{}'", log(context));
    ensure!(said.contains(&segments), "{said}");
    Ok(())
}

/// What a run cannot do is said at once, without a pod; what its pod finds wrong is said as of compilations.
pub fn runs_that_cannot_be_are_refused(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let stop = "{maxTrials: 10}";
    let with = |name: &str, from: &str, to: &str| -> Result<String> {
        let text = example(context, name, stop)?;
        ensure!(text.contains(from), "no '{from}' in the example");
        Ok(text.replace(from, to))
    };
    let far = with("far", "cpu: host", "accelerator: opencl")?;
    let right = "57d746dde781a68d4cc824c949550c073f56d435407172ae55079366b103b43b";
    let wrong = with("wrong", right, &right.replace('5', "6"))?;
    for (name, yaml, reason, pods) in
        [("far", far, "NotSupportedYet", 0), ("wrong", wrong, "DigestMismatch", 1)]
    {
        context.kubectl.apply(&yaml)?;
        context.kubectl.wait(&format!("tuningrun/{name}"), "Finished", LONG)?;
        let status = status(context, name)?;
        let failed = status["phase"] == "Failed" && status["failure"]["reason"] == reason;
        ensure!(failed, "{name}: {status}");
        let made = context.kubectl.json("pods")?["items"].as_array().map_or(0, Vec::len);
        ensure!(made == pods, "{name}: {made} pods");
    }
    Ok(())
}
