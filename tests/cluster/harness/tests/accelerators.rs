//! Pools of GPUs on the real node: a device plugin hands workers an OpenCL driver, which is PoCL, and they compile, verify
//! and measure on its device. Their image holds neither the loader nor the driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::devices::{Handed, install};
use hone_cluster_tests::product::{self, SYSTEM};
use hone_cluster_tests::{Capability, Context, Suite, eventually, repository};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(180);
const SOON: Duration = Duration::from_secs(60);

/// A model with a condition, whose answers stand beside it.
fn model(file: &str) -> PathBuf {
    repository().join("tests/models/control").join(file)
}

/// The product, the store's Secret in the test's namespace, and the model in the store.
fn prepare(context: &Context<'_>) -> Result<()> {
    product::install(context.cluster)?;
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    context.kubectl.run(&["label", "namespace", &context.namespace, enforce])?;
    product::store_secret(context.cluster, &context.kubectl)?;
    product::upload(context.cluster, &model("choice.onnx"), "models/choice.onnx")
}

/// A pool of the devices of a plugin for the test's namespace alone, by its name, with more of its spec.
fn pool(context: &Context<'_>, name: &str, spec: &str) -> Result<()> {
    let yaml = format!(
        "
apiVersion: hone.dev/v1alpha1
kind: DevicePool
metadata: {{name: {name}}}
spec:
  kind: GPU
  nodeSelector: {{kubernetes.io/arch: amd64}}
  allowedNamespaces: {{names: [{}]}}
  {spec}
",
        context.namespace
    );
    context.kubectl.apply(&yaml)?;
    context.kubectl.wait(&format!("devicepool/{name}"), "Ready", SOON)
}

/// A compilation for one target.
fn compilation(context: &Context<'_>, name: &str, target: &str) -> String {
    format!(
        "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: {name}}}
spec:
  model: {{uri: 's3://models/choice.onnx', credentialsSecretRef: {{name: store}}}}
  targets: [{{name: main, {target}}}]
  output: {{uri: 's3://artifacts/{}', credentialsSecretRef: {{name: store}}}}
",
        context.namespace
    )
}

/// The status of a compilation that has ended.
fn finished(context: &Context<'_>, name: &str) -> Result<Value> {
    let object = format!("modelcompilation/{name}");
    context.kubectl.wait(&object, "Finished", LONG)?;
    Ok(context.kubectl.json(&object)?["status"].clone())
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// `hone` on this machine.
fn hone(arguments: &[&str]) -> Result<String> {
    let output = Command::new(product::shipped("hone")).args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "hone {}: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// Both targets ran on the one device of the pool, one after the other, and gave one artifact.
fn a_pool_of_gpus_compiles_verifies_and_measures(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    install(context.cluster, "hone.test/gpu", &Handed::pocl()?)?;
    pool(context, "gpus", "extendedResource: {name: hone.test/gpu, count: 1}")?;
    let of_platform = "platform: {os: linux, arch: amd64, accelerator: opencl}";
    let both = [("platform", of_platform), ("pool", "pool: gpus")]
        .map(|(name, target)| compilation(context, name, target));
    context.kubectl.apply(&both.join("---"))?;
    let mut digests = Vec::new();
    for name in ["platform", "pool"] {
        let status = finished(context, name)?;
        ensure!(status["phase"] == "Succeeded", "{name}: {}", status["failure"]);
        let target = &status["targets"][0];
        ensure!(target["pool"] == "gpus" && target["cache"] == "Miss", "{target}");
        ensure!(target["correctness"]["passed"] == true, "{target}");
        ensure!(target["correctness"]["kernels"].as_i64() > Some(0), "{target}");
        let by = target["correctness"]["executedBy"].as_str().unwrap_or_default();
        ensure!(by.starts_with("OpenCL pthread") && by.contains(", driver "), "{by}");
        for field in ["/latency/p50", "/latency/p90", "/fingerprint", "/artifact/digest"] {
            let value = target.pointer(field).and_then(Value::as_str).unwrap_or_default();
            ensure!(!value.is_empty(), "status has no {field}: {target}");
        }
        ensure!(
            condition(&status, "Verified").is_some_and(|found| found["status"] == "True"),
            "{status}"
        );
        digests.push(target["artifact"]["digest"].clone());
        shows_its_device(context, name, target, by)?;
    }
    ensure!(digests[0] == digests[1], "{digests:?}");
    worker_has_what_the_operator_sets(context)?;
    the_device_is_given_back(context, "gpus", 2)?;
    the_artifact_runs_here(context)
}

/// The report beside the artifact has the device's peaks and steps; the pool counts the result by its fingerprint.
fn shows_its_device(context: &Context<'_>, name: &str, target: &Value, by: &str) -> Result<()> {
    let uri = target["artifact"]["uri"].as_str().context("no uri")?;
    let uid = context.kubectl.text(&format!("modelcompilation/{name}"), "{.metadata.uid}")?;
    let file = tempfile::NamedTempFile::new()?;
    product::download(
        context.cluster,
        &uri.replace(".hone", &format!(".{uid}.json")),
        file.path(),
    )?;
    let report: Value = serde_json::from_slice(&fs::read(file.path())?)?;
    ensure!(report["correctness"]["executedBy"] == by, "{report}");
    ensure!(report["details"]["target"]["accelerator"] == "opencl", "{report}");
    for peak in ["flops", "bandwidth"] {
        let value = report["details"]["peaks"][peak].as_f64().unwrap_or_default();
        ensure!(value > 1e6, "{peak} {value}: {}", report["details"]["peaks"]);
    }
    let steps = report["details"]["steps"].as_array().cloned().unwrap_or_default();
    ensure!(steps.iter().any(|found| found["nanoseconds"].as_u64() > Some(0)), "{steps:?}");
    let pool = target["pool"].as_str().context("no pool")?;
    eventually("the fingerprint in the pool's status", SOON, || {
        let all = context.kubectl.json(&format!("devicepool/{pool}"))?;
        let all = all["status"]["fingerprints"].as_array().cloned().unwrap_or_default();
        let mut counts = all.iter().filter(|count| count["digest"] == target["fingerprint"]);
        Ok(counts.next().map(drop))
    })
}

/// The vendor's files take nothing from what keeps a worker in.
fn worker_has_what_the_operator_sets(context: &Context<'_>) -> Result<()> {
    let pods = context.kubectl.json("pods -l hone.dev/purpose=compile")?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    ensure!(pods.len() == 2, "{} pods", pods.len());
    for pod in &pods {
        let container = &pod["spec"]["containers"][0];
        ensure!(container["resources"]["limits"]["hone.test/gpu"] == "1", "{container}");
        let security = &container["securityContext"];
        ensure!(security["readOnlyRootFilesystem"] == true, "{security}");
        ensure!(security["seccompProfile"]["type"] == "RuntimeDefault", "{security}");
        ensure!(pod["spec"]["securityContext"]["runAsUser"] == 65532, "{}", pod["spec"]);
    }
    Ok(())
}

/// The Lease of the pool's device was granted at least so often, and nobody holds it. A worker for which the node has no
/// processor left gives its device back, and is granted it again.
fn the_device_is_given_back(context: &Context<'_>, pool: &str, grants: i64) -> Result<()> {
    let system = context.kubectl.in_namespace(SYSTEM);
    eventually("the device to be given back", SOON, || {
        let all = system.json("leases -l hone.dev/lease=device")?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let mut of_pool = all.iter().filter(|found| found["metadata"].to_string().contains(pool));
        let lease = of_pool.next().context("no lease")?;
        ensure!(lease["spec"]["leaseTransitions"].as_i64() >= Some(grants), "{lease}");
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        Ok(holder.is_empty().then_some(()))
    })?;
    eventually("the pool's counts", SOON, || {
        let capacity =
            context.kubectl.json(&format!("devicepool/{pool}"))?["status"]["capacity"].clone();
        let free = capacity["total"] == 1 && capacity["leased"] == 0 && capacity["waiting"] == 0;
        Ok(free.then_some(()))
    })
}

/// The artifact of the cluster gives the model's answers on this machine's device, kernel by kernel and as a whole.
fn the_artifact_runs_here(context: &Context<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let uri = "{.status.targets[0].artifact.uri}";
    let uri = context.kubectl.text("modelcompilation/platform", uri)?;
    let artifact = file("cluster.hone");
    product::download(context.cluster, &uri, Path::new(&artifact))?;
    let original = model("choice.onnx").to_string_lossy().into_owned();
    let said = hone(&["verify", &artifact, "--model", &original, "--kernels"])?;
    ensure!(said.contains("runs on OpenCL "), "{said}");
    for sample in ["a", "b"] {
        let inputs = model(&format!("choice-{sample}-in.npz")).to_string_lossy().into_owned();
        hone(&["verify", &artifact, "--model", &original, "--inputs", &inputs])?;
        let outputs = file("outputs.npz");
        hone(&["run", &artifact, "--inputs", &inputs, "--outputs", &outputs])?;
        ensure!(fs::metadata(&outputs)?.len() > 100, "no outputs");
    }
    Ok(())
}

/// Where the plugin hands a container no driver, the status says what is missing and what to do, at once and once.
fn a_pod_without_a_device_says_so(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    install(context.cluster, "hone.test/bare", &Handed::default())?;
    pool(context, "bare", "extendedResource: {name: hone.test/bare, count: 1}")?;
    context.kubectl.apply(&compilation(context, "bare", "pool: bare"))?;
    let status = finished(context, "bare")?;
    let failure = &status["failure"];
    ensure!(status["phase"] == "Failed" && failure["reason"] == "TargetMismatch", "{status}");
    let message = failure["message"].as_str().unwrap_or_default();
    for words in ["pool 'bare'", "libOpenCL.so.1", "device plugin"] {
        ensure!(message.contains(words), "no {words} in: {message}");
    }
    let stalled = condition(&status, "Stalled").context("no condition Stalled")?;
    ensure!(stalled["status"] == "True" && stalled["reason"] == "TargetMismatch", "{stalled}");
    let pods = context.kubectl.json("pods")?["items"].as_array().map_or(0, Vec::len);
    ensure!(pods == 1, "{pods} pods for what no retry cures");
    the_device_is_given_back(context, "bare", 1)
}

/// No pool has devices of browsers: any pool of processors compiles for them, and the status says that nobody ran it.
fn code_for_browsers_is_not_verified(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let digits = repository().join("examples/digits/digits.onnx");
    product::upload(context.cluster, &digits, "models/digits.onnx")?;
    let target = "platform: {os: linux, arch: amd64, accelerator: webgpu}";
    let yaml = compilation(context, "web", target).replace("choice.onnx", "digits.onnx");
    context.kubectl.apply(&yaml)?;
    let status = finished(context, "web")?;
    ensure!(status["phase"] == "Succeeded", "{}", status["failure"]);
    let target = &status["targets"][0];
    ensure!(target["pool"] == "amd64" && target["correctness"].is_null(), "{target}");
    ensure!(target["latency"].is_null(), "{target}");
    let verified = condition(&status, "Verified").context("no condition Verified")?;
    ensure!(verified["status"] == "Unknown" && verified["reason"] == "NotChecked", "{verified}");
    let message = verified["message"].as_str().unwrap_or_default();
    ensure!(message.contains("target 'main' was not checked: "), "{message}");
    ensure!(message.contains("WebGPU") && message.contains("browser"), "{message}");
    let file = tempfile::NamedTempFile::new()?;
    let uri = target["artifact"]["uri"].as_str().context("no uri")?;
    product::download(context.cluster, uri, file.path())?;
    let shown = hone(&["inspect", &file.path().to_string_lossy(), "--kernel", "hone_k0"])?;
    ensure!(shown.contains("@compute"), "{shown}");
    Ok(())
}

fn main() {
    let options = match product::options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("accelerators: {error:#}");
            std::process::exit(1);
        }
    };
    Suite::new("accelerators", options)
        .needs(&[&product::NEEDS[..], &[Capability::OpenCl]].concat())
        .test(
            "a_pool_of_gpus_compiles_verifies_and_measures",
            a_pool_of_gpus_compiles_verifies_and_measures,
        )
        .test("a_pod_without_a_device_says_so", a_pod_without_a_device_says_so)
        .test("code_for_browsers_is_not_verified", code_for_browsers_is_not_verified)
        .main();
}
