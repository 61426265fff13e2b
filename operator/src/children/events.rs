//! Publishes events without anybody waiting for it. One that is lost changes nothing: what an event
//! tells is in the status, too. So when more come than the API server takes, the rest is dropped.
//!
//! The library's recorder remembers every event of the last minutes, to count repetitions, and goes
//! through all of them for each new one. Ours tell of changes, which do not repeat.

use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use futures::channel::mpsc::{Receiver, Sender, channel};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};

use hone_crds::status::Failure;
use serde::Serialize;

use super::bounds::{EVENT_NOTE, REASON, bounded};
use super::names::MANAGER;
use super::reasons::{EventType, Reason};

/// Events that wait at most.
const WAITING: usize = 1000;
/// Events on their way at once.
const AT_ONCE: usize = 4;
/// Longest part of an event's name that comes from its object's.
const NAME: usize = 200;

/// An event to be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPlan {
    /// Whether a person should look.
    pub warning: bool,
    /// One word.
    pub reason: String,
    /// What happened.
    pub note: String,
}

impl EventPlan {
    /// The event of one of our reasons, of the type that the table says.
    pub fn of(reason: Reason, note: impl Into<String>) -> Self {
        let warning = reason.event() == EventType::Warning;
        Self { warning, reason: reason.as_str().to_owned(), note: note.into() }
    }

    /// The event of a failure.
    pub fn failure(failure: &Failure) -> Self {
        Self { warning: true, reason: failure.reason.clone(), note: failure.message.clone() }
    }
}

/// Where events are left.
#[derive(Clone, Debug)]
pub struct Events {
    // One for all: each further sender would add a place to those that may wait.
    sender: Arc<Mutex<Sender<Event>>>,
    instance: String,
}

impl Events {
    /// Where to leave events, and the task that publishes them until the last clone of this is gone. `instance` is
    /// this replica.
    pub fn new(client: Client, instance: &str) -> (Self, impl Future<Output = ()> + use<>) {
        let (sender, receiver) = channel(WAITING);
        let sender = Arc::new(Mutex::new(sender));
        (Self { sender, instance: instance.to_owned() }, publish(client, receiver))
    }

    /// An event about an object is to be published.
    pub fn send(&self, plan: EventPlan, about: ObjectReference) {
        let event = event(plan, about, &self.instance, Timestamp::now());
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.try_send(event).is_err() {
            tracing::debug!("an event is dropped: too many wait");
        }
    }
}

fn event(plan: EventPlan, about: ObjectReference, instance: &str, now: Timestamp) -> Event {
    let name = about.name.as_deref().unwrap_or(MANAGER);
    let name = bounded(name, NAME).trim_end_matches('.');
    Event {
        metadata: ObjectMeta {
            namespace: about.namespace.clone(),
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        type_: Some(if plan.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(bounded(&plan.reason, REASON).to_owned()),
        note: Some(bounded(&plan.note, EVENT_NOTE).to_owned()),
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(about),
        reporting_controller: Some(MANAGER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

async fn publish(client: Client, events: Receiver<Event>) {
    let publish = |event: Event| {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        async move {
            if let Err(error) = api.create(&PostParams::default(), &event).await {
                tracing::warn!(%error, reason = event.reason, "an event could not be published");
            }
        }
    };
    events.for_each_concurrent(AT_ONCE, publish).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_fit_and_differ_by_time() {
        let about = ObjectReference {
            name: Some("a".repeat(253)),
            namespace: Some("n".to_owned()),
            ..ObjectReference::default()
        };
        let plan = EventPlan {
            warning: true,
            reason: "Why".to_owned(),
            // The API server refuses an event whose note is longer than 1,024 bytes.
            note: "operator 'Ünsupported', ".repeat(100),
        };
        let at = |second| {
            let now = Timestamp::from_second(second).unwrap();
            event(plan.clone(), about.clone(), "one", now)
        };
        let (first, second) = (at(1), at(2));
        assert!(first.metadata.name.as_ref().unwrap().len() <= 253);
        assert_ne!(first.metadata.name, second.metadata.name);
        let note = first.note.unwrap();
        assert!(note.len() <= 1024 && note.len() > 1000, "{}", note.len());
        assert_eq!(first.type_.as_deref(), Some("Warning"));
        assert_eq!(first.metadata.namespace.as_deref(), Some("n"));
    }
}
