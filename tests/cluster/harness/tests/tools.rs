//! The programs around the cluster: object store, helm, and the health engines of Flux and Argo CD.

use std::process::Command;
use std::{fs, str};

use anyhow::{Context as _, Result, ensure};
use hone_cluster_tests::{Capability, ClusterOptions, Context, Suite, tool};

/// `curl` with a signature for the S3 server; returns the HTTP status and the body.
fn s3(context: &Context<'_>, arguments: &[&str], path: &str) -> Result<(String, String)> {
    let endpoint = context.cluster.variable("HONE_S3_ENDPOINT")?;
    let key = context.cluster.variable("HONE_S3_ACCESS_KEY")?;
    let secret = context.cluster.variable("HONE_S3_SECRET_KEY")?;
    let output = Command::new("curl")
        .args(["-s", "-w", "\n%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3"])
        // Older versions of curl do not add this by themselves.
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(["--user", &format!("{key}:{secret}")])
        .args(arguments)
        .arg(format!("{endpoint}/{path}"))
        .output()
        .context("cannot run curl")?;
    let text = str::from_utf8(&output.stdout)?;
    let (body, status) = text.rsplit_once('\n').context("curl printed no status")?;
    Ok((status.to_owned(), body.to_owned()))
}

fn put(context: &Context<'_>, condition: &str, body: &str, path: &str) -> Result<String> {
    Ok(s3(context, &["-X", "PUT", "-H", condition, "-d", body], path)?.0)
}

fn s3_writes_are_conditional(context: &Context<'_>) -> Result<()> {
    let path = format!("artifacts/{}", context.namespace);
    let created = put(context, "If-None-Match: *", "one", &path)?;
    ensure!(created == "200", "create answered {created}");
    let again = put(context, "If-None-Match: *", "two", &path)?;
    ensure!(again == "412", "a second create answered {again}");
    let (status, body) = s3(context, &[], &path)?;
    ensure!(status == "200" && body == "one", "{status} {body:?}");
    // The tag of "one" in S3 is its MD5.
    let tag = "f97c5d29941bfb1b2fdab0874906ab82";
    let swapped = put(context, &format!("If-Match: \"{tag}\""), "two", &path)?;
    ensure!(swapped == "200", "compare-and-swap answered {swapped}");
    let stale = put(context, &format!("If-Match: \"{tag}\""), "three", &path)?;
    ensure!(stale == "412", "a stale compare-and-swap answered {stale}");
    let (_, body) = s3(context, &[], &path)?;
    ensure!(body == "two", "{body:?}");
    Ok(())
}

const OBJECT: &str = "
apiVersion: example.com/v1
kind: Thing
metadata: {name: t, namespace: default, generation: 2}
status:
  observedGeneration: 2
  conditions:
  - {type: CONDITION, status: 'True', reason: R, message: told, lastTransitionTime: '2026-01-01T00:00:00Z'}
";

fn flux_computes_health(_: &Context<'_>) -> Result<()> {
    for (condition, health) in
        [("Ready", "Current"), ("Reconciling", "InProgress"), ("Stalled", "Failed")]
    {
        let said = tool("kstatus", &["-"], &OBJECT.replace("CONDITION", condition))?;
        ensure!(said.starts_with(health), "{condition}: {said:?}");
    }
    Ok(())
}

fn argo_runs_health_scripts(_: &Context<'_>) -> Result<()> {
    let script = tempfile::NamedTempFile::new()?;
    fs::write(
        script.path(),
        "
local h = {status = 'Progressing', message = ''}
for _, c in ipairs(obj.status.conditions) do
  if c.type == 'Ready' and c.status == 'True' then h.status = 'Healthy'; h.message = c.message end
end
return h
",
    )?;
    let path = script.path().to_string_lossy();
    let ready = tool("argohealth", &["-", &path], &OBJECT.replace("CONDITION", "Ready"))?;
    ensure!(ready == "Healthy\ttold\n", "{ready:?}");
    let other = tool("argohealth", &["-", &path], &OBJECT.replace("CONDITION", "Other"))?;
    ensure!(other.starts_with("Progressing"), "{other:?}");
    Ok(())
}

/// A chart of one ConfigMap: installed, upgraded and uninstalled.
fn helm_installs_a_chart(context: &Context<'_>) -> Result<()> {
    let chart = tempfile::tempdir()?;
    fs::create_dir(chart.path().join("templates"))?;
    fs::write(
        chart.path().join("Chart.yaml"),
        "{apiVersion: v2, name: c, version: 0.1.0, kubeVersion: '>=1.30.0-0'}",
    )?;
    fs::write(
        chart.path().join("templates/cm.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {k: {{ .Values.k | quote }}}\n",
    )?;
    let (path, kubectl) = (chart.path().to_string_lossy(), &context.kubectl);
    let kubeconfig = kubectl.kubeconfig().to_string_lossy();
    let helm = |arguments: &[&str]| {
        let common = ["--kubeconfig", &kubeconfig, "--namespace", &context.namespace];
        tool("helm", &[arguments, &common].concat(), "")
    };
    helm(&["install", "r", &path, "--set", "k=one"])?;
    ensure!(kubectl.text("configmap/r", "{.data.k}")? == "one");
    helm(&["upgrade", "r", &path, "--set", "k=two"])?;
    ensure!(kubectl.text("configmap/r", "{.data.k}")? == "two");
    helm(&["uninstall", "r"])?;
    ensure!(kubectl.text("configmap/r", "{.data.k}").is_err());
    Ok(())
}

/// Schemas of the running API server, strict enough to find a misspelt field.
fn kubeconform_finds_unknown_fields(context: &Context<'_>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let location = context.cluster.write_schemas(directory.path())?;
    let check =
        |yaml: &str| tool("kubeconform", &["-strict", "-schema-location", &location, "-"], yaml);
    let job = "
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {a: b}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {cpu: 1, memory: 1Gi}}, livenessProbe: {httpGet: {port: http}}}]
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {ports: [{port: 80, targetPort: 8080}]}
";
    check(job)?;
    let misspelt = check(&job.replace("backoffLimit", "backofLimit"));
    let message = misspelt.map_or_else(|error| format!("{error:#}"), |_| String::new());
    ensure!(message.contains("backofLimit"), "{message:?}");
    Ok(())
}

fn main() {
    let options = ClusterOptions::default().s3_where_set_up();
    let plane = Capability::Plane;
    Suite::new("tools", options)
        .needs(&[plane, Capability::S3])
        .test("s3_writes_are_conditional", s3_writes_are_conditional)
        .needs(&[plane, Capability::Kubeconform])
        .test("kubeconform_finds_unknown_fields", kubeconform_finds_unknown_fields)
        .needs(&[plane, Capability::Kstatus])
        .test("flux_computes_health", flux_computes_health)
        .needs(&[plane, Capability::Argohealth])
        .test("argo_runs_health_scripts", argo_runs_health_scripts)
        .needs(&[plane, Capability::Helm])
        .test("helm_installs_a_chart", helm_installs_a_chart)
        .main();
}
