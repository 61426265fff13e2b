//! `make demo-cluster`: Kubernetes on this machine, Hone installed in it, a model compiled by
//! `kubectl apply`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Capabilities, Capability, Cluster, Kubectl, State, product};
use serde_json::Value;

use crate::{repository, shipped};

mod watch;

/// Arguments of `demo-cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Leave the cluster up and say how to reach it.
    #[arg(long)]
    keep: bool,
    /// The ModelCompilation to apply.
    #[arg(long, default_value = "examples/kubernetes/digits.yaml")]
    file: PathBuf,
}

/// Runs the chore.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = repository::root();
    say("building the programs as they ship (cargo xtask shipped)");
    shipped::run()?;
    say("setting up a control plane, a node, an object store and helm (minutes the first time)");
    if let State::Impossible(why) = Capabilities::read()?.state(Capability::Node) {
        bail!(
            "this machine cannot run a node: {why}; hone compile -f runs the same file without one"
        );
    }
    succeed(
        Command::new(root.join("tests/cluster/setup.sh")).args(["node", "s3", "images", "helm"]),
    )?;
    say("writing the images, starting the cluster");
    let start = Instant::now();
    let cluster = Cluster::start(&product::options()?)?;
    println!("  the node is ready after {:.1} s", start.elapsed().as_secs_f64());
    say("helm install hone charts/hone --namespace hone-system");
    let start = Instant::now();
    product::install(&cluster)?;
    println!("  both replicas are ready after {:.1} s", start.elapsed().as_secs_f64());
    let shown = demonstrate(&cluster, &root, &arguments.file);
    if arguments.keep {
        println!("\nexport KUBECONFIG={}", cluster.kubectl().kubeconfig().display());
        println!("it stays up until you press Ctrl-C");
        std::thread::park();
    }
    shown
}

fn demonstrate(cluster: &Cluster, root: &Path, file: &Path) -> Result<()> {
    let kubectl = cluster.kubectl().in_namespace("default");
    product::store_secret(cluster, &kubectl)?;
    for name in ["digits.onnx", "test-images.npz"] {
        product::upload(
            cluster,
            &root.join("examples/digits").join(name),
            &format!("models/{name}"),
        )?;
    }
    let path = root.join(file);
    let yaml =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    say(&format!("kubectl apply -f {}", file.display()));
    let status = apply(&kubectl, &yaml, "digits")?;
    say("again under another name: the result is there already, no pod is made");
    apply(&kubectl, &yaml.replacen("name: digits", "name: digits-again", 1), "digits-again")?;
    say("the artifact, downloaded and compared with hone compile -f on the same file");
    compare(cluster, &path, &status)?;
    watch::table(&status);
    Ok(())
}

/// Applies, and shows the status as it changes until it is finished.
fn apply(kubectl: &Kubectl, yaml: &str, name: &str) -> Result<Value> {
    let start = Instant::now();
    kubectl.apply(yaml)?;
    let status = watch::until_finished(kubectl, name, start)?;
    ensure!(status["phase"] == "Succeeded", "it failed: {}", status["failure"]);
    Ok(status)
}

fn compare(cluster: &Cluster, yaml: &Path, status: &Value) -> Result<()> {
    let folder = repository::scratch().join("demo-cluster");
    std::fs::create_dir_all(&folder)?;
    let artifact = &status["targets"][0]["artifact"];
    let file = folder.join("digits.hone");
    product::download(cluster, artifact["uri"].as_str().context("no artifact")?, &file)?;
    let hone = product::shipped("hone");
    let local = Command::new(&hone)
        .args(["compile", "-f"])
        .arg(yaml)
        .arg("--out")
        .arg(folder.join("local"))
        .args(["--no-measure", "--json"])
        .envs(product::store_options(cluster, "HONE_S3_ENDPOINT")?)
        .env("HONE_FETCH_ALLOW", product::fetch_allow(cluster, "HONE_S3_ENDPOINT")?.join(","))
        .output()
        .context("run hone compile")?;
    let said = String::from_utf8_lossy(&local.stderr);
    ensure!(local.status.success(), "hone compile failed: {said}");
    let local: Value = serde_json::from_slice(&local.stdout)?;
    let digest = &local["targets"][0]["report"]["artifact"]["digest"];
    println!("  cluster  {}", artifact["digest"].as_str().unwrap_or_default());
    println!("  local    {}", digest.as_str().unwrap_or_default());
    ensure!(*digest == artifact["digest"], "they differ");
    println!("  hone verify {}", file.display());
    succeed(
        Command::new(&hone)
            .arg("verify")
            .arg(&file)
            .args(["--model", "examples/digits/digits.onnx"])
            .current_dir(repository::root()),
    )
}

fn say(text: &str) {
    println!("\n== {text}");
}

fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("run {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}
