//! `examples/pipelines`: each as far as it can be exercised without the product that it is for.
//! Health by Argo CD's and Flux's own code, the rest against a real API server, where this test plays
//! the operator. `examples/pipelines/README.md` says what is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hone_cluster_tests::{
    Capability, ClusterOptions, Context, Suite, eventually, program, render, repository, tool,
};
use serde_yaml::Value;

const SOON: Duration = Duration::from_secs(60);

fn example(path: &str) -> PathBuf {
    repository().join("examples/pipelines").join(path)
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(example(path)).with_context(|| format!("read examples/pipelines/{path}"))
}

fn yaml(path: &str) -> Result<Value> {
    serde_yaml::from_str(&text(path)?).with_context(|| format!("{path} is no YAML"))
}

/// A file's name, the object in it, and what each tool is to say of it.
type HealthCase = (String, String, BTreeMap<String, String>);

/// The objects of `tests/pipelines`, with what their first lines expect: `# argo=… kstatus=… flux=…`.
fn health_cases() -> Result<Vec<HealthCase>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(repository().join("tests/pipelines"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let first = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let words = first.with_context(|| format!("{} has no first line", path.display()))?;
        let expected = words
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(who, what)| (who.to_owned(), what.to_owned()))
            .collect();
        cases.push((path.to_string_lossy().into_owned(), text, expected));
    }
    ensure!(cases.len() >= 5, "only {} cases", cases.len());
    Ok(cases)
}

fn argo_cd_sees_health(_: &Context<'_>) -> Result<()> {
    let script = example("argo-cd/health.lua").to_string_lossy().into_owned();
    for (name, object, expected) in health_cases()? {
        let said = tool("argohealth", &["-", &script], &object)?;
        ensure!(
            said.split('\t').next() == expected.get("argo").map(String::as_str),
            "{name}: {said}"
        );
    }
    Ok(())
}

fn argocd_cm_holds_the_script(_: &Context<'_>) -> Result<()> {
    let map = yaml("argo-cd/argocd-cm.yaml")?;
    let custom = map["data"]["resource.customizations"].as_str().context("no customizations")?;
    let custom: Value = serde_yaml::from_str(custom)?;
    let script = custom["hone.dev/*"]["health.lua"].as_str().context("no health.lua")?;
    ensure!(script.trim_end() == text("argo-cd/health.lua")?.trim_end(), "they differ");
    Ok(())
}

fn flux_sees_health(_: &Context<'_>) -> Result<()> {
    for (name, object, expected) in health_cases()? {
        let said = tool("kstatus", &["-"], &object)?;
        let wanted = expected.get("kstatus").map(String::as_str);
        ensure!(said.split('\t').next() == wanted, "{name}: {said}");
    }
    Ok(())
}

/// The expressions by another implementation of CEL than Flux's, in Flux's order.
fn flux_expressions_agree(_: &Context<'_>) -> Result<()> {
    let flux = yaml("flux/kustomization.yaml")?;
    let rules = &flux["spec"]["healthCheckExprs"][0];
    ensure!(rules["kind"] == "ModelCompilation" && rules["apiVersion"] == "hone.dev/v1alpha1");
    for (name, object, expected) in health_cases()? {
        let object: Value = serde_yaml::from_str(&object)?;
        // Without a status Flux waits before it asks.
        if object["status"].is_null() {
            continue;
        }
        let mut found = "none";
        for state in ["inProgress", "failed", "current"] {
            let source = rules[state].as_str().context("no expression")?;
            let program =
                cel::Program::compile(source).map_err(|e| anyhow::anyhow!("{state}: {e}"))?;
            let mut context = cel::Context::default();
            for field in ["metadata", "spec", "status"] {
                let added = context.add_variable(field, &object[field]);
                added.map_err(|error| anyhow::anyhow!("{name}: {field}: {error}"))?;
            }
            let value = program.execute(&context).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
            if value == cel::Value::Bool(true) {
                found = state;
                break;
            }
        }
        ensure!(expected.get("flux").map(String::as_str) == Some(found), "{name}: {found}");
    }
    Ok(())
}

fn tasks_hold_the_script(_: &Context<'_>) -> Result<()> {
    let script = text("compile.sh")?;
    let tekton = yaml("tekton/task.yaml")?;
    let step = &tekton["spec"]["steps"][0];
    ensure!(step["script"].as_str() == Some(&script), "tekton/task.yaml differs from compile.sh");
    let kubeflow = yaml("kubeflow/component.yaml")?;
    let container = &kubeflow["implementation"]["container"];
    let held = container["command"][2].as_str().context("no script")?;
    ensure!(held.ends_with(&script), "kubeflow/component.yaml differs from compile.sh");
    // Every variable that the script reads is set by the step.
    for name in ["MANIFEST", "TIMEOUT", "ARTIFACT", "DIGEST", "LATENCY"] {
        let sets = step["env"].as_sequence().into_iter().flatten();
        ensure!(sets.filter(|one| one["name"] == name).count() == 1, "tekton does not set {name}");
        ensure!(held.contains(&format!("{name}=$")), "kubeflow does not set {name}");
    }
    Ok(())
}

/// The CRDs, and a kubeconfig of the account of `rbac.yaml` in the test's namespace.
fn prepare(context: &Context<'_>, folder: &std::path::Path) -> Result<PathBuf> {
    let kubectl = &context.kubectl;
    let crds = render(&["--show-only", "templates/crds.yaml"])?;
    kubectl.run_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &crds)?;
    kubectl.wait("crd/modelcompilations.hone.dev", "Established", SOON)?;
    kubectl.apply(&text("rbac.yaml")?)?;
    let config = folder.join("kubeconfig");
    fs::copy(kubectl.kubeconfig(), &config)?;
    let token = eventually("a token", SOON, || {
        kubectl.run(&["create", "token", "hone-pipeline"]).map(Some)
    })?;
    for words in [
        format!("set-credentials pipeline --token={}", token.trim()),
        format!("set-context --current --user=pipeline --namespace={}", context.namespace),
    ] {
        let config = config.to_string_lossy();
        let words = words.split_whitespace();
        let arguments: Vec<&str> =
            ["config", "--kubeconfig", &config].into_iter().chain(words).collect();
        tool("kubectl", &arguments, "")?;
    }
    Ok(config)
}

fn manifest(model: &str) -> String {
    format!(
        "apiVersion: hone.dev/v1alpha1\nkind: ModelCompilation\nmetadata: {{name: m}}\nspec:\n  model: {{uri: '{model}'}}\n  targets: [{{name: main, pool: p}}]\n  output: {{uri: 's3://artifacts/m'}}\n"
    )
}

/// Plays the operator: writes the status of one of the cases, for the object as it is now.
fn play(context: &Context<'_>, case: &str, target: &str) -> Result<()> {
    let path = repository().join("tests/pipelines").join(case);
    let object: Value = serde_yaml::from_str(&fs::read_to_string(path)?)?;
    let mut status: serde_json::Value = serde_json::to_value(&object["status"])?;
    let generation = context.kubectl.json("modelcompilation/m")?["metadata"]["generation"].clone();
    status["observedGeneration"] = generation.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["observedGeneration"] = generation.clone();
    }
    let further: Value = serde_yaml::from_str(target)?;
    for (key, value) in further.as_mapping().into_iter().flatten() {
        let key = key.as_str().context("a key")?;
        status[key] = serde_json::to_value(value)?;
    }
    let patch = serde_json::json!({ "status": status }).to_string();
    let words =
        ["patch", "modelcompilation/m", "--subresource=status", "--type=merge", "-p", &patch];
    context.kubectl.run(&words).map(drop)
}

const DONE: &str = "targets: [{name: main, phase: Succeeded, artifact: {uri: 's3://artifacts/m/main.hone', digest: 'sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', sizeBytes: 1}, latency: {p50: 1.31ms, p90: 1.4ms, ciLow: 1.3ms, ciHigh: 1.32ms}}]";
const FAILED: &str =
    "failure: {reason: UnsupportedOperator, message: 'node n (Foo): no such operator'}";

/// A running step. What it is asked to write lies in `folder`.
fn step(
    config: &std::path::Path,
    folder: &std::path::Path,
    command: &[String],
) -> Result<std::process::Child> {
    let path = std::env::var("PATH").unwrap_or_default();
    let kubectl = program("kubectl");
    let ours = kubectl.parent().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    Command::new("sh")
        .args(command)
        .env("PATH", format!("{ours}:{path}"))
        .env("KUBECONFIG", config)
        .envs([
            ("ARTIFACT", file("artifact")),
            ("DIGEST", file("digest")),
            ("LATENCY", file("latency")),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run sh")
}

fn ended(child: std::process::Child) -> Result<Output> {
    child.wait_with_output().context("cannot wait for the step")
}

/// The Tekton task's script: it waits, returns results, does not take an old result for the new one,
/// and fails with the reason.
fn tekton_step_waits_and_reads(context: &Context<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = prepare(context, folder.path())?;
    let tekton = yaml("tekton/task.yaml")?;
    let script = tekton["spec"]["steps"][0]["script"].as_str().context("no script")?.to_owned();
    let command = ["-c".to_owned(), script];
    let start = |model: &str| {
        let manifest = manifest(model);
        // Safe: the child gets its own copy of the environment.
        let mut with = command.to_vec();
        with[1] =
            format!("MANIFEST='{}' TIMEOUT=60s\n{}", manifest.replace('\'', "'\\''"), command[1]);
        step(&config, folder.path(), &with)
    };
    let first = start("s3://models/one.onnx")?;
    eventually("the object", SOON, || context.kubectl.json("modelcompilation/m").map(Some))?;
    play(context, "running.yaml", "{}")?;
    play(context, "succeeded.yaml", DONE)?;
    let output = ended(first)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| fs::read_to_string(folder.path().join(name));
    ensure!(read("artifact")? == "s3://artifacts/m/main.hone" && read("latency")? == "1.31ms");
    ensure!(read("digest")?.starts_with("sha256:aaaa"));

    let mut second = start("s3://models/two.onnx")?;
    context.kubectl.until("modelcompilation/m", "{.metadata.generation}", "2", SOON)?;
    std::thread::sleep(Duration::from_millis(1500));
    ensure!(second.try_wait()?.is_none(), "it took the first result for the second's");
    play(context, "failed.yaml", FAILED)?;
    let output = ended(second)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("UnsupportedOperator: node n"),
        "{said}"
    );
    Ok(())
}

/// The Kubeflow component's command with its arguments in the order in which they are declared.
fn kubeflow_step_waits_and_reads(context: &Context<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = prepare(context, folder.path())?;
    let component = yaml("kubeflow/component.yaml")?;
    let container = &component["implementation"]["container"];
    let command = container["command"].as_sequence().context("no command")?;
    let mut words: Vec<String> =
        command.iter().skip(1).filter_map(Value::as_str).map(str::to_owned).collect();
    for argument in container["args"].as_sequence().context("no args")? {
        words.push(match (argument["inputValue"].as_str(), argument["outputPath"].as_str()) {
            (Some("manifest"), _) => manifest("s3://models/one.onnx"),
            (Some("timeout"), _) => "60s".to_owned(),
            (_, Some(name)) => folder.path().join("out").join(name).to_string_lossy().into_owned(),
            _ => bail!("unknown argument {argument:?}"),
        });
    }
    let child = step(&config, folder.path(), &words)?;
    eventually("the object", SOON, || context.kubectl.json("modelcompilation/m").map(Some))?;
    play(context, "succeeded.yaml", DONE)?;
    let output = ended(child)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let artifact = fs::read_to_string(folder.path().join("out/artifact"))?;
    ensure!(artifact == "s3://artifacts/m/main.hone", "{artifact}");
    Ok(())
}

/// What Argo Workflows does with its `resource` template, by kubectl: the manifest is accepted, the
/// two conditions look at scalars, and the outputs are found.
fn argo_workflow_manifest_is_accepted(context: &Context<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    prepare(context, folder.path())?;
    let workflow = yaml("argo-workflows/compile.yaml")?;
    let templates = workflow["spec"]["templates"].as_sequence().context("no templates")?;
    let compile = templates.iter().find(|t| t["name"] == "compile").context("no compile")?;
    let resource = &compile["resource"];
    let digest = format!("sha256:{}", "a".repeat(64));
    let mut manifest = resource["manifest"].as_str().context("no manifest")?.to_owned();
    // An object of an earlier run would be finished before the operator has looked at this one.
    let own = "name: {{workflow.parameters.name}}-{{workflow.uid}}\n";
    ensure!(manifest.contains(own), "the object is not the workflow's own: {manifest}");
    manifest = manifest.replace("-{{workflow.uid}}", "");
    for (name, value) in [
        ("name", "m"),
        ("model", "s3://models/m.onnx"),
        ("digest", &digest),
        ("pool", "p"),
        ("output", "s3://artifacts/m"),
        ("credentials", "store"),
    ] {
        manifest = manifest.replace(&format!("{{{{workflow.parameters.{name}}}}}"), value);
    }
    ensure!(!manifest.contains("{{"), "{manifest}");
    context.kubectl.apply(&manifest)?;
    for (case, further, condition) in
        [("failed.yaml", FAILED, "failureCondition"), ("succeeded.yaml", DONE, "successCondition")]
    {
        play(context, case, further)?;
        let words = resource[condition].as_str().context("no condition")?;
        let (path, wanted) = words.split_once(" == ").context("a condition of one scalar")?;
        let found = context.kubectl.text("modelcompilation/m", &format!("{{.{path}}}"))?;
        ensure!(found == wanted, "{condition}: {found:?}");
    }
    for output in compile["outputs"]["parameters"].as_sequence().context("no outputs")? {
        let path = output["valueFrom"]["jsonPath"].as_str().context("no path")?;
        let found = context.kubectl.text("modelcompilation/m", path)?;
        ensure!(!found.is_empty(), "{path} finds nothing");
    }
    Ok(())
}

fn main() {
    let plane = Capability::Plane;
    Suite::new("pipelines", ClusterOptions::default())
        .needs(&[])
        .test("argocd_cm_holds_the_script", argocd_cm_holds_the_script)
        .test("flux_expressions_agree", flux_expressions_agree)
        .test("tasks_hold_the_script", tasks_hold_the_script)
        .needs(&[plane, Capability::Argohealth])
        .test("argo_cd_sees_health", argo_cd_sees_health)
        .needs(&[plane, Capability::Kstatus])
        .test("flux_sees_health", flux_sees_health)
        .needs(&[plane, Capability::Helm, Capability::Controllers])
        .test("tekton_step_waits_and_reads", tekton_step_waits_and_reads)
        .test("kubeflow_step_waits_and_reads", kubeflow_step_waits_and_reads)
        .test("argo_workflow_manifest_is_accepted", argo_workflow_manifest_is_accepted)
        .main();
}
