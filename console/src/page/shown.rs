//! What of an object is shown: its name, times, spec and status, and numbers that the page draws.

use hone_crds::conditions::bounded;
use hone_crds::status::Latency;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Maximum length of a line of activity, in bytes.
const LINE_BYTES: usize = 300;

/// What the page gets of an object. Annotations, labels and managed fields stay behind.
pub fn of(kind: &str, object: &DynamicObject) -> Value {
    let metadata = &object.metadata;
    let time = |time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time| time.0.to_string();
    let mut shown = json!({
        "kind": kind,
        "namespace": object.namespace().unwrap_or_default(),
        "name": object.name_any(),
        "uid": object.uid().unwrap_or_default(),
        "created": metadata.creation_timestamp.as_ref().map(time),
        "deleting": metadata.deletion_timestamp.is_some(),
        "generation": metadata.generation,
        "spec": object.data.get("spec"),
        "status": object.data.get("status"),
    });
    if kind == "ModelCompilation" {
        shown["measured"] = measured(&object.data);
    }
    if kind == "Lease" {
        shown["pool"] = json!(object.labels().get(hone_operator::children::names::POOL_LABEL));
    }
    shown
}

/// Latencies of a compilation's targets in nanoseconds, so that the page need not read durations.
fn measured(data: &Value) -> Value {
    let targets = data.pointer("/status/targets").and_then(Value::as_array);
    let rows = targets.into_iter().flatten().map(|target| {
        let latency = target.get("latency").cloned().unwrap_or_default();
        let Ok(latency) = serde_json::from_value::<Latency>(latency) else { return Value::Null };
        let nanoseconds =
            |duration: Option<hone_crds::Duration>| duration.map(hone_crds::Duration::as_nanos);
        json!({
            "p50": latency.p50.as_nanos(),
            "p90": nanoseconds(latency.p90),
            "ciLow": nanoseconds(latency.ci_low),
            "ciHigh": nanoseconds(latency.ci_high),
            "untuned": nanoseconds(latency.untuned),
        })
    });
    Value::Array(rows.collect())
}

/// One change of an object, in words.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// When it was seen here, RFC 3339.
    pub at: String,
    /// Kind of the object.
    pub kind: String,
    /// `namespace/name`, or the name alone.
    pub object: String,
    /// What changed.
    pub what: String,
}

/// What changed between two states of an object: its phase and its conditions. `before` is `None` for a new one.
pub fn changes(before: Option<&Value>, after: &Value, at: Timestamp) -> Vec<Change> {
    let mut found = Vec::new();
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let phase = |value: &Value| text(value.pointer("/status/phase"));
    let (old, new) = (before.map(phase).unwrap_or_default(), phase(after));
    if !new.is_empty() && old != new {
        found.push(if old.is_empty() { new } else { format!("{old} → {new}") });
    }
    for condition in conditions(after) {
        let kind = text(condition.get("type"));
        let same = before
            .map(conditions)
            .unwrap_or_default()
            .into_iter()
            .find(|c| text(c.get("type")) == kind);
        let state = |c: &Value| (text(c.get("status")), text(c.get("reason")));
        let is_ready = kind == "Ready";
        // A change of the state is reported for every condition, another reason of `Ready` alone, which has them all.
        let differs = same.is_none_or(|same| match is_ready {
            true => state(same) != state(condition),
            false => state(same).0 != state(condition).0,
        });
        let (status, reason) = state(condition);
        let unknown_yet = same.is_none() && status != "True" && !is_ready;
        if differs && !unknown_yet {
            let message = text(condition.get("message"));
            let colon = if message.is_empty() { "" } else { ": " };
            found.push(format!("{kind}={status} ({reason}){colon}{message}"));
        }
    }
    let namespace = text(after.get("namespace"));
    let slash = if namespace.is_empty() { "" } else { "/" };
    let object = format!("{namespace}{slash}{}", text(after.get("name")));
    let change = |what: String| Change {
        at: at.to_string(),
        kind: text(after.get("kind")),
        object: object.clone(),
        what: bounded(&what, LINE_BYTES).to_owned(),
    };
    found.into_iter().map(change).collect()
}

fn conditions(value: &Value) -> Vec<&Value> {
    value.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(phase: &str, ready: (&str, &str)) -> Value {
        json!({"kind": "ModelCompilation", "namespace": "team", "name": "digits", "status": {"phase": phase,
            "conditions": [
                {"type": "Ready", "status": ready.0, "reason": ready.1, "message": "m"},
                {"type": "Verified", "status": "Unknown", "reason": "NotChecked", "message": ""}]}})
    }

    #[test]
    fn a_change_is_reported_once() {
        let now = Timestamp::UNIX_EPOCH;
        let (waiting, running) =
            (object("Pending", ("False", "Pending")), object("Running", ("False", "Running")));
        let what = |before, after| -> Vec<String> {
            changes(before, after, now).into_iter().map(|change| change.what).collect()
        };
        assert_eq!(what(None, &waiting), ["Pending", "Ready=False (Pending): m"]);
        assert_eq!(
            what(Some(&waiting), &running),
            ["Pending → Running", "Ready=False (Running): m"]
        );
        assert!(what(Some(&running), &running).is_empty());
        assert_eq!(changes(None, &waiting, now)[0].object, "team/digits");
    }

    #[test]
    fn durations_become_nanoseconds() {
        let data = json!({"status": {"targets": [
            {"name": "a", "latency": {"p50": "1.31ms", "untuned": "2ms"}}, {"name": "b"}]}});
        let found = measured(&data);
        assert_eq!(found[0]["p50"], 1_310_000);
        assert_eq!(found[0]["untuned"], 2_000_000);
        assert_eq!(found[1], Value::Null);
    }
}
