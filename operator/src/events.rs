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

use crate::model_compilation::model::EventPlan;
use crate::model_compilation::names::MANAGER;

/// Events that wait at most.
const WAITING: usize = 1000;
/// Events on their way at once.
const AT_ONCE: usize = 4;
/// Longest part of an event's name that comes from its object's.
const NAME: usize = 200;

/// Where events are left.
#[derive(Clone, Debug)]
pub struct Events {
    // One for all: each further sender would add a place to those that may wait.
    sender: Arc<Mutex<Sender<Event>>>,
    instance: String,
}

impl Events {
    /// Publishes in a task of its own, until the last clone of this is gone. `instance` is this replica.
    pub fn publish_with(client: Client, instance: &str) -> Self {
        let (sender, receiver) = channel(WAITING);
        tokio::spawn(publish(client, receiver));
        Self { sender: Arc::new(Mutex::new(sender)), instance: instance.to_owned() }
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
    let name = hone_crds::conditions::bounded(name, NAME).trim_end_matches('.');
    Event {
        metadata: ObjectMeta {
            namespace: about.namespace.clone(),
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        type_: Some(if plan.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(plan.reason),
        note: Some(plan.note),
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
                tracing::debug!(%error, reason = event.reason, "an event could not be published");
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
        let plan = EventPlan { warning: true, reason: "Why".to_owned(), note: "what".to_owned() };
        let at = |second| {
            let now = Timestamp::from_second(second).unwrap();
            event(plan.clone(), about.clone(), "one", now)
        };
        let (first, second) = (at(1), at(2));
        assert!(first.metadata.name.as_ref().unwrap().len() <= 253);
        assert_ne!(first.metadata.name, second.metadata.name);
        assert_eq!(first.type_.as_deref(), Some("Warning"));
        assert_eq!(first.metadata.namespace.as_deref(), Some("n"));
    }
}
