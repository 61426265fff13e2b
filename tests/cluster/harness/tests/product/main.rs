//! The product from end to end: release images on a real node, installed by the chart, driven with
//! kubectl; artifacts are downloaded, compared with those of `hone compile`, verified and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hone_cluster_tests::product::{self, SYSTEM};
use hone_cluster_tests::{Capability, Context, Suite, eventually, repository, tool};
use serde_json::Value;

mod changes;
mod external;
mod improved;
mod onnx;
mod revised;
mod tuning;

const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(300);

fn digits(file: &str) -> PathBuf {
    repository().join("examples/digits").join(file)
}

/// The product, the store's Secret in the test's namespace, and the example's files in the store.
fn prepare(context: &Context<'_>) -> Result<()> {
    product::install(context.cluster)?;
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    context.kubectl.run(&["label", "namespace", &context.namespace, enforce])?;
    product::store_secret(context.cluster, &context.kubectl)?;
    for file in ["digits.onnx", "test-images.npz"] {
        product::upload(context.cluster, &digits(file), &format!("models/{file}"))?;
    }
    Ok(())
}

/// `examples/kubernetes/digits.yaml` under another name, with its own folder in the store.
fn example(context: &Context<'_>, name: &str) -> Result<String> {
    let path = repository().join("examples/kubernetes/digits.yaml");
    let text = fs::read_to_string(path)?.replace("  name: digits\n", &format!("  name: {name}\n"));
    let folder = format!("s3://artifacts/{}/digits", context.namespace);
    Ok(text.replace("s3://artifacts/digits", &folder))
}

fn finished(context: &Context<'_>, name: &str, limit: Duration) -> Result<Value> {
    let object = format!("modelcompilation/{name}");
    context.kubectl.wait(&object, "Finished", limit)?;
    Ok(context.kubectl.json(&object)?["status"].clone())
}

fn succeeded(context: &Context<'_>, name: &str) -> Result<Value> {
    let status = finished(context, name, LONG)?;
    ensure!(status["phase"] == "Succeeded", "{}", status["failure"]);
    Ok(status)
}

/// `hone` on this machine, with the store's options in its environment.
fn program(context: &Context<'_>, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(product::shipped("hone"));
    command.args(arguments).envs(product::store_options(context.cluster, "HONE_S3_ENDPOINT")?).env(
        "HONE_FETCH_ALLOW",
        product::fetch_allow(context.cluster, "HONE_S3_ENDPOINT")?.join(","),
    );
    Ok(command)
}

/// Runs `hone` on this machine to its end; what it printed.
fn hone(context: &Context<'_>, arguments: &[&str]) -> Result<String> {
    let output = program(context, arguments)?.output().context("cannot run hone")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "hone {}: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// The promise: kubectl apply, a status with everything in it, an artifact that is bit for bit the one
/// of `hone compile` on the same file, that verifies, and whose accuracy is that of the model.
fn yaml_to_verified_artifact(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let yaml = example(context, "digits")?;
    context.kubectl.apply(&yaml)?;
    let status = succeeded(context, "digits")?;
    let target = &status["targets"][0];
    ensure!(target["correctness"]["passed"] == true && target["cache"] == "Miss", "{target}");
    for field in ["/latency/p50", "/fingerprint", "/artifact/digest", "/modelDigest", "/pool"] {
        let value = target.pointer(field).and_then(Value::as_str).unwrap_or_default();
        ensure!(!value.is_empty(), "status has no {field}: {target}");
    }
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let uri = target["artifact"]["uri"].as_str().context("no uri")?;
    product::download(context.cluster, uri, Path::new(&file("cluster.hone")))?;
    let size = fs::metadata(file("cluster.hone"))?.len();
    ensure!(target["artifact"]["sizeBytes"] == size, "{size} bytes, {target}");
    let uid = context.kubectl.text("modelcompilation/digits", "{.metadata.uid}")?;
    let report = format!("{}.{uid}.json", uri.strip_suffix(".hone").context("another name")?);
    ensure!(product::stored(context.cluster, &report)?, "no report at {report}");

    fs::write(file("digits.yaml"), &yaml)?;
    let out = ["--out", &file("out"), "--no-measure", "--json"];
    let said = hone(context, &[&["compile", "-f", &file("digits.yaml")], &out[..]].concat())?;
    let local: Value = serde_json::from_str(&said)?;
    let local = &local["targets"][0]["report"]["artifact"];
    ensure!(local["digest"] == target["artifact"]["digest"], "{local} here, {target} there");

    let model = digits("digits.onnx").to_string_lossy().into_owned();
    let images = digits("test-images.npz").to_string_lossy().into_owned();
    hone(context, &["verify", &file("cluster.hone"), "--model", &model, "--inputs", &images])?;
    let outputs = file("outputs.npz");
    hone(context, &["run", &file("cluster.hone"), "--inputs", &images, "--outputs", &outputs])?;
    ensure!(fs::metadata(&outputs)?.len() > 1000, "no outputs");
    health_is_green(context)
}

/// What Flux, Argo CD and a pipeline's step make of the finished object.
fn health_is_green(context: &Context<'_>) -> Result<()> {
    let yaml = context.kubectl.run(&["get", "modelcompilation", "digits", "-o", "yaml"])?;
    let flux = tool("kstatus", &["-"], &yaml)?;
    ensure!(flux.starts_with("Current"), "{flux}");
    let script = repository().join("examples/pipelines/argo-cd/health.lua");
    let argo = tool("argohealth", &["-", &script.to_string_lossy()], &yaml)?;
    ensure!(argo.starts_with("Healthy"), "{argo}");
    Ok(())
}

/// Equal work finishes within two seconds: its pod, which enters it as an owner of the artifact, is not waited for.
fn second_apply_waits_for_no_pod(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "first")?)?;
    let first = succeeded(context, "first")?;
    let start = Instant::now();
    context.kubectl.apply(&example(context, "second")?)?;
    let second = succeeded(context, "second")?;
    let took = start.elapsed();
    ensure!(second["targets"][0]["cache"] == "Hit", "{}", second["targets"]);
    for field in ["uri", "digest", "sizeBytes"] {
        let of = |status: &Value| status["targets"][0]["artifact"][field].clone();
        ensure!(of(&second) == of(&first), "{field}: {} and {}", of(&second), of(&first));
    }
    println!("second apply: {} ms", took.as_millis());
    ensure!(took < Duration::from_secs(2), "it took {took:?}");
    eventually("the second to be an owner", LONG, || {
        let status = context.kubectl.json("modelcompilation/second")?["status"].clone();
        ensure!(status["phase"] == "Succeeded", "{status}");
        Ok((status["targets"][0]["artifact"]["owned"] == true).then_some(()))
    })
}

/// Waits for a failure and checks its reason, and that nothing was stored.
fn fails(context: &Context<'_>, name: &str, yaml: &str, reason: &str) -> Result<String> {
    context.kubectl.apply(yaml)?;
    let status = finished(context, name, LONG)?;
    let failure = &status["failure"];
    ensure!(status["phase"] == "Failed" && failure["reason"] == reason, "{name}: {failure}");
    let of = |kind: &str| {
        let found = status["conditions"].as_array()?.iter().find(|c| c["type"] == kind)?;
        Some((found["status"].clone(), found["reason"].clone()))
    };
    ensure!(of("Stalled") == Some(("True".into(), reason.into())), "{name}: {status}");
    ensure!(of("Ready").is_some_and(|(state, _)| state == "False"), "{name}: {status}");
    Ok(failure["message"].as_str().unwrap_or_default().to_owned())
}

fn a_wrong_digest_is_terminal(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let right = "57d746dde781a68d4cc824c949550c073f56d435407172ae55079366b103b43b";
    let yaml = example(context, "wrong")?.replace(right, &right.replace('5', "6"));
    let message = fails(context, "wrong", &yaml, "DigestMismatch")?;
    ensure!(message.contains(right), "{message}");
    let pods = context.kubectl.json("pods")?;
    let tries = pods["items"].as_array().map_or(0, Vec::len);
    ensure!(tries == 1, "{tries} pods for a mistake that no retry cures");
    Ok(())
}

fn without_digest(yaml: &str) -> String {
    yaml.lines().filter(|l| !l.contains("digest: sha256")).map(|l| format!("{l}\n")).collect()
}

fn a_missing_model_is_terminal(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let yaml = without_digest(&example(context, "gone")?).replace("digits.onnx", "no-such.onnx");
    let message = fails(context, "gone", &yaml, "NotFound")?;
    ensure!(message.contains("no-such.onnx"), "{message}");
    Ok(())
}

fn a_file_that_is_no_model_is_terminal(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let key = format!("models/{}.onnx", context.namespace);
    product::upload(context.cluster, &digits("README.md"), &key)?;
    let yaml = without_digest(&example(context, "text")?)
        .replace("s3://models/digits.onnx", &format!("s3://{key}"));
    fails(context, "text", &yaml, "InvalidModel").map(drop)
}

/// The model of one node whose operator nobody has.
fn unknown_operator_model() -> Vec<u8> {
    let mut graph = onnx::Graph::default();
    graph.input("x", &[1]);
    graph.node("strange", "NoSuchOperator", &["x"], &[]);
    graph.output("strange", &[1]);
    graph.file()
}

fn an_unknown_operator_is_terminal(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), unknown_operator_model())?;
    let key = format!("models/{}.onnx", context.namespace);
    product::upload(context.cluster, file.path(), &key)?;
    let text = without_digest(&example(context, "strange")?)
        .replace("s3://models/digits.onnx", &format!("s3://{key}"));
    let message = fails(context, "strange", &text, "UnsupportedOperator")?;
    ensure!(message.contains("strange") && message.contains("NoSuchOperator"), "{message}");
    Ok(())
}

/// Addresses that a worker must not fetch from, whatever a user writes. Names that resolve to them and
/// redirects are tested with the program itself.
fn private_addresses_are_refused(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let digest = format!("sha256:{}", "0".repeat(64));
    let yaml: Vec<String> = [
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:169.254.169.254]/x",
        "https://10.96.0.1/api",
        "https://kubernetes.default.svc/api",
        "https://127.0.0.1/x",
        "https://0x7f000001/x",
    ]
    .iter()
    .enumerate()
    .map(|(number, uri)| {
        format!(
            "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: ssrf-{number}}}
spec:
  model: {{uri: '{uri}', digest: '{digest}'}}
  targets: [{{name: main, pool: amd64}}]
  limits: {{retries: 0}}
  output: {{uri: 's3://artifacts/{0}', credentialsSecretRef: {{name: store}}}}
",
            context.namespace
        )
    })
    .collect();
    for (number, yaml) in yaml.iter().enumerate() {
        // An address in disguise may be refused by the schema already.
        if let Err(error) = context.kubectl.apply(yaml) {
            ensure!(format!("{error:#}").contains("invalid"), "{error:#}");
            continue;
        }
        fails(context, &format!("ssrf-{number}"), yaml, "SourceForbidden")?;
    }
    Ok(())
}

/// A store at a private address that the administrator did not allow.
fn a_private_store_is_refused(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let yaml = without_digest(&example(context, "other")?)
        .replace("s3://models/digits.onnx", "s3://tuning/digits.onnx");
    fails(context, "other", &yaml, "SourceForbidden").map(drop)
}

fn deletion_takes_the_artifact_along(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let yaml = example(context, "short-lived")?;
    ensure!(yaml.trim_end().ends_with("credentialsSecretRef: {name: store}"), "another example");
    context.kubectl.apply(&format!("{}\n    deletionPolicy: Delete\n", yaml.trim_end()))?;
    let status = succeeded(context, "short-lived")?;
    let uri = status["targets"][0]["artifact"]["uri"].as_str().context("no uri")?.to_owned();
    ensure!(product::stored(context.cluster, &uri)?, "{uri} is not stored");
    let uid = context.kubectl.text("modelcompilation/short-lived", "{.metadata.uid}")?;
    let report = uri.replace(".hone", &format!(".{uid}.json"));
    ensure!(product::stored(context.cluster, &report)?, "{report} is not stored");
    context.kubectl.run(&["delete", "modelcompilation", "short-lived", "--timeout=120s"])?;
    ensure!(!product::stored(context.cluster, &uri)?, "{uri} is still stored");
    ensure!(!product::stored(context.cluster, &report)?, "{report} is still stored");
    Ok(())
}

fn suspended_work_waits(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let yaml = example(context, "later")?.replace("spec:\n", "spec:\n  suspend: true\n");
    context.kubectl.apply(&yaml)?;
    let object = "modelcompilation/later";
    context.kubectl.until(object, "{.status.phase}", "Suspended", SOON)?;
    ensure!(context.kubectl.text("pods", "{.items[*].metadata.name}")?.is_empty(), "a pod runs");
    context.kubectl.run(&[
        "patch",
        object,
        "--type=merge",
        "-p",
        r#"{"spec":{"suspend":false}}"#,
    ])?;
    succeeded(context, "later").map(drop)
}

/// The pod of a worker is let into a restricted namespace (so are all of this file's), has no token
/// and sees nothing of its neighbours.
fn worker_pod_has_no_token(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "bare")?)?;
    succeeded(context, "bare")?;
    let pod = &context.kubectl.json("pods")?["items"][0]["spec"];
    ensure!(pod["automountServiceAccountToken"] == false && pod["enableServiceLinks"] == false);
    let mounts = pod["containers"][0]["volumeMounts"].to_string();
    ensure!(!mounts.contains("serviceaccount"), "{mounts}");
    Ok(())
}

/// Metrics as a Prometheus would read them, after some work.
fn metrics_are_served(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "counted")?)?;
    succeeded(context, "counted")?;
    let leader = product::leader(context.cluster)?;
    let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{leader}:8080/proxy/metrics");
    let text = context.kubectl.run(&["get", "--raw", &path])?;
    for line in [
        r#"hone_compilations_finished_total{phase="Succeeded",reason=""}"#,
        "controller_runtime_reconcile_total{controller=\"modelcompilation\"",
        "workqueue_queue_duration_seconds_bucket",
        "rest_client_requests_total",
        "leader_election_master_status{name=\"hone-operator\"} 1",
    ] {
        ensure!(text.contains(line), "no {line} in the metrics");
    }
    Ok(())
}

/// Work goes on after the leader is frozen, killed, and stopped in good order.
fn another_replica_takes_over(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "base")?)?;
    succeeded(context, "base")?;
    for (number, how) in ["pause", "kill -s SIGKILL", "stop"].into_iter().enumerate() {
        let kubectl = context.cluster.kubectl().in_namespace(SYSTEM);
        kubectl.run(&["rollout", "status", "deployment/hone", "--timeout=120s"])?;
        let leader = product::leader(context.cluster)?;
        let limit = if how == "stop" { 3 } else { 20 };
        match how {
            "stop" => drop(kubectl.run(&["delete", "pod", &leader, "--wait=false"])?),
            action => product::container(context.cluster, &leader, "operator", action)?,
        }
        let start = Instant::now();
        let name = format!("after-{number}");
        context.kubectl.apply(&example(context, &name)?)?;
        let status = succeeded(context, &name)?;
        let took = start.elapsed();
        println!("taken over after {how}: {} ms", took.as_millis());
        ensure!(status["targets"][0]["cache"] == "Hit", "{}", status["targets"]);
        ensure!(took < Duration::from_secs(limit), "{how}: it took {took:?}");
        if how == "pause" {
            // The kubelet would take long to notice; the replica must find that it was deposed.
            product::container(context.cluster, &leader, "operator", "resume")?;
        }
    }
    Ok(())
}

/// The images are those of the Dockerfile's stages.
fn images_are_those_of_the_dockerfile(_: &Context<'_>) -> Result<()> {
    let text = fs::read_to_string(repository().join("Dockerfile"))?;
    for (image, stage) in product::options()?.images.iter().zip(["operator", "worker"]) {
        let config = image_config(image)?;
        let start = text.find(&format!("FROM scratch AS {stage}")).context("no stage")?;
        let stage = text[start..].split("\n\n").next().unwrap_or_default();
        let line = |word: &str| stage.lines().find_map(|line| line.strip_prefix(word));
        let entrypoint: Value = serde_json::from_str(line("ENTRYPOINT ").context("no entry")?)?;
        let user = line("USER ").context("no user")?;
        let environment: Vec<&str> = line("ENV ").context("no env")?.split(' ').collect();
        let config = &config["config"];
        ensure!(config["Entrypoint"] == entrypoint && config["User"] == user, "{config}");
        ensure!(config["Env"] == serde_json::json!(environment), "{config}");
    }
    Ok(())
}

/// The configuration in an OCI archive, which `tar` opens.
fn image_config(archive: &Path) -> Result<Value> {
    let read = |name: &str| -> Result<Value> {
        let output = Command::new("tar").arg("-xOf").arg(archive).arg(name).output()?;
        ensure!(output.status.success(), "no {name} in {}", archive.display());
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let blob = |digest: &Value| match digest.as_str().and_then(|d| d.split_once(':')) {
        Some((kind, hex)) => read(&format!("blobs/{kind}/{hex}")),
        None => bail!("{digest} is no digest"),
    };
    let manifest = blob(&read("index.json")?["manifests"][0]["digest"])?;
    blob(&manifest["config"]["digest"])
}

/// The operator's image is small, and idle it needs little.
fn operator_is_small(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let images = product::options()?.images;
    let size = fs::metadata(&images[0])?.len();
    println!("operator image: {:.1} MB, not compressed", size as f64 / 1e6);
    ensure!(size < 30_000_000, "{size} bytes");
    let leader = product::leader(context.cluster)?;
    let path = "/api/v1/nodes/node1/proxy/stats/summary";
    let memory = eventually("the pod's memory", SOON, || {
        let text = context.kubectl.run(&["get", "--raw", path])?;
        let stats: Value = serde_json::from_str(&text)?;
        let pods = stats["pods"].as_array().cloned().unwrap_or_default();
        let pod = pods.into_iter().find(|pod| pod["podRef"]["name"] == leader.as_str());
        Ok(pod.and_then(|pod| pod["memory"]["workingSetBytes"].as_u64()))
    })?;
    println!("operator memory: {:.1} MiB", memory as f64 / 1048576.0);
    ensure!(memory < 40 << 20, "{memory} bytes");
    Ok(())
}

fn main() {
    let options = match product::options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("product: {error:#}");
            std::process::exit(1);
        }
    };
    let all = [&product::NEEDS[..], &[Capability::Kstatus, Capability::Argohealth]].concat();
    Suite::new("product", options)
        .needs(&all)
        .test("yaml_to_verified_artifact", yaml_to_verified_artifact)
        .needs(&product::NEEDS)
        .test("images_are_those_of_the_dockerfile", images_are_those_of_the_dockerfile)
        .test("a_wrong_digest_is_terminal", a_wrong_digest_is_terminal)
        .test("a_missing_model_is_terminal", a_missing_model_is_terminal)
        .test("a_file_that_is_no_model_is_terminal", a_file_that_is_no_model_is_terminal)
        .test("an_unknown_operator_is_terminal", an_unknown_operator_is_terminal)
        .test("private_addresses_are_refused", private_addresses_are_refused)
        .test("a_private_store_is_refused", a_private_store_is_refused)
        .test("deletion_takes_the_artifact_along", deletion_takes_the_artifact_along)
        .test("suspended_work_waits", suspended_work_waits)
        .test("worker_pod_has_no_token", worker_pod_has_no_token)
        .test("metrics_are_served", metrics_are_served)
        .test("an_edit_replaces_running_work", changes::an_edit_replaces_running_work)
        .test("targets_come_and_go", changes::targets_come_and_go)
        .test("retention_ends", changes::retention_ends)
        .test("a_deadline_ends_the_work", changes::a_deadline_ends_the_work)
        .test("waiting_for_a_device_ends", changes::waiting_for_a_device_ends)
        .test("log_level_changes_at_run_time", changes::log_level_changes_at_run_time)
        .test("runs_that_cannot_be_are_refused", tuning::runs_that_cannot_be_are_refused)
        .test("sessions_measure_for_a_run", tuning::sessions_measure_for_a_run)
        .test("sessions_outside_measure_for_a_run", external::sessions_outside_measure_for_a_run)
        .test("a_compilation_is_tuned", improved::a_compilation_is_tuned)
        .test("a_search_publishes_a_revision", revised::a_search_publishes_a_revision)
        // It holds the only device for long.
        .alone(
            "a_run_survives_kill_suspension_and_edit",
            tuning::a_run_survives_kill_suspension_and_edit,
        )
        .alone("second_apply_waits_for_no_pod", second_apply_waits_for_no_pod)
        .alone("operator_is_small", operator_is_small)
        .alone("another_replica_takes_over", another_replica_takes_over)
        .main();
}
