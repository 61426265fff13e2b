//! What users change while the product works, and what time changes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::product::{self, SYSTEM};
use hone_cluster_tests::{Context, eventually, program};
use serde_json::Value;

use crate::{LONG, SOON, example, finished, prepare, succeeded};

fn patch(context: &Context<'_>, name: &str, patch: &str) -> Result<()> {
    let object = format!("modelcompilation/{name}");
    context.kubectl.run(&["patch", &object, "--type=merge", "-p", patch]).map(drop)
}

/// The status once it is that of the newest generation, and finished.
fn settled(context: &Context<'_>, name: &str) -> Result<Value> {
    eventually("the newest generation to finish", LONG, || {
        let object = context.kubectl.json(&format!("modelcompilation/{name}"))?;
        let (status, generation) = (&object["status"], &object["metadata"]["generation"]);
        let done = status["observedGeneration"] == *generation
            && matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        Ok(done.then(|| status.clone()))
    })
}

/// An edit of what a running Job does replaces the Job; the result is that of the new text.
pub fn an_edit_replaces_running_work(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "edited")?)?;
    let first = eventually("a Job", SOON, || {
        let jobs = context.kubectl.text("jobs", "{.items[*].metadata.name}")?;
        Ok((!jobs.is_empty()).then_some(jobs))
    })?;
    patch(context, "edited", r#"{"spec":{"correctness":{"rtol":"2e-3"}}}"#)?;
    let status = settled(context, "edited")?;
    ensure!(status["phase"] == "Succeeded", "{status}");
    let second = status["targets"][0]["jobRef"]["name"].as_str().unwrap_or_default();
    ensure!(
        !second.is_empty() && second != first,
        "the first Job {first} made the result: {status}"
    );
    eventually("the first Job to go", SOON, || {
        let jobs = context.kubectl.text("jobs", "{.items[*].metadata.name}")?;
        Ok((!jobs.contains(&first)).then_some(()))
    })
}

/// A target that is added is compiled, those that are there are not compiled again; one that is removed
/// leaves the status.
pub fn targets_come_and_go(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    context.kubectl.apply(&example(context, "targets")?)?;
    let one = succeeded(context, "targets")?;
    patch(
        context,
        "targets",
        r#"{"spec":{"targets":[{"name":"main","platform":{"os":"linux","arch":"amd64","cpu":"host"}},{"name":"older","platform":{"os":"linux","arch":"amd64","cpu":"generic"}}]}}"#,
    )?;
    let two = settled(context, "targets")?;
    ensure!(two["phase"] == "Succeeded" && two["targetsReady"] == "2/2", "{two}");
    ensure!(two["targets"][0] == one["targets"][0], "main was done again: {two}");
    let digest = |n: usize| two["targets"][n]["artifact"]["digest"].clone();
    ensure!(digest(0) != digest(1), "two processors, one artifact: {two}");
    patch(
        context,
        "targets",
        r#"{"spec":{"targets":[{"name":"older","platform":{"os":"linux","arch":"amd64","cpu":"generic"}}]}}"#,
    )?;
    let left = settled(context, "targets")?;
    let names: Vec<&str> = left["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|t| t["name"].as_str())
        .collect();
    ensure!(names == ["older"] && left["targetsReady"] == "1/1", "{left}");
    ensure!(left["targets"][0] == two["targets"][1], "older was done again: {left}");
    Ok(())
}

/// The object goes when its time is over, and leaves the artifact.
pub fn retention_ends(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let kept = "spec:\n  retention: {ttlAfterFinished: 5s}\n";
    context.kubectl.apply(&example(context, "brief")?.replace("spec:\n", kept))?;
    let status = succeeded(context, "brief")?;
    let uri = status["targets"][0]["artifact"]["uri"].as_str().context("no uri")?.to_owned();
    let gone = ["wait", "--for=delete", "modelcompilation/brief", "--timeout=60s"];
    context.kubectl.run(&gone)?;
    ensure!(product::stored(context.cluster, &uri)?, "{uri} is gone");
    Ok(())
}

/// Work that takes longer than its owner allows ends with a reason, and its pod is gone.
pub fn a_deadline_ends_the_work(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let limits = "spec:\n  limits: {activeDeadline: 1s}\n";
    context.kubectl.apply(&example(context, "late")?.replace("spec:\n", limits))?;
    let status = finished(context, "late", SOON)?;
    let failure = &status["failure"];
    ensure!(status["phase"] == "Failed" && failure["reason"] == "DeadlineExceeded", "{failure}");
    eventually("its pod to end", SOON, || {
        let running = ["get", "pods", "--field-selector=status.phase=Running", "-o", "name"];
        Ok(context.kubectl.run(&running)?.is_empty().then_some(()))
    })
}

/// A target whose device nobody has waits no longer than it may.
pub fn waiting_for_a_device_ends(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let limits = "spec:\n  limits: {pendingDeadline: 3s}\n";
    let yaml = example(context, "nowhere")?.replace("spec:\n", limits);
    context.kubectl.apply(&yaml.replace("arch: amd64, cpu: host", "arch: riscv64"))?;
    let status = finished(context, "nowhere", SOON)?;
    let message = status["failure"]["message"].as_str().unwrap_or_default();
    ensure!(status["phase"] == "Failed" && message.contains("riscv64"), "{}", status["failure"]);
    Ok(())
}

/// `kubectl port-forward`, which ends with the test.
struct Forward {
    child: Child,
    /// Held open: it ends when nobody reads what it says.
    said: BufReader<ChildStdout>,
}

impl Forward {
    fn start(context: &Context<'_>, pod: &str, port: u16) -> Result<Self> {
        let mut child = Command::new(program("kubectl"))
            .arg("--kubeconfig")
            .arg(context.kubectl.kubeconfig())
            .args([
                "--namespace",
                SYSTEM,
                "port-forward",
                &format!("pod/{pod}"),
                &format!(":{port}"),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .context("run kubectl port-forward")?;
        let said = child.stdout.take().context("it has an output")?;
        Ok(Self { child, said: BufReader::new(said) })
    }

    /// The port on this machine, from the line "Forwarding from 127.0.0.1:PORT -> …".
    fn port(&mut self) -> Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let address =
            line.split_whitespace().nth(2).with_context(|| format!("it said {line:?}"))?;
        Ok(address.rsplit(':').next().unwrap_or_default().to_owned())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The log's filter is read and changed in a running replica, by who may forward a port to it.
pub fn log_level_changes_at_run_time(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let mut forward = Forward::start(context, &product::leader(context.cluster)?, 8081)?;
    let url = format!("http://127.0.0.1:{}/loglevel", forward.port()?);
    let curl = |further: &[&str]| -> Result<String> {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", "-w", " %{http_code}"]).args(further).arg(&url);
        let output = command.output().context("run curl")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let before = curl(&[])?;
    ensure!(before.contains("hone_operator=debug") && before.ends_with(" 200"), "{before}");
    let refused = curl(&["-X", "PUT", "--data", "hone_operator=shout"])?;
    ensure!(refused.ends_with(" 400"), "{refused}");
    let changed = curl(&["-X", "PUT", "--data", "warn,hone_operator=trace"])?;
    ensure!(changed.ends_with(" 200"), "{changed}");
    let after = curl(&[])?;
    ensure!(after.contains("hone_operator=trace") && after.contains("warn"), "{after}");
    curl(&["-X", "PUT", "--data", "info,hone_operator=debug"]).map(drop)
}
