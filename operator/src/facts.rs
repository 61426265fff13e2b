//! What is kept of each object of a kind: not the object but the few facts that a plan depends on, in
//! groups, so that those that belong to one owner are found without a walk.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;

use crate::stores::chain;

/// Facts about one object.
pub trait Fact: PartialEq {
    /// The object's name, unique within the group.
    fn name(&self) -> &str;
}

/// The facts about all objects of a kind, by group.
#[derive(Debug)]
pub struct Facts<F> {
    groups: Mutex<Groups<F>>,
    complete: watch::Sender<bool>,
}

/// A group has one member nearly always, so it is a list.
type Groups<F> = HashMap<String, Vec<F>>;

impl<F> Default for Facts<F> {
    fn default() -> Self {
        Self { groups: Mutex::default(), complete: watch::Sender::new(false) }
    }
}

impl<F: Fact + Clone> Facts<F> {
    fn groups(&self) -> MutexGuard<'_, Groups<F>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members of `group`, by name.
    pub fn group(&self, group: &str) -> Vec<F> {
        let mut members = self.groups().get(group).cloned().unwrap_or_default();
        members.sort_by(|a, b| a.name().cmp(b.name()));
        members
    }

    /// What `pick` makes of each, in no order.
    pub fn pick<T>(&self, pick: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        self.groups().values().flatten().filter_map(pick).collect()
    }

    /// Returns once everything that exists is known.
    pub async fn ready(&self) {
        // The sender is ours, so it is not gone.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Keeps the facts current with what a watch of `what` says. `view` tells group and facts of an
    /// object; `changed` is called with an object whose facts are new or differ, or that is gone.
    pub async fn keep<K>(
        &self,
        what: &str,
        stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
        view: impl Fn(&K) -> (String, F),
        mut changed: impl FnMut(&K, Option<&F>),
    ) {
        futures::pin_mut!(stream);
        let mut list = Groups::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Apply(object)) => {
                    let (group, fact) = view(&object);
                    if set(&mut self.groups(), group, fact.clone()) {
                        changed(&object, Some(&fact));
                    }
                }
                Ok(Event::Delete(object)) => {
                    let (group, fact) = view(&object);
                    remove(&mut self.groups(), &group, fact.name());
                    changed(&object, None);
                }
                Ok(Event::Init) => list.clear(),
                Ok(Event::InitApply(object)) => {
                    let (group, fact) = view(&object);
                    // Known at once, so that who is woken for it finds it.
                    set(&mut self.groups(), group.clone(), fact.clone());
                    changed(&object, Some(&fact));
                    set(&mut list, group, fact);
                }
                // What is not in the list has gone while the watch was cut off.
                Ok(Event::InitDone) => {
                    *self.groups() = std::mem::take(&mut list);
                    self.complete.send_replace(true);
                }
                Err(error) => {
                    tracing::warn!(what, error = %chain(&error), "watch interrupted");
                }
            }
        }
    }
}

/// Whether this was news.
fn set<F: Fact>(groups: &mut Groups<F>, group: String, fact: F) -> bool {
    let members = groups.entry(group).or_insert_with(|| Vec::with_capacity(1));
    match members.iter_mut().find(|member| member.name() == fact.name()) {
        Some(member) if *member == fact => false,
        Some(member) => {
            *member = fact;
            true
        }
        None => {
            members.push(fact);
            true
        }
    }
}

fn remove<F: Fact>(groups: &mut Groups<F>, group: &str, name: &str) {
    let Some(members) = groups.get_mut(group) else {
        return;
    };
    members.retain(|member| member.name() != name);
    if members.is_empty() {
        groups.remove(group);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    type Object = (&'static str, &'static str, u32);

    impl Fact for (String, u32) {
        fn name(&self) -> &str {
            &self.0
        }
    }

    async fn keep(facts: &Facts<(String, u32)>, events: Vec<Event<Object>>) -> Vec<String> {
        let mut told = Vec::new();
        let stream = futures::stream::iter(events.into_iter().map(Ok));
        let view = |object: &Object| (object.0.to_owned(), (object.1.to_owned(), object.2));
        facts
            .keep("objects", stream, view, |object, fact| {
                told.push(format!("{} {}", object.1, fact.map_or(0, |fact| fact.1)));
            })
            .await;
        told
    }

    #[tokio::test]
    async fn only_news_is_told() {
        let facts = Facts::default();
        let told = keep(
            &facts,
            vec![
                Event::Init,
                Event::InitApply(("g", "a", 1)),
                Event::InitDone,
                Event::Apply(("g", "a", 1)),
                Event::Apply(("g", "a", 2)),
                Event::Apply(("g", "b", 3)),
                Event::Delete(("g", "a", 2)),
            ],
        )
        .await;
        assert_eq!(told, ["a 1", "a 2", "b 3", "a 0"]);
        assert_eq!(facts.group("g"), [("b".to_owned(), 3)]);
        facts.ready().await;
    }

    #[tokio::test]
    async fn what_a_new_list_lacks_is_forgotten() {
        let facts = Facts::default();
        keep(&facts, vec![Event::Apply(("g", "a", 1)), Event::Apply(("h", "b", 1))]).await;
        keep(&facts, vec![Event::Init, Event::InitApply(("h", "b", 2)), Event::InitDone]).await;
        assert!(facts.group("g").is_empty());
        assert_eq!(facts.pick(|fact| Some(fact.1)), [2]);
    }
}
