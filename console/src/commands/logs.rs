//! `kubectl hone logs`: the log of a compilation's worker.

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, ResourceExt};

use crate::ConsoleError;
use crate::cluster::{Cluster, is_of, target_of};
use crate::text::plain;

/// Arguments of `logs`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation.
    name: String,
    /// One target; all when absent.
    #[arg(long, short)]
    target: Option<String>,
    /// Go on as the worker writes; with several targets the newest worker's.
    #[arg(long, short)]
    follow: bool,
    /// Only so many lines from the end.
    #[arg(long)]
    tail: Option<i64>,
}

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let object = cluster.compilation(&arguments.name).await?;
    super::report::check_target(&object, arguments.target.as_deref())?;
    let mut jobs = cluster.jobs(&object).await?;
    if let Some(target) = &arguments.target {
        jobs.retain(|job| target_of(job) == Some(target.as_str()));
    }
    let mut pods = cluster.pods(&object, &jobs).await?;
    if arguments.follow {
        pods.drain(..pods.len().saturating_sub(1));
    }
    if pods.is_empty() {
        return Err(ConsoleError::Nothing(format!(
            "no worker of '{}' is left to ask: a finished Job and its log are kept for some minutes (operator.jobTtlSeconds); kubectl hone why {} tells what is known",
            arguments.name, arguments.name
        )));
    }
    for pod in &pods {
        let target = jobs.iter().find(|job| is_of(pod, job)).and_then(target_of);
        if pods.len() > 1 {
            println!("==> target {}, pod {} <==", plain(target.unwrap_or("?")), pod.name_any());
        }
        print_log(cluster, pod, arguments).await?;
    }
    Ok(())
}

async fn print_log(
    cluster: &Cluster,
    pod: &Pod,
    arguments: &Arguments,
) -> Result<(), ConsoleError> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let name = pod.name_any();
    let what = format!("reading the log of pod '{name}'");
    let params =
        LogParams { follow: arguments.follow, tail_lines: arguments.tail, ..LogParams::default() };
    let log = api.log_stream(&name, &params).await.map_err(ConsoleError::api(&what))?;
    let mut lines = log.lines();
    let broken = ConsoleError::io(what);
    let read = async {
        while let Some(line) = lines.try_next().await? {
            println!("{}", plain(&line));
        }
        Ok(())
    };
    read.await.map_err(broken)
}
