//! `kubectl hone why`: what keeps a compilation where it is, who has to act, and what follows.

use std::collections::BTreeSet;
use std::fmt::Write;

use hone_artifact::exit_code::{self, ErrorClass};
use hone_crds::conditions::READY;
use hone_crds::{DevicePool, ModelCompilation, Phase, TargetStatus};
use hone_operator::children::reasons::{Class, Ending, Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use crate::ConsoleError;
use crate::cluster::Cluster;
use crate::text::{age, columns, indented, plain};

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The compilation.
    name: String,
}

/// Events that are printed, newest first.
const EVENTS: usize = 10;

pub async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<(), ConsoleError> {
    let object = cluster.compilation(&arguments.name).await?;
    let now = Timestamp::now();
    print!("{}", plain(&explanation(&object)));
    print!("{}", plain(&pools(cluster, &object).await));
    print!("{}", events(cluster, &object, now).await?);
    Ok(())
}

/// What the status says, with the meaning of its words.
fn explanation(object: &ModelCompilation) -> String {
    let Some(status) = &object.status else {
        return format!(
            "{} has no status: the operator has not looked at it yet. If that lasts, look whether it runs: kubectl get pods -A -l app.kubernetes.io/name=hone\n",
            object.name_any()
        );
    };
    let mut text = format!("{} is {}", object.name_any(), status.phase.as_str());
    if status.observed_generation != object.metadata.generation {
        text.push_str(" (of an earlier spec: the operator has not looked at the last edit yet)");
    }
    text.push('\n');
    let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
    if let Some(ready) = ready.filter(|_| status.targets.iter().all(|t| t.failure.is_none())) {
        let _ = write!(text, "{}", described(&ready.reason, &ready.message, None));
    }
    for target in &status.targets {
        let Some(failure) = &target.failure else { continue };
        let _ = writeln!(text, "target '{}' is {}", target.name, target.phase.as_str());
        let _ = write!(text, "{}", described(&failure.reason, &failure.message, Some(target)));
    }
    text.extend(status.targets.iter().map(tuning));
    if status.phase == Phase::Failed || status.targets.iter().any(TargetStatus::has_failed) {
        let _ = writeln!(
            text,
            "once it is put right: kubectl hone retry {} -n {}",
            object.name_any(),
            object.namespace().unwrap_or_default()
        );
    }
    text
}

/// What keeps the tuning of a target where it is.
fn tuning(target: &TargetStatus) -> String {
    let Some((tuning, why)) =
        target.tuning.as_ref().and_then(|tuning| Some((tuning, tuning.failure.as_ref()?)))
    else {
        return String::new();
    };
    let line = match tuning.phase {
        Phase::Failed => {
            format!("target '{}' is not tuned; its artifact stays as it is", target.name)
        }
        phase => format!("tuning of target '{}' is {}", target.name, phase.as_str()),
    };
    format!("{line}\n{}", described(&why.reason, &why.message, None))
}

/// A reason in words.
fn described(reason: &str, message: &str, target: Option<&TargetStatus>) -> String {
    let mut text = format!("  {reason}\n{}", indented(message, "    "));
    if let Some(known) = Reason::named(reason) {
        let who = match known.class() {
            Class::Nobody => "nobody: it goes on by itself",
            Class::User => "whoever wrote the compilation",
            Class::Administrator => "whoever runs the cluster",
            Class::Project => "the project: please report it as a bug",
        };
        let follows = match known.ending() {
            Ending::None => "the work goes on, or has ended".to_owned(),
            Ending::Waits => "it waits, up to limits.pendingDeadline".to_owned(),
            Ending::Fails => "it has failed".to_owned(),
            Ending::FailsAfter(starts) => format!("it fails after {starts} starts"),
        };
        let _ = writeln!(text, "  means    {}", known.meaning());
        let _ = writeln!(text, "  acts     {who}");
        let _ = writeln!(text, "  follows  {follows}");
    } else if let Some(class) = of_worker(reason) {
        let (who, follows) = match class {
            ErrorClass::User => ("whoever wrote the compilation", "it has failed"),
            ErrorClass::Transient => {
                ("nobody, unless it lasts", "it failed after limits.retries retries")
            }
            ErrorClass::Bug => ("the project: please report it as a bug", "it has failed"),
        };
        let _ = writeln!(text, "  acts     {who}");
        let _ = writeln!(text, "  follows  {follows}");
    }
    if let Some(retry) = target.and_then(|target| target.retry.as_ref()) {
        let after = retry.after.as_ref().map(|time| format!(", not before {}", time.0));
        let _ = writeln!(text, "  tried    {} times{}", retry.attempts, after.unwrap_or_default());
    }
    text
}

/// The class of a reason of the worker.
fn of_worker(reason: &str) -> Option<ErrorClass> {
    let mut all = exit_code::Reason::all();
    all.find(|known| known.as_str() == reason).and_then(|known| known.class())
}

/// How many of the devices that a waiting compilation waits for are held; nothing where pools may not be read.
/// Who holds them is not for other namespaces to know.
async fn pools(cluster: &Cluster, object: &ModelCompilation) -> String {
    let status = object.status.as_ref();
    let waiting = status.into_iter().flat_map(|status| &status.targets);
    let waiting = waiting.filter(|target| target.phase == Phase::Pending);
    let names: BTreeSet<&String> = waiting.filter_map(|target| target.pool.as_ref()).collect();
    let mut text = String::new();
    let api: Api<DevicePool> = Api::all(cluster.client.clone());
    for name in names {
        let Ok(Some(pool)) = api.get_opt(name).await else { continue };
        let status = pool.status.unwrap_or_default();
        let Some(capacity) = status.capacity else { continue };
        let total = capacity.total.map_or_else(|| "?".to_owned(), |total| total.to_string());
        let (held, waiting) = (capacity.leased, capacity.waiting);
        let _ = writeln!(text, "pool '{name}': {held} of {total} devices held, {waiting} waiting");
    }
    text
}

/// Events about the compilation, its Jobs and its pods, newest first.
async fn events(
    cluster: &Cluster,
    object: &ModelCompilation,
    now: Timestamp,
) -> Result<String, ConsoleError> {
    let jobs = cluster.jobs(object).await?;
    let pods = cluster.pods(object, &jobs).await?;
    let children = jobs.iter().map(|job| job.uid()).chain(pods.iter().map(|pod| pod.uid()));
    let uids: BTreeSet<String> = children.chain([object.uid()]).flatten().collect();
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let found = api.list(&ListParams::default()).await;
    let mut found = found.map_err(ConsoleError::api("listing events"))?.items;
    found.retain(|event| event.involved_object.uid.as_ref().is_some_and(|uid| uids.contains(uid)));
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        last.or(series.map(|time| time.0)).or(event.event_time.as_ref().map(|time| time.0))
    };
    found.sort_by_key(|event| std::cmp::Reverse(time(event)));
    if found.is_empty() {
        return Ok(String::new());
    }
    let rows = found.iter().take(EVENTS).map(|event| {
        let about = &event.involved_object;
        let kind = about.kind.as_deref().unwrap_or_default();
        vec![
            age(time(event), now),
            event.type_.clone().unwrap_or_default(),
            event.reason.clone().unwrap_or_default(),
            format!("{kind}/{}", about.name.as_deref().unwrap_or_default()),
            event.message.clone().unwrap_or_default(),
        ]
    });
    let table = columns(&["AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"], rows.collect());
    Ok(format!("events\n{}", indented(&table, "  ")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is explained of a compilation whose target has its artifact and whose tuning stands as `tuning` says.
    fn explained(phase: &str, tuning: &serde_json::Value) -> String {
        let object = serde_json::from_value(json!({
            "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
            "metadata": {"name": "x", "namespace": "team"},
            "spec": {
                "model": {"uri": "s3://m/x.onnx"}, "targets": [{"name": "cpu"}], "output": {"uri": "s3://a/x"},
            },
            "status": {"phase": phase, "targets": [{"name": "cpu", "phase": phase, "tuning": tuning}]},
        }));
        explanation(&object.unwrap())
    }

    #[test]
    fn a_search_that_waits_or_failed_is_explained() {
        let why = json!({"reason": "WaitingForDevice", "message": "the run waits"});
        let waits = explained("Running", &json!({"phase": "Pending", "failure": why}));
        assert!(waits.contains("tuning of target 'cpu' is Pending\n  WaitingForDevice"), "{waits}");
        assert!(
            waits.contains("the run waits") && !waits.contains("kubectl hone retry"),
            "{waits}"
        );
        let failed = explained("Succeeded", &json!({"phase": "Failed", "failure": why}));
        assert!(failed.contains("target 'cpu' is not tuned; its artifact stays"), "{failed}");
        assert!(failed.contains("kubectl hone retry x -n team"), "{failed}");
        let found = explained("Succeeded", &json!({"phase": "Succeeded"}));
        assert!(!found.contains("tuned") && !found.contains("retry"), "{found}");
    }
}
