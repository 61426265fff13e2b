//! What people see, against a real API server: the columns of kubectl, short names, and the plugin `kubectl hone`. The
//! operator is played: its status is written by the test.
//!
//! The program is that of `cargo build --release` (`HONE_PROFILE=debug`: of a debug build).

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, product, program, render};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn prepare(context: &Context<'_>) -> Result<()> {
    let crds = render(&["--show-only", "templates/crds.yaml"])?;
    let kubectl = &context.kubectl;
    kubectl.run_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &crds)?;
    kubectl.wait("crd/modelcompilations.hone.dev", "Established", SOON)
}

fn compile(context: &Context<'_>, name: &str) -> Result<()> {
    context.kubectl.apply(&format!(
        "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: {name}}}\nspec:\n  model: {{uri: 's3://models/{name}.onnx'}}\n  targets: [{{name: amx, pool: amd64}}, {{name: edge, platform: {{arch: arm64}}}}]\n  output: {{uri: 's3://artifacts/{name}'}}\n"
    ))?;
    Ok(())
}

fn play(context: &Context<'_>, name: &str, status: Value) -> Result<()> {
    let object = format!("modelcompilation/{name}");
    let patch = json!({ "status": status }).to_string();
    let words = ["patch", &object, "--subresource=status", "--type=merge", "-p", &patch];
    context.kubectl.run(&words).map(drop)
}

fn condition(kind: &str, state: &str, reason: &str) -> Value {
    json!({"type": kind, "status": state, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
}

fn done() -> Value {
    let target = |name: &str, p50: &str, cache: &str| {
        json!({"name": name, "phase": "Succeeded", "pool": "amd64", "cache": cache, "latency": {"p50": p50},
            "artifact": {"uri": format!("s3://artifacts/digits/{name}.hone"), "digest": DIGEST, "sizeBytes": 1},
            "reportUri": format!("s3://artifacts/digits/{name}.uid.json"),
            "correctness": {"maxAbs": "2e-5", "maxRel": "8e-5", "passed": true}})
    };
    json!({"phase": "Succeeded", "observedGeneration": 1, "targetsReady": "2/2",
        "summary": {"latency": "amx 1.31ms, edge 4.2ms", "pool": "amd64", "cache": "Hit 1/2"},
        "conditions": [condition("Ready", "True", "Succeeded"), condition("Verified", "True", "Passed")],
        "targets": [target("amx", "1.31ms", "Hit"), target("edge", "4.2ms", "Miss")]})
}

/// `kubectl hone …` as a user types it, with the program in the search path.
fn hone(context: &Context<'_>, arguments: &[&str]) -> Result<(bool, String)> {
    let plugin = product::shipped("kubectl-hone");
    ensure!(plugin.exists(), "no {}: cargo xtask shipped builds it", plugin.display());
    let folder = plugin.parent().context("a folder")?.to_string_lossy().into_owned();
    let output = Command::new(program("kubectl"))
        .arg("hone")
        .args(arguments)
        .args(["--namespace", &context.namespace])
        .env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()))
        .env("KUBECONFIG", context.kubectl.kubeconfig())
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

fn columns_speak_of_all_targets(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    compile(context, "digits")?;
    play(context, "digits", done())?;
    let table = context.kubectl.run(&["get", "hmc"])?;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect())
        .collect();
    let head =
        ["NAME", "PHASE", "TARGETS", "LATENCY", "POOL", "VERIFIED", "CACHE", "REASON", "AGE"];
    ensure!(lines[0] == head, "{table}");
    let row = ["digits", "Succeeded", "2/2", "amx 1.31ms, edge 4.2ms", "amd64", "True", "Hit 1/2"];
    ensure!(lines[1][..7] == row, "{table}");
    let wide = context.kubectl.run(&["get", "hmc", "-o", "wide"])?;
    ensure!(wide.contains("s3://artifacts/digits/amx.uid.json"), "{wide}");
    Ok(())
}

fn short_names_are_nobody_elses(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    let all = context.kubectl.run(&["api-resources", "--api-group", "hone.dev", "--no-headers"])?;
    for (short, plural) in
        [("hmc", "modelcompilations"), ("htr", "tuningruns"), ("hdp", "devicepools")]
    {
        let line = all.lines().find(|line| line.starts_with(plural)).context("no such kind")?;
        ensure!(line.split_whitespace().nth(1) == Some(short), "{line}");
    }
    Ok(())
}

fn the_plugin_reads_and_asks_for_a_retry(context: &Context<'_>) -> Result<()> {
    prepare(context)?;
    compile(context, "broken")?;
    let failure = json!({"reason": "SecretNotFound", "message": "secret \"nope\" not found"});
    let target = |name: &str| json!({"name": name, "phase": "Failed", "failure": failure});
    play(
        context,
        "broken",
        json!({"phase": "Failed", "observedGeneration": 1, "targetsReady": "0/2",
        "conditions": [condition("Ready", "False", "SecretNotFound")], "failure": failure,
        "targets": [target("amx"), target("edge")]}),
    )?;
    let (fine, tree) = hone(context, &["tree", "broken"])?;
    ensure!(
        fine && tree.contains("├─ target amx  Failed") && tree.contains("└─ target edge"),
        "{tree}"
    );
    let (fine, why) = hone(context, &["why", "broken"])?;
    ensure!(fine && why.contains("acts     whoever wrote the compilation"), "{why}");
    let (fine, retry) = hone(context, &["retry", "broken"])?;
    ensure!(fine && retry.contains("broken is tried again: amx, edge"), "{retry}");
    let mark = context
        .kubectl
        .text("modelcompilation/broken", "{.metadata.annotations.hone\\.dev/retry}")?;
    ensure!(!mark.is_empty(), "the annotation is not set");
    compile(context, "digits")?;
    play(context, "digits", done())?;
    let (fine, diff) = hone(context, &["diff", "broken", "digits"])?;
    ensure!(fine && diff.contains("spec.model.uri") && diff.contains("amx: artifact"), "{diff}");
    let (fine, gone) = hone(context, &["why", "nothing"])?;
    ensure!(!fine && gone.contains("does not exist"), "{gone}");
    Ok(())
}

fn main() {
    Suite::new("console", ClusterOptions::default())
        .needs(&[Capability::Plane, Capability::Helm])
        .test("columns_speak_of_all_targets", columns_speak_of_all_targets)
        .test("short_names_are_nobody_elses", short_names_are_nobody_elses)
        .test("the_plugin_reads_and_asks_for_a_retry", the_plugin_reads_and_asks_for_a_retry)
        .main();
}
