//! Kueue itself before Hone's Jobs, on a real control plane with simulated nodes: quota, preemption, and a queue that is
//! stopped. A compilation that Kueue holds has no device.

use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::simulated::{SOON, begin, compilation, count, holders, items, says};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, eventually, program};
use serde_json::{Value, json};

/// Port of Kueue's webhooks on the loopback interface: the tests of this suite run one after another.
const PORT: u16 = 19_443;

/// Runs program `$0` with settings `$1` where the certificates in `$2` lie in the folder that Kueue reads those of its
/// metrics from, whether it serves any or not: a file system that nobody else sees.
const IN_ITS_OWN_ETC: &str = "set -e
mount -t tmpfs none /etc
mkdir -p /etc/kueue/metrics/certs
cp \"$2\"/tls.* /etc/kueue/metrics/certs
exec \"$0\" --config \"$1\" --feature-gates VisibilityOnDemand=false";

/// Kueue, ended when this is dropped.
struct Kueue(Child);

impl Kueue {
    /// Starts it with batch Jobs alone, and a queue `models` whose quota is one pod.
    fn start(context: &Context<'_>) -> Result<Self> {
        let (directory, kubectl) = (context.cluster.directory(), &context.kubectl);
        let built = program("kueue.d");
        let crds = built.join("crds.yaml");
        kubectl.run(&["apply", "--server-side", "-f", &crds.to_string_lossy()])?;
        for kind in ["clusterqueues", "localqueues", "resourceflavors", "workloads"] {
            kubectl.wait(&format!("crd/{kind}.kueue.x-k8s.io"), "Established", SOON)?;
        }
        let certificates = directory.join("kueue");
        std::fs::create_dir_all(&certificates)?;
        for (from, to) in [("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")] {
            std::fs::copy(directory.join("pki").join(from), certificates.join(to))?;
        }
        let settings = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
            "health": {"healthProbeBindAddress": "127.0.0.1:0"}, "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": false}, "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": PORT, "certDir": certificates},
            "integrations": {"frameworks": ["batch/job"]},
        });
        let file = certificates.join("settings.json");
        std::fs::write(&file, settings.to_string())?;
        let log = std::fs::File::create(directory.join("kueue.log"))?;
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", IN_ITS_OWN_ETC])
            .args([&program("kueue"), &file, &certificates])
            .env("KUBECONFIG", context.cluster.kubectl().kubeconfig())
            .env("POD_NAMESPACE", "default")
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("run kueue")?;
        let kueue = Self(child);
        register_webhooks(context)?;
        let queue = queue(&context.namespace, "None");
        eventually("the queue", SOON, || Ok(kubectl.apply(&queue).ok()))?;
        kubectl.wait(&format!("clusterqueue/{}", context.namespace), "Active", SOON)?;
        Ok(kueue)
    }
}

impl Drop for Kueue {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Registers Kueue's own webhooks for Jobs and its kinds, reached on the loopback interface.
fn register_webhooks(context: &Context<'_>) -> Result<()> {
    let manifest = program("kueue.d").join("webhooks.yaml");
    let manifest = manifest.to_string_lossy();
    let print = ["create", "--dry-run=client", "--validate=false", "-o", "json", "-f", &manifest];
    let authority = std::fs::read(context.cluster.directory().join("pki/ca.crt"))?;
    let authority = base64(&authority)?;
    let text = context.kubectl.run(&print)?;
    for configuration in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let configuration = configuration?;
        let list = configuration["items"].as_array().cloned();
        for mut configuration in list.unwrap_or_else(|| vec![configuration.clone()]) {
            let Some(webhooks) = configuration["webhooks"].as_array_mut() else { continue };
            webhooks.retain(|webhook| {
                let group = webhook["rules"][0]["apiGroups"][0].as_str();
                matches!(group, Some("batch" | "kueue.x-k8s.io"))
            });
            for webhook in webhooks {
                let path = webhook["clientConfig"]["service"]["path"].as_str();
                let url = format!("https://127.0.0.1:{PORT}{}", path.context("a path")?);
                webhook["clientConfig"] = json!({"url": url, "caBundle": authority});
            }
            configuration["metadata"] = json!({"name": configuration["metadata"]["name"]});
            context.kubectl.apply(&configuration.to_string())?;
        }
    }
    Ok(())
}

/// Base64, by the system's program.
fn base64(bytes: &[u8]) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes)?;
    let output = Command::new("base64").arg("-w0").arg(file.path()).output()?;
    ensure!(output.status.success(), "base64 failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// A queue `models` for one pod at a time, where the higher priority goes before the lower.
fn queue(name: &str, stop: &str) -> String {
    format!(
        "
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {{name: any}}}}
---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {{name: high}}, value: 100}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  namespaceSelector: {{}}
  stopPolicy: {stop}
  preemption: {{withinClusterQueue: LowerPriority}}
  resourceGroups:
  - coveredResources: [cpu, memory, pods]
    flavors:
    - name: any
      resources: [{{name: cpu, nominalQuota: 100}}, {{name: memory, nominalQuota: 1000Gi}}, {{name: pods, nominalQuota: 1}}]
---
{{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {{name: models}}, spec: {{clusterQueue: {name}}}}}
"
    )
}

/// A compilation that hands itself to the queue, with more labels.
fn queued(context: &Context<'_>, number: usize, duration: &str, labels: &str) -> String {
    let plain = compilation(context, number, duration, "");
    let name = format!("{{name: c{number}, ");
    let labels = format!("labels: {{kueue.x-k8s.io/queue-name: models{labels}}}, ");
    plain.replace(&name, &format!("{name}{labels}"))
}

fn runs(context: &Context<'_>, name: &str) -> Result<()> {
    context.kubectl.until(&format!("modelcompilation/{name}"), "{.status.phase}", "Running", SOON)
}

/// Both are done, and nobody holds anything.
fn all_succeed(context: &Context<'_>, number: usize) -> Result<()> {
    eventually("all to succeed", SOON, || {
        Ok((count(context, "Succeeded")? == number).then_some(()))
    })?;
    eventually("every lease to end", SOON, || Ok(holders(context)?.is_empty().then_some(())))
}

/// There are two devices and quota for one pod.
fn quota_is_waited_for_without_a_device(context: &Context<'_>) -> Result<()> {
    let _kueue = Kueue::start(context)?;
    let _operator = begin(context, "")?;
    context.kubectl.apply(&queued(context, 0, "8s", ""))?;
    runs(context, "c0")?;
    context.kubectl.apply(&queued(context, 1, "1s", ""))?;
    says(context, "c1", "Queued")?;
    // What never asked Kueue has the other device.
    context.kubectl.apply(&compilation(context, 2, "1s", ""))?;
    context.kubectl.wait("modelcompilation/c2", "Succeeded", SOON)?;
    let held = holders(context)?;
    ensure!(held.iter().all(|holder| !holder.contains("/c1-")), "{held:?}");
    all_succeed(context, 3)
}

/// A worker that makes room for one of a higher priority gives its device back, and runs again afterwards.
fn the_higher_priority_takes_the_quota_and_the_device(context: &Context<'_>) -> Result<()> {
    let _kueue = Kueue::start(context)?;
    let _operator = begin(context, "")?;
    context.kubectl.apply(&queued(context, 0, "12s", ""))?;
    runs(context, "c0")?;
    let high = ", kueue.x-k8s.io/priority-class: high";
    context.kubectl.apply(&queued(context, 1, "5s", high))?;
    says(context, "c0", "Queued")?;
    runs(context, "c1")?;
    let held = holders(context)?;
    ensure!(held.iter().all(|holder| holder.contains("/c1-")), "{held:?}");
    let preempted = items(context, "workloads")?.iter().any(|workload| {
        let conditions = workload["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| condition["type"] == "Preempted")
    });
    ensure!(preempted, "Kueue says of no workload that it was preempted");
    all_succeed(context, 2)
}

/// An administrator drains the queue and opens it again.
fn a_queue_that_is_stopped_gives_devices_back(context: &Context<'_>) -> Result<()> {
    let _kueue = Kueue::start(context)?;
    let _operator = begin(context, "")?;
    context.kubectl.apply(&queued(context, 0, "10s", ""))?;
    runs(context, "c0")?;
    context.kubectl.apply(&queue(&context.namespace, "HoldAndDrain"))?;
    says(context, "c0", "Queued")?;
    eventually("the device back", SOON, || Ok(holders(context)?.is_empty().then_some(())))?;
    std::thread::sleep(Duration::from_secs(3));
    says(context, "c0", "Queued")?;
    context.kubectl.apply(&queue(&context.namespace, "None"))?;
    runs(context, "c0")?;
    all_succeed(context, 1)
}

fn main() {
    let options = ClusterOptions { simulated_nodes: Some(2), ..ClusterOptions::default() };
    Suite::new("kueue", options)
        .needs(&[Capability::Plane, Capability::Kwok, Capability::Product, Capability::Kueue])
        .alone("quota_is_waited_for_without_a_device", quota_is_waited_for_without_a_device)
        .alone(
            "the_higher_priority_takes_the_quota_and_the_device",
            the_higher_priority_takes_the_quota_and_the_device,
        )
        .alone(
            "a_queue_that_is_stopped_gives_devices_back",
            a_queue_that_is_stopped_gives_devices_back,
        )
        .main();
}
