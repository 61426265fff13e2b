//! Why a worker's pod is not made or does not start, where only events say so: the Job controller's and the kubelet's.
//!
//! They are watched, all of type Warning, and those with such a reason are kept. To list the events about one object
//! costs the API server a read of every event of the namespace: with thousands of Jobs that were made at once, it did
//! little else.

use k8s_openapi::jiff::Timestamp;

use super::pods::{self, Wait};
use crate::runtime::cache::Cached;
use crate::seen::SeenEvent;

/// The field selector of events that may explain a wait.
pub const WARNINGS: &str = "type=Warning";

/// An event that explains why something does not start.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    name: String,
    at: Option<Timestamp>,
    wait: Wait,
}

impl Cached for Warning {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The uid of the object that an event is about, and what it explains; nothing where it explains no wait.
pub fn facts(event: &SeenEvent) -> Option<(String, Warning)> {
    let wait = pods::classify_event(event.reason.as_deref()?, event.message.as_deref()?)?;
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let at = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
    let warning = Warning { name: event.metadata.name.clone()?, at, wait };
    Some((event.involved_object.uid.clone()?, warning))
}

/// What the newest of the events about an object says.
pub fn newest(warnings: Vec<Warning>) -> Option<Wait> {
    warnings.into_iter().max_by_key(|warning| warning.at).map(|warning| warning.wait)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::children::reasons::Reason;
    use serde_json::{Value, json};

    fn event(name: &str, reason: &str, time: Value) -> SeenEvent {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "uid": "uid-1"},
            "reason": reason, "message": format!("said by {name}"),
        });
        event.as_object_mut().unwrap().extend(time.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn the_newest_event_explains_whichever_clock_it_has() {
        let old =
            event("a", "FailedCreatePodSandBox", json!({"lastTimestamp": "2026-01-01T00:00:00Z"}));
        let new = event("b", "FailedMount", json!({"eventTime": "2026-01-01T00:00:01.000000Z"}));
        let found: Vec<_> = [&new, &old].into_iter().map(|event| facts(event).unwrap()).collect();
        assert!(found.iter().all(|(uid, _)| uid == "uid-1"));
        let wait = newest(found.into_iter().map(|(_, warning)| warning).collect()).unwrap();
        assert_eq!((wait.reason, wait.message.as_str()), (Reason::VolumeNotMounted, "said by b"));
    }

    #[test]
    fn other_warnings_are_not_kept() {
        assert_eq!(facts(&event("a", "FailedScheduling", json!({}))), None);
    }
}
