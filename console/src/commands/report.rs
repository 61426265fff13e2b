//! `kubectl hone report`: what a worker stored beside its artifact.

use std::path::PathBuf;

use hone_crds::{ModelCompilation, TargetStatus};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};

use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::reports::{self, Reports};
use crate::text::{columns, plain};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation.
    name: String,
    /// The target; the only one when absent.
    #[arg(long, short)]
    target: Option<String>,
    /// Write the page for people to this file (`-` prints it).
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write the report for programs to this file (`-` prints it).
    #[arg(long)]
    json: Option<PathBuf>,
    /// Take the store's credentials from the environment, not from the Secret that the compilation names.
    #[arg(long)]
    no_secret: bool,
    /// Where the store is reached from here, such as `http://127.0.0.1:9000` through kubectl port-forward.
    #[arg(long)]
    endpoint: Option<String>,
}

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let object = cluster.compilation(&arguments.name).await?;
    let target = pick(&object, arguments.target.as_deref())?;
    let Some(uri) = &target.report_uri else {
        return Err(ConsoleError::Nothing(format!(
            "target '{}' of '{}' has no report: one is stored when a worker has stored its artifact (it is {})",
            target.name,
            arguments.name,
            target.phase.as_str()
        )));
    };
    if arguments.html.is_none() && arguments.json.is_none() {
        print!("{}", summary(target, uri));
        return Ok(());
    }
    let reports = Reports {
        folders: None,
        options: credentials(cluster, &object, arguments.no_secret).await?,
        endpoint: arguments.endpoint.clone(),
    };
    if let Some(file) = &arguments.json {
        write(file, &reports.fetch(uri).await?)?;
    }
    if let Some(file) = &arguments.html {
        write(file, &reports.fetch(&reports::page_of(uri)).await?)?;
    }
    Ok(())
}

/// Refuses a target that the compilation does not have.
pub fn check_target(object: &ModelCompilation, target: Option<&str>) -> Result<(), ConsoleError> {
    let Some(target) = target else { return Ok(()) };
    let names: Vec<&str> = object.spec.targets.iter().map(|target| target.name.as_str()).collect();
    if names.contains(&target) {
        return Ok(());
    }
    Err(ConsoleError::NoTarget {
        name: object.name_any(),
        target: target.to_owned(),
        there: names.join(", "),
    })
}

/// The status of the target that is asked for, or of the only one.
fn pick<'a>(
    object: &'a ModelCompilation,
    target: Option<&str>,
) -> Result<&'a TargetStatus, ConsoleError> {
    check_target(object, target)?;
    let statuses =
        object.status.as_ref().map(|status| status.targets.as_slice()).unwrap_or_default();
    let found = match (target, statuses) {
        (Some(target), statuses) => statuses.iter().find(|status| status.name == target),
        (None, [only]) => Some(only),
        (None, []) => None,
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|status| status.name.as_str()).collect();
            let message = format!(
                "'{}' has several targets: choose one with --target: {}",
                object.name_any(),
                names.join(", ")
            );
            return Err(ConsoleError::Nothing(message));
        }
    };
    found.ok_or_else(|| ConsoleError::Nothing(format!("'{}' has no status yet", object.name_any())))
}

/// What the status already says of a result, and where the rest is.
fn summary(target: &TargetStatus, uri: &str) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: Option<String>| {
        rows.extend(value.map(|value| vec![name.to_owned(), value]));
    };
    row("target", Some(target.name.clone()));
    if let Some(latency) = &target.latency {
        row("latency", Some(latency.p50.to_string()));
        let sure = latency.ci_low.zip(latency.ci_high);
        row("95 % sure within", sure.map(|(low, high)| format!("{low} – {high}")));
        row("untuned", latency.untuned.map(|untuned| untuned.to_string()));
    }
    row("precision", target.precision.clone());
    if let Some(correctness) = &target.correctness {
        row(
            "largest error",
            Some(format!("{} absolute, {} relative", correctness.max_abs, correctness.max_rel)),
        );
        row("within tolerance", Some(if correctness.passed { "yes" } else { "no" }.to_owned()));
    }
    if let Some(artifact) = &target.artifact {
        row("artifact", Some(artifact.uri.clone()));
        row("digest", Some(artifact.digest.clone()));
    }
    row("report", Some(uri.to_owned()));
    row("page", Some(reports::page_of(uri)));
    columns(&["", ""], rows)
}

/// The options of the output's store, read with the user's rights.
async fn credentials(
    cluster: &Cluster,
    object: &ModelCompilation,
    no_secret: bool,
) -> Result<std::collections::BTreeMap<String, String>, ConsoleError> {
    let secret = object.spec.output.credentials_secret_ref.as_ref().filter(|_| !no_secret);
    let Some(secret) = secret else { return Ok(Default::default()) };
    let api: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let what = format!(
        "reading Secret '{}' (--no-secret takes the environment's credentials)",
        secret.name
    );
    let found = api.get(&secret.name).await.map_err(ConsoleError::api(what))?;
    let text =
        |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
    Ok(found
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, text(value.0)))
        .collect())
}

fn write(file: &std::path::Path, bytes: &[u8]) -> Result<(), ConsoleError> {
    if file.as_os_str() == "-" {
        print!("{}", plain(&String::from_utf8_lossy(bytes)));
        return Ok(());
    }
    let what = format!("'{}' cannot be written", file.display());
    hone_artifact::write_atomically(file, std::iter::once(bytes))
        .map_err(|error| ConsoleError::Io { what, source: std::io::Error::other(error) })?;
    println!("{}", file.display());
    Ok(())
}
