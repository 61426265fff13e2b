//! `kubectl hone tree`: what a compilation consists of.

use std::fmt::Write;

use hone_crds::{ModelCompilation, TargetStatus};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::ConsoleError;
use crate::cluster::{Cluster, is_of, target_of};
use crate::text::{age, plain};

/// Arguments of `tree`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation; all of the namespace when absent.
    name: Option<String>,
}

/// Maximum compilations that are drawn without a name.
const MAX_DRAWN: u32 = 50;

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let objects = match &arguments.name {
        Some(name) => vec![cluster.compilation(name).await?],
        None => {
            let api: Api<ModelCompilation> =
                Api::namespaced(cluster.client.clone(), &cluster.namespace);
            let list = api.list(&ListParams::default().limit(MAX_DRAWN)).await;
            let list = list.map_err(ConsoleError::api("listing ModelCompilations"))?;
            if list.metadata.continue_.is_some() {
                eprintln!("the first {MAX_DRAWN} are drawn: name one to see another");
            }
            list.items
        }
    };
    if objects.is_empty() {
        let message =
            format!("there are no ModelCompilations in namespace '{}'", cluster.namespace);
        return Err(ConsoleError::Nothing(message));
    }
    let now = Timestamp::now();
    for object in &objects {
        let jobs = cluster.jobs(object).await?;
        let pods = cluster.pods(object, &jobs).await?;
        print!("{}", plain(&draw(object, &jobs, &pods, now)));
    }
    Ok(())
}

/// A line and the branches below it.
struct Branch {
    line: String,
    below: Vec<Branch>,
}

impl Branch {
    fn new(line: String) -> Self {
        Self { line, below: Vec::new() }
    }

    fn draw(&self, text: &mut String, indent: &str, last: bool) {
        let (mark, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let _ = writeln!(text, "{indent}{mark}{}", self.line);
        let indent = format!("{indent}{rest}");
        draw_all(&self.below, text, &indent);
    }
}

fn draw_all(branches: &[Branch], text: &mut String, indent: &str) {
    for (number, branch) in branches.iter().enumerate() {
        branch.draw(text, indent, number + 1 == branches.len());
    }
}

/// The tree of one compilation.
fn draw(object: &ModelCompilation, jobs: &[Job], pods: &[Pod], now: Timestamp) -> String {
    let status = object.status.clone().unwrap_or_default();
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let ready = status.targets_ready.as_deref().unwrap_or("0");
    let mut text = format!(
        "ModelCompilation {}/{}  {}  {ready} ready  {}\n",
        object.namespace().unwrap_or_default(),
        object.name_any(),
        status.phase.as_str(),
        age(created, now),
    );
    let mut branches: Vec<Branch> = object
        .spec
        .targets
        .iter()
        .map(|target| {
            let found = status.targets.iter().find(|status| status.name == target.name);
            let of_target = jobs.iter().filter(|job| target_of(job) == Some(&target.name));
            let mut branch = Branch::new(target_line(&target.name, found));
            branch.below.extend(of_target.map(|job| job_branch(job, pods, now)));
            branch.below.extend(found.into_iter().flat_map(results));
            branch
        })
        .collect();
    let of_none = jobs.iter().filter(|job| {
        !object.spec.targets.iter().any(|target| target_of(job) == Some(&target.name))
    });
    branches.extend(of_none.map(|job| job_branch(job, pods, now)));
    draw_all(&branches, &mut text, "");
    text
}

fn target_line(name: &str, status: Option<&TargetStatus>) -> String {
    let Some(status) = status else { return format!("target {name}  not looked at yet") };
    let mut line = format!("target {name}  {}", status.phase.as_str());
    if let Some(pool) = &status.pool {
        let _ = write!(line, "  pool {pool}");
    }
    if let Some(latency) = &status.latency {
        let _ = write!(line, "  {}", latency.p50);
        if let Some(untuned) = latency.untuned {
            let _ = write!(line, " (untuned {untuned})");
        }
    }
    if let Some(failure) = &status.failure {
        let _ = write!(line, "  {}", failure.reason);
    }
    line
}

/// What came out of a target.
fn results(status: &TargetStatus) -> Vec<Branch> {
    let artifact = status.artifact.as_ref().map(|artifact| format!("artifact {}", artifact.uri));
    let report = status.report_uri.as_ref().map(|uri| format!("report {uri}"));
    let stands = status.tuning.as_ref().map(|tuning| format!("  {}", tuning.phase.as_str()));
    let stands = stands.unwrap_or_default();
    let run = status.tuning_run_ref.as_ref().map(|run| format!("TuningRun {}{stands}", run.name));
    [artifact, report, run].into_iter().flatten().map(Branch::new).collect()
}

fn job_branch(job: &Job, pods: &[Pod], now: Timestamp) -> Branch {
    let mut branch = Branch::new(format!("Job {}  {}", job.name_any(), job_state(job)));
    let job_pods = pods.iter().filter(|pod| is_of(pod, job));
    branch.below = job_pods.map(|pod| Branch::new(pod_line(pod, now))).collect();
    branch
}

/// One word for the state of a Job.
fn job_state(job: &Job) -> String {
    if job.metadata.deletion_timestamp.is_some() {
        return "being deleted".to_owned();
    }
    if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        return "suspended".to_owned();
    }
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.iter().flatten();
    let ended = conditions
        .filter(|condition| condition.status == "True")
        .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"));
    match ended {
        Some(condition) if condition.type_ == "Failed" => {
            format!("failed ({})", condition.reason.as_deref().unwrap_or("no reason given"))
        }
        Some(_) => "complete".to_owned(),
        None => {
            format!("{} active, {} failed", status.active.unwrap_or(0), status.failed.unwrap_or(0))
        }
    }
}

fn pod_line(pod: &Pod, now: Timestamp) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let location = node.map_or_else(|| "on no node yet".to_owned(), |node| format!("on {node}"));
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let state = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref());
    let state = state.map(container_state).unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    format!("Pod {}  {phase}  {location}{state}  {}", pod.name_any(), age(created, now))
}

/// Why a container waits or how it ended.
fn container_state(state: &ContainerState) -> String {
    if let Some(waiting) = &state.waiting {
        return format!("  {}", waiting.reason.as_deref().unwrap_or("waiting"));
    }
    match &state.terminated {
        Some(ended) => {
            format!("  {} ({})", ended.reason.as_deref().unwrap_or("ended"), ended.exit_code)
        }
        None => String::new(),
    }
}
