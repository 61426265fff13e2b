//! What happened to a compilation as a CloudEvent (specification 1.0, JSON format).

use hone_crds::{ModelCompilation, ModelCompilationStatus, Phase, TargetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

/// The media type of an event in structured mode.
pub const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";
/// What the types of events begin with.
const TYPES: &str = "dev.hone.modelcompilation";

/// One event. Equal work at an equal end gives an equal id, whichever replica says so and however often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloudEvent {
    specversion: &'static str,
    /// Tells it from every other event of its source.
    pub id: String,
    source: String,
    /// `dev.hone.modelcompilation.` and `running`, `succeeded` or `failed`.
    #[serde(rename = "type")]
    pub kind: String,
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Time>,
    datacontenttype: &'static str,
    data: Value,
}

/// The event of a status; none for phases that nobody waits for. `cluster` goes before the object's path in the source.
pub fn of(
    cluster: &str,
    object: &ModelCompilation,
    status: &ModelCompilationStatus,
) -> Option<CloudEvent> {
    let (word, time) = match status.phase {
        Phase::Running => ("running", status.start_time.as_ref()),
        Phase::Succeeded => ("succeeded", status.completion_time.as_ref()),
        Phase::Failed => ("failed", status.completion_time.as_ref()),
        Phase::Pending | Phase::Suspended => return None,
    };
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let uid = object.uid().unwrap_or_default();
    let generation = status.observed_generation.unwrap_or_default();
    let second = time.map_or(0, |time| time.0.as_second());
    let api = ModelCompilation::api_version(&());
    let plural = ModelCompilation::plural(&());
    Some(CloudEvent {
        specversion: "1.0",
        id: format!("{uid}/{generation}/{word}/{second}"),
        source: format!(
            "{}/apis/{api}/namespaces/{namespace}/{plural}/{name}",
            cluster.trim_end_matches('/')
        ),
        kind: format!("{TYPES}.{word}"),
        subject: format!("{namespace}/{name}"),
        time: time.cloned(),
        datacontenttype: "application/json",
        data: json!({
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "generation": generation,
            "phase": status.phase,
            "startTime": status.start_time,
            "completionTime": status.completion_time,
            "failure": status.failure,
            "summary": status.summary,
            "targets": status.targets.iter().map(target).collect::<Vec<_>>(),
        }),
    })
}

fn target(target: &TargetStatus) -> Value {
    json!({
        "name": target.name,
        "phase": target.phase,
        "pool": target.pool,
        "cache": target.cache,
        "artifact": target.artifact,
        "reportUri": target.report_uri,
        "latency": target.latency,
        "failure": target.failure,
    })
}
