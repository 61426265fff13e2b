//! The operator as a process against a real control plane, with simulated nodes, on which a worker takes as long as an
//! annotation says (`tests/cluster/kwok`).

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{Context, eventually, product, repository};

/// Longest time that what a controller does may take.
pub const SOON: Duration = Duration::from_secs(90);

/// An operator of one namespace, ended when this is dropped.
pub struct Operator(Child);

impl Operator {
    /// Starts one for the namespace of `context`, alone and leading.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn start(context: &Context<'_>) -> Result<Self> {
        Self::start_with(context, &[])
    }

    /// As [`Self::start`], with more of its environment.
    ///
    /// # Errors
    /// Where the program cannot be run.
    pub fn start_with(context: &Context<'_>, environment: &[(&str, &str)]) -> Result<Self> {
        let child = Command::new(product::shipped("hone-operator"))
            .env("KUBECONFIG", context.cluster.kubectl().kubeconfig())
            .env("HONE_WORKER_IMAGE", "simulated")
            .env("HONE_LISTEN", "127.0.0.1:0")
            .env("HONE_ADMIN_LISTEN", "127.0.0.1:0")
            .env("HONE_NO_LEADER_ELECTION", "true")
            .env("HONE_COPY_ANNOTATIONS", "simulate.hone.dev/")
            .env("HONE_WATCH_NAMESPACE", &context.namespace)
            .env("HONE_LOG", "warn")
            .env("POD_NAMESPACE", &context.namespace)
            .envs(environment.iter().copied())
            .spawn()
            .context("run hone-operator")?;
        Ok(Self(child))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kinds, a pool of all simulated nodes that is the test's own, with more of its `spec` such as `, exclusivity: Node`,
/// and its operator.
///
/// # Errors
/// Where the API server refuses one, or does not answer in time.
pub fn begin(context: &Context<'_>, spec: &str) -> Result<Operator> {
    begin_with(context, spec, &[])
}

/// As [`begin`], with more of the operator's environment.
///
/// # Errors
/// Where the API server refuses one, or does not answer in time.
pub fn begin_with(
    context: &Context<'_>,
    spec: &str,
    environment: &[(&str, &str)],
) -> Result<Operator> {
    for kind in ["modelcompilations", "tuningruns", "devicepools"] {
        let path = repository().join("crds").join(format!("hone.dev_{kind}.yaml"));
        apply_file(context, &path)?;
        context.kubectl.wait(&format!("crd/{kind}.hone.dev"), "Established", SOON)?;
    }
    let pool = format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: DevicePool, metadata: {{name: {}}}, spec: \
         {{kind: CPU, nodeSelector: {{type: simulated}}{spec}}}}}",
        context.namespace
    );
    eventually("the pool", SOON, || context.kubectl.apply(&pool).map(Some))?;
    Operator::start_with(context, environment)
}

fn apply_file(context: &Context<'_>, path: &Path) -> Result<()> {
    let path = path.to_string_lossy();
    context.kubectl.run(&["apply", "--server-side", "-f", &path]).map(drop)
}

/// A compilation `c{number}` in that pool as YAML: its worker takes `duration`, such as `1s`; `rest` is more of its spec.
pub fn compilation(context: &Context<'_>, number: usize, duration: &str, rest: &str) -> String {
    let pool = &context.namespace;
    format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: ModelCompilation, metadata: {{name: c{number}, annotations: \
         {{simulate.hone.dev/duration: {duration}}}}}, spec: {{model: {{uri: 's3://models/{number}.onnx'}}, \
         targets: [{{name: main, pool: {pool}}}], output: {{uri: 's3://artifacts'}}{rest}}}}}\n"
    )
}

/// The objects of a kind in the test's namespace; `kind` may hold further words for kubectl.
///
/// # Errors
/// Where kubectl fails.
pub fn items(context: &Context<'_>, kind: &str) -> Result<Vec<Value>> {
    let list = context.kubectl.json(kind)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// How many compilations are in `phase`.
///
/// # Errors
/// Where kubectl fails.
pub fn count(context: &Context<'_>, phase: &str) -> Result<usize> {
    let all = items(context, "modelcompilations")?;
    Ok(all.iter().filter(|object| object["status"]["phase"] == phase).count())
}

/// Who holds the Leases of devices, as namespace and Job.
///
/// # Errors
/// Where kubectl fails.
pub fn holders(context: &Context<'_>) -> Result<Vec<String>> {
    let leases = items(context, "leases -l hone.dev/lease=device")?;
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    Ok(leases.iter().filter_map(holder).filter(|holder| !holder.is_empty()).collect())
}

/// Waits until a compilation's only target says `reason`.
///
/// # Errors
/// Where it does not within [`SOON`].
pub fn says(context: &Context<'_>, name: &str, reason: &str) -> Result<()> {
    eventually(&format!("{name} to say {reason}"), SOON, || {
        let path = "{.status.targets[0].failure.reason}";
        Ok((context.kubectl.text(&format!("modelcompilation/{name}"), path)? == reason)
            .then_some(()))
    })
}
