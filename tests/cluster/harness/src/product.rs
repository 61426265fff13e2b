//! The product as users install it: images from release builds, the chart, a pool, a store.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};

use crate::helm::{Helm, chart, repository};
use crate::scripts::{run, scripts_dir};
use crate::{Capabilities, Capability, Cluster, ClusterOptions, Kubectl, State};

/// Where the operator is installed.
pub const SYSTEM: &str = "hone-system";
const TAG: &str = "test";

/// The folder in which cargo builds.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// A program of ours as it ships.
pub fn shipped(name: &str) -> PathBuf {
    let profile = std::env::var("HONE_PROFILE").unwrap_or_else(|_| "release".to_owned());
    target_dir().join(profile).join(name)
}

/// A cluster with a real node, a store and both images, where all of that is to be had; else one
/// that is never started, because its tests are left out.
///
/// # Errors
/// When the images cannot be written.
pub fn options() -> Result<ClusterOptions> {
    let options = ClusterOptions { node: true, s3: true, ..ClusterOptions::default() };
    let known = Capabilities::read()?;
    let there = |capability| known.state(capability) == State::Yes;
    if !there(Capability::Product) || !there(Capability::Images) {
        return Ok(options);
    }
    let folder = target_dir().join("hone-images");
    let mut command = Command::new(scripts_dir().join("images.sh"));
    command.env("HONE_IMAGE_TAG", TAG).env("HONE_IMAGE_OUT", &folder);
    command.env("CARGO_TARGET_DIR", target_dir());
    run(command, "")?;
    let images = ["operator.tar", "worker.tar"].map(|name| folder.join(name)).to_vec();
    Ok(ClusterOptions { images, ..options })
}

/// What the product's tests need.
pub const NEEDS: [Capability; 5] =
    [Capability::Node, Capability::S3, Capability::Images, Capability::Helm, Capability::Product];

/// Installs the chart with the images of [`options`], into a namespace that enforces the restricted
/// standard, and a pool of all nodes; once for a cluster, however often it is called.
///
/// # Errors
/// When the operator does not come up.
pub fn install(cluster: &Cluster) -> Result<()> {
    // Tests run side by side: the others wait for the first. A failed test breaks nothing in here.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let kubectl = cluster.kubectl();
    if kubectl.text("devicepool/amd64", "{.metadata.name}").is_ok() {
        return Ok(());
    }
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {SYSTEM}, labels: \
          {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
    ))?;
    let image = format!("{{registry: localhost, tag: {TAG}, pullPolicy: Never}}");
    let values = tempfile::NamedTempFile::new()?;
    std::fs::write(
        values.path(),
        format!(
            "operator: {{image: {image}, log: 'info,hone_operator=debug'}}\n\
             worker: {{image: {image}, fetchAllow: {}}}\n",
            serde_json::json!(fetch_allow(cluster, "HONE_S3_ENDPOINT_IN_CLUSTER")?),
        ),
    )?;
    let path = values.path().to_string_lossy();
    Helm::in_namespace(cluster, SYSTEM).run(&[
        "install",
        "hone",
        &chart(),
        "--values",
        &path,
        "--wait",
        "--timeout",
        "120s",
    ])?;
    kubectl.apply(
        "
apiVersion: hone.dev/v1alpha1
kind: DevicePool
metadata: {name: amd64}
spec: {kind: CPU, nodeSelector: {kubernetes.io/arch: amd64}}
",
    )?;
    Ok(())
}

/// The Secret `store` with what a worker needs to reach the cluster's store.
///
/// # Errors
/// When the cluster has no store, or refuses.
pub fn store_secret(cluster: &Cluster, kubectl: &Kubectl) -> Result<()> {
    let mut words = vec!["create".to_owned(), "secret".into(), "generic".into(), "store".into()];
    for (name, value) in store_options(cluster, "HONE_S3_ENDPOINT_IN_CLUSTER")? {
        words.push(format!("--from-literal={name}={value}"));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    kubectl.run(&words).map(drop)
}

/// The entries that allow workers the store of the tests, at the address of the variable `endpoint`.
///
/// # Errors
/// When the cluster has no store.
pub fn fetch_allow(cluster: &Cluster, endpoint: &str) -> Result<Vec<String>> {
    let address = cluster.variable(endpoint)?;
    let host = address.split("://").last().unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default().to_owned();
    Ok(["models", "artifacts"].iter().map(|bucket| format!("s3://{bucket}@{host}")).collect())
}

/// The store's options as `object_store` names them; `endpoint` is the variable of the address.
///
/// # Errors
/// When the cluster has no store.
pub fn store_options(cluster: &Cluster, endpoint: &str) -> Result<Vec<(String, String)>> {
    let of = |name: &str| cluster.variable(name);
    Ok(vec![
        ("AWS_ENDPOINT".into(), of(endpoint)?),
        ("AWS_ALLOW_HTTP".into(), "true".into()),
        ("AWS_REGION".into(), "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID".into(), of("HONE_S3_ACCESS_KEY")?),
        ("AWS_SECRET_ACCESS_KEY".into(), of("HONE_S3_SECRET_KEY")?),
    ])
}

/// `curl` with a signature for the store; returns the HTTP status.
fn store(cluster: &Cluster, arguments: &[&str], path: &str) -> Result<String> {
    let of = |name: &str| cluster.variable(name);
    let mut command = Command::new("curl");
    command
        .args(["-s", "-w", "%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3"])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(["--user", &format!("{}:{}", of("HONE_S3_ACCESS_KEY")?, of("HONE_S3_SECRET_KEY")?)])
        .args(arguments)
        .arg(format!("{}/{path}", of("HONE_S3_ENDPOINT")?));
    run(command, "")
}

/// Puts a file into the store as `bucket/key`.
///
/// # Errors
/// When the store does not take it.
pub fn upload(cluster: &Cluster, file: &Path, path: &str) -> Result<()> {
    let file = file.to_string_lossy();
    let status = store(cluster, &["-T", &file, "-o", "/dev/null"], path)?;
    ensure!(status == "200", "the store answers {status} to {path}");
    Ok(())
}

/// Gets an object of the store, `s3://bucket/key`, into a file.
///
/// # Errors
/// When it is not there.
pub fn download(cluster: &Cluster, uri: &str, file: &Path) -> Result<()> {
    let path = uri.strip_prefix("s3://").with_context(|| format!("{uri} is not in S3"))?;
    let status = store(cluster, &["-o", &file.to_string_lossy()], path)?;
    ensure!(status == "200", "the store answers {status} to {uri}");
    Ok(())
}

/// Whether an object is in the store.
///
/// # Errors
/// When the store answers something else than yes or no.
pub fn stored(cluster: &Cluster, uri: &str) -> Result<bool> {
    let path = uri.strip_prefix("s3://").with_context(|| format!("{uri} is not in S3"))?;
    match store(cluster, &["-I", "-o", "/dev/null"], path)?.as_str() {
        "200" => Ok(true),
        "404" => Ok(false),
        other => bail!("the store answers {other} to {uri}"),
    }
}

/// The pod of the replica that leads.
///
/// # Errors
/// When none does.
pub fn leader(cluster: &Cluster) -> Result<String> {
    let lease = "lease/hone-operator --namespace hone-system";
    let holder = cluster.kubectl().text(lease, "{.spec.holderIdentity}")?;
    ensure!(!holder.is_empty(), "nobody leads");
    Ok(holder)
}

/// `ctr tasks ACTION` on the running container of a pod: `kill -s SIGKILL`, `pause`, `resume`.
///
/// # Errors
/// When the pod has no running container.
pub fn container(cluster: &Cluster, pod: &str, container: &str, action: &str) -> Result<()> {
    let inside = |words: &[&str]| {
        let mut command = Command::new(scripts_dir().join("inside.sh"));
        command.arg(cluster.directory());
        command.args(["ctr", "-a", "/run/containerd.sock", "-n", "k8s.io"]).args(words);
        run(command, "")
    };
    let filter = format!(
        "labels.\"io.kubernetes.pod.name\"=={pod},labels.\"io.kubernetes.container.name\"=={container}"
    );
    let known = inside(&["containers", "ls", "-q", &filter])?;
    let tasks = inside(&["tasks", "ls"])?;
    let runs =
        |id: &&str| tasks.lines().any(|line| line.starts_with(id) && !line.contains("STOPPED"));
    let id = known.lines().find(runs).with_context(|| format!("pod {pod} runs no {container}"))?;
    let words: Vec<&str> =
        ["tasks"].into_iter().chain(action.split_whitespace()).chain([id]).collect();
    inside(&words).map(drop)
}
