//! Tekton's own controller before Hone's, on a real control plane with simulated nodes: a pipeline whose tasks are
//! compilations. What its webhooks would default and check is not there, as `examples/pipelines/README.md` says.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::simulated::{Operator, SOON, begin_with, holders, items};
use hone_cluster_tests::{
    Capability, ClusterOptions, Context, Suite, eventually, program, repository,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Where Tekton keeps its settings.
const SYSTEM: &str = "tekton-pipelines";
/// Ports of Tekton's probes and metrics: the tests of this suite run one after another.
const PORTS: [(&str, &str); 2] = [("PROBES_PORT", "19480"), ("METRICS_PROMETHEUS_PORT", "19490")];
/// Images that Tekton asks to be told, and that no pod of these tests has.
const IMAGES: [&str; 6] = [
    "-entrypoint-image",
    "-sidecarlogresults-image",
    "-nop-image",
    "-shell-image",
    "-shell-image-win",
    "-workingdirinit-image",
];

/// Tekton's controller, ended when this is dropped.
struct Tekton(Child);

impl Tekton {
    /// Starts it for the namespace of `context`, with its kinds and settings as its own release has them.
    fn start(context: &Context<'_>) -> Result<Self> {
        let kubectl = context.cluster.kubectl();
        let built = program("tekton.d");
        let namespace =
            format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {SYSTEM}}}}}");
        kubectl.apply(&namespace)?;
        let settings = built.join("settings.yaml").to_string_lossy().into_owned();
        kubectl.run(&["apply", "--server-side", "-f", &settings])?;
        kubectl
            .run_with(&["apply", "--server-side", "-f", "-"], &kinds(&built.join("crds.yaml"))?)?;
        for kind in ["pipelines", "pipelineruns", "taskruns", "customruns"] {
            kubectl.wait(&format!("crd/{kind}.tekton.dev"), "Established", SOON)?;
        }
        let log = File::create(context.cluster.directory().join("tekton.log"))?;
        let images = IMAGES.iter().flat_map(|image| [image, "none"]);
        let child = Command::new(program("tekton"))
            .args(images)
            .args(["-disable-ha", "-namespace", &context.namespace])
            .env("KUBECONFIG", kubectl.kubeconfig())
            .env("SYSTEM_NAMESPACE", SYSTEM)
            .env("CONFIG_LEADERELECTION_NAME", "config-leader-election-controller")
            .envs(PORTS)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("run Tekton's controller")?;
        Ok(Self(child))
    }
}

impl Drop for Tekton {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tekton's kinds, without conversion between their versions, which its webhook would do: one version is used here.
fn kinds(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let mut kinds = String::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let mut kind = Value::deserialize(document)?;
        let Some(spec) = kind["spec"].as_object_mut() else { continue };
        spec.remove("conversion");
        kinds.push_str(&format!("---\n{kind}\n"));
    }
    Ok(kinds)
}

/// Both controllers.
fn both(context: &Context<'_>) -> Result<(Tekton, Operator)> {
    let tekton = Tekton::start(context)?;
    let operator = begin_with(context, "", &[("HONE_TEKTON", "true")])?;
    Ok((tekton, operator))
}

/// Applies objects of kinds that the API server has begun to serve just now.
fn applied(context: &Context<'_>, yaml: &str) -> Result<()> {
    eventually("them to be taken", SOON, || Ok(context.kubectl.apply(yaml).ok())).map(drop)
}

/// The pipeline of the example, in the test's own pool.
fn example(context: &Context<'_>) -> Result<()> {
    let path = repository().join("examples/pipelines/tekton/pipeline.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    applied(context, &text)
}

/// Runs the example's pipeline as `name`, where a worker takes `duration`.
fn run_example(context: &Context<'_>, name: &str, duration: &str) -> Result<()> {
    let value = |name: &str, value: &str| json!({"name": name, "value": value});
    let run = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": name, "annotations": {"simulate.hone.dev/duration": duration}},
        "spec": {"pipelineRef": {"name": "hone-compile"}, "params": [
            value("model", "s3://models/x.onnx"), value("pool", &context.namespace),
            value("output", "s3://artifacts"), value("credentials", "store"),
        ]},
    });
    applied(context, &run.to_string())
}

/// Runs a pipeline of one task, a compilation whose worker does as `annotations` say, with `further` of the task.
fn run_one(context: &Context<'_>, name: &str, annotations: &Value, further: Value) -> Result<()> {
    let mut task = json!({"name": "compile", "taskSpec": {
        "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"annotations": annotations},
        "spec": {
            "model": {"uri": "s3://models/x.onnx"}, "output": {"uri": "s3://artifacts"},
            "targets": [{"name": "main", "pool": context.namespace}], "limits": {"retries": 0},
        },
    }});
    for (key, value) in further.as_object().into_iter().flatten() {
        task[key] = value.clone();
    }
    let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": name},
        "spec": {"pipelineSpec": {"tasks": [task]}}});
    applied(context, &run.to_string())
}

/// Waits until a PipelineRun's `Succeeded` is `status`, and returns the condition.
fn ended(context: &Context<'_>, name: &str, status: &str) -> Result<Value> {
    eventually(&format!("{name} to be {status}"), SOON, || {
        let run = context.kubectl.json(&format!("pipelinerun/{name}"))?;
        let condition = run["status"]["conditions"][0].clone();
        Ok((condition["status"] == status).then_some(condition))
    })
}

/// The only CustomRun of a PipelineRun.
fn custom_run(context: &Context<'_>, pipeline: &str) -> Result<Value> {
    let mut runs = items(context, &format!("customruns -l tekton.dev/pipelineRun={pipeline}"))?;
    ensure!(runs.len() == 1, "{} CustomRuns", runs.len());
    Ok(runs.remove(0))
}

/// Waits until something holds a device, so that a worker runs.
fn works(context: &Context<'_>) -> Result<()> {
    eventually("a worker", SOON, || {
        let all = items(context, "modelcompilations")?;
        Ok(all.iter().any(|own| own["status"]["phase"] == "Running").then_some(()))
    })
}

/// The example: its first compilation's artifact is the second one's parameter, and the results are the pipeline's.
fn a_pipeline_hands_results_on(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    example(context)?;
    run_example(context, "release", "1s")?;
    ended(context, "release", "True")?;
    let run = context.kubectl.json("pipelinerun/release")?;
    let results = run["status"]["results"].as_array().context("no results")?;
    let result =
        |name: &str| results.iter().find(|own| own["name"] == name).map(|own| &own["value"]);
    let made = items(context, "modelcompilations -l tekton.dev/pipelineRun=release")?;
    ensure!(made.len() == 1, "{} compilations", made.len());
    let target = &made[0]["status"]["targets"][0];
    for (name, found) in [("artifact", "uri"), ("digest", "digest")] {
        let expected = &target["artifact"][found];
        ensure!(expected.is_string() && result(name) == Some(expected), "{name}: {results:?}");
    }
    // It goes with its run, and that with the pipeline's.
    context.kubectl.run(&["delete", "pipelinerun/release", "--wait=false"])?;
    eventually("everything to go", SOON, || {
        Ok(items(context, "modelcompilations")?.is_empty().then_some(()))
    })
}

/// One task's result is a parameter of the next.
fn a_result_is_the_next_tasks_parameter(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    let task = |name: &str, params: Value| {
        json!({"name": name, "taskSpec": {
            "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
            "spec": {"targets": [{"name": "main", "pool": context.namespace}], "output": {"uri": "s3://artifacts"}},
        }, "params": params})
    };
    let first = task("first", json!([{"name": "model.uri", "value": "s3://models/x.onnx"}]));
    let from_first = "$(tasks.first.results.artifact)";
    let second = task("second", json!([{"name": "model.uri", "value": from_first}]));
    let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "chain"},
        "spec": {"pipelineSpec": {"tasks": [first, second]}}});
    applied(context, &run.to_string())?;
    ended(context, "chain", "True")?;
    let of = |name: &str| context.kubectl.json(&format!("modelcompilation/chain-{name}"));
    let artifact = of("first")?["status"]["targets"][0]["artifact"]["uri"].clone();
    let model = of("second")?["spec"]["model"]["uri"].clone();
    ensure!(artifact.is_string() && artifact == model, "{artifact} and {model}");
    Ok(())
}

/// Cancelling the pipeline's run frees the device.
fn a_cancelled_pipeline_stops_its_compilation(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    run_one(context, "cancelled", &json!({"simulate.hone.dev/duration": "10m"}), json!({}))?;
    works(context)?;
    let cancel = json!({"spec": {"status": "Cancelled"}}).to_string();
    context.kubectl.run(&["patch", "pipelinerun/cancelled", "--type=merge", "-p", &cancel])?;
    let condition = ended(context, "cancelled", "False")?;
    ensure!(condition["reason"] == "Cancelled", "{condition}");
    let run = custom_run(context, "cancelled")?;
    ensure!(run["status"]["conditions"][0]["reason"] == "CustomRunCancelled", "{run}");
    context.kubectl.until(
        "modelcompilation/cancelled-compile",
        "{.status.phase}",
        "Suspended",
        SOON,
    )?;
    eventually("the device back", SOON, || Ok(holders(context)?.is_empty().then_some(())))
}

/// The task's own timeout, of each attempt.
fn a_task_that_takes_too_long_is_timed_out(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    let duration = json!({"simulate.hone.dev/duration": "10m"});
    run_one(context, "slow", &duration, json!({"timeout": "6s", "retries": 1}))?;
    ended(context, "slow", "False")?;
    let run = custom_run(context, "slow")?;
    ensure!(run["status"]["conditions"][0]["reason"] == "CustomRunTimedOut", "{run}");
    let earlier = &run["status"]["retriesStatus"][0]["conditions"][0]["reason"];
    ensure!(earlier == "CustomRunTimedOut", "{run}");
    for name in ["slow-compile", "slow-compile-retry1"] {
        context.kubectl.until(
            &format!("modelcompilation/{name}"),
            "{.spec.suspend}",
            "true",
            SOON,
        )?;
    }
    Ok(())
}

/// A worker that fails fails the attempt, the next one, and then the pipeline, with the compilation's reason.
fn a_failed_attempt_is_followed_by_another(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    let report =
        json!({"version": 1, "failure": {"reason": "InternalError", "message": "told to fail"}});
    let fails = json!({
        "simulate.hone.dev/exit-code": "1", "simulate.hone.dev/message": report.to_string(),
    });
    run_one(context, "failing", &fails, json!({"retries": 1}))?;
    let condition = ended(context, "failing", "False")?;
    ensure!(condition["reason"] == "Failed", "{condition}");
    let run = custom_run(context, "failing")?;
    let status = &run["status"];
    ensure!(status["retriesStatus"].as_array().map(Vec::len) == Some(1), "{status}");
    let second = context.kubectl.json("modelcompilation/failing-compile-retry1")?;
    let reason = &second["status"]["failure"]["reason"];
    ensure!(reason.is_string() && status["conditions"][0]["reason"] == *reason, "{status}");
    Ok(())
}

/// A task that names a suspended compilation runs what that one would, with parameters before it.
fn a_task_runs_a_template(context: &Context<'_>) -> Result<()> {
    let _both = both(context)?;
    let template = json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"name": "template"}, "spec": {
            "suspend": true, "model": {"uri": "s3://models/x.onnx"}, "output": {"uri": "s3://artifacts"},
            "targets": [{"name": "main", "pool": context.namespace}]}});
    let reference =
        json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "name": "template"});
    let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "templated"},
        "spec": {"pipelineSpec": {"tasks": [{"name": "compile", "taskRef": reference,
            "params": [{"name": "model.uri", "value": "s3://models/y.onnx"}]}]}}});
    let both = format!("{template}\n---\n{run}\n");
    applied(context, &both)?;
    ended(context, "templated", "True")?;
    let made = context.kubectl.json("modelcompilation/templated-compile")?;
    ensure!(made["spec"]["model"]["uri"] == "s3://models/y.onnx", "{made}");
    let template = context.kubectl.text("modelcompilation/template", "{.status.phase}")?;
    ensure!(template == "Suspended", "the template is {template}");
    Ok(())
}

fn main() {
    let options = ClusterOptions { simulated_nodes: Some(2), ..ClusterOptions::default() };
    Suite::new("tekton", options)
        .needs(&[Capability::Plane, Capability::Kwok, Capability::Product, Capability::Tekton])
        .alone("a_pipeline_hands_results_on", a_pipeline_hands_results_on)
        .alone("a_result_is_the_next_tasks_parameter", a_result_is_the_next_tasks_parameter)
        .alone(
            "a_cancelled_pipeline_stops_its_compilation",
            a_cancelled_pipeline_stops_its_compilation,
        )
        .alone("a_task_that_takes_too_long_is_timed_out", a_task_that_takes_too_long_is_timed_out)
        .alone("a_failed_attempt_is_followed_by_another", a_failed_attempt_is_followed_by_another)
        .alone("a_task_runs_a_template", a_task_runs_a_template)
        .main();
}
