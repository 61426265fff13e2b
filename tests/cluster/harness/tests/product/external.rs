//! A run whose devices are outside of the cluster: its pod measures nothing, and a session that runs beside the cluster does.

use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Context, eventually};
use serde_json::Value;

use crate::tuning::{example, log, status, trials_of};
use crate::{LONG, SOON, prepare};

/// A session, which ends with the test.
struct Session(Child);

impl Drop for Session {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn store(context: &Context<'_>) -> String {
    format!("{}-sessions", log(context))
}

fn pool(context: &Context<'_>) -> String {
    format!("external-{}", context.namespace)
}

fn start(context: &Context<'_>, name: &str) -> Result<Session> {
    let (store, pool) = (store(context), pool(context));
    let mut command = crate::program(
        context,
        &["session", "--store", &store, "--pool", &pool, "--name", name, "--target", "linux/amd64"],
    )?;
    Ok(Session(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn sessions(context: &Context<'_>) -> Result<Vec<Value>> {
    let pool = context.kubectl.json(&format!("devicepool/{}", pool(context)))?;
    Ok(pool["status"]["sessions"].as_array().cloned().unwrap_or_default())
}

/// The reason of the run's `Ready`.
fn reason(context: &Context<'_>) -> Result<String> {
    let status = status(context, "digits")?;
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|own| own["type"] == "Ready");
    Ok(ready.and_then(|own| own["reason"].as_str()).unwrap_or_default().to_owned())
}

/// Without a session the condition says so; with one the run goes on, and the pool names it; one that is killed is replaced.
pub fn sessions_outside_measure_for_a_run(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let pool = pool(context);
    // Other tests run on the same cores, and what a session measures then is no reason to set it aside.
    context.kubectl.apply(&format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: DevicePool, metadata: {{name: {pool}}}, spec: {{kind: External, \
          platform: {{os: linux, arch: amd64}}, noiseBudget: '100', sessions: {{uri: '{}', credentialsSecretRef: {{name: store}}}}}}}}",
        store(context)
    ))?;
    let yaml = example(context, "digits", "{maxTrials: 200}")?;
    ensure!(yaml.contains("cpu: host"), "the example has another target");
    let yaml =
        yaml.replace(", cpu: host", "").replace("  pool: amd64\n", &format!("  pool: {pool}\n"));
    context.kubectl.apply(&yaml)?;
    eventually("the run to wait for a session", LONG, || {
        Ok((reason(context)? == "WaitingForSession").then_some(()))
    })?;

    let first = start(context, "first")?;
    eventually("trials of the first session", LONG, || {
        Ok(status(context, "digits")?["trials"]["measured"].as_u64().filter(|count| *count > 0))
    })?;
    let seen = eventually("the session in the pool's status", SOON, || {
        Ok(sessions(context)?.into_iter().find(|own| own["name"] == "first"))
    })?;
    ensure!(seen["lastSeen"].is_string() && seen["setAside"].is_null(), "{seen}");
    drop(first);
    let _second = start(context, "second")?;

    context.kubectl.wait("tuningrun/digits", "Finished", LONG)?;
    let done = status(context, "digits")?;
    ensure!(done["phase"] == "Succeeded", "{done}");
    let found = trials_of(context)?;
    let once: std::collections::BTreeSet<&String> = found.iter().collect();
    ensure!((found.len(), once.len()) == (200, 200), "{} of {}", once.len(), found.len());
    let job = done["jobRef"]["name"].as_str().context("no Job")?;
    let jobs = context.kubectl.text("jobs", "{.items[*].metadata.name}")?;
    ensure!(jobs == job, "a Job besides that which searches: {jobs}");
    context.kubectl.run(&["delete", "tuningrun", "digits"])?;
    context.kubectl.run(&["delete", "devicepool", &pool]).map(drop)
}
