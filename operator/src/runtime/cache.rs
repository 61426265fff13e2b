//! The informer cache of one kind: of each object what plans depend on, in groups, so that what belongs to one
//! owner is found without a walk.
//!
//! Invariants:
//! 1. Whoever is notified of a change finds it in the cache. So an object that a relist brings is in the cache at
//!    its `InitApply`, and not only at `InitDone`.
//! 2. What a relist lacks has gone: it is removed and reported at `InitDone`, like a deletion that was seen.
//! 3. An object that did not change is not reported, so a relist costs no reconciles.
//!
//! The library's `reflector::Store` swaps in a whole list at `InitDone` and reports each object before; who
//! looks it up at once finds the old state or nothing. A test below shows it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use tokio::sync::watch;

use super::chain;

/// What is kept of one object. Equal values mean that nothing changed.
pub trait Cached: Clone + PartialEq {
    /// The object's name, unique within its group.
    fn name(&self) -> &str;
}

/// Everything that is kept of the objects of a kind, by group.
#[derive(Debug)]
pub struct Cache<F> {
    groups: Mutex<Groups<F>>,
    synced: watch::Sender<bool>,
}

/// A group has one member nearly always, so it is a list.
type Groups<F> = HashMap<String, Vec<F>>;

/// A whole object; two are equal when they are the same version of the same object.
#[derive(Debug)]
pub struct Object<K>(pub Arc<K>);

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0.meta(), other.0.meta());
        a.uid == b.uid && a.resource_version == b.resource_version && a.resource_version.is_some()
    }
}

impl<K: Resource> Cached for Object<K> {
    fn name(&self) -> &str {
        self.0.meta().name.as_deref().unwrap_or_default()
    }
}

/// The group of a whole object: it alone.
pub fn object_group(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Group and entry of a whole object.
pub fn object<K: Resource + Clone>(object: &K) -> Option<(String, Object<K>)> {
    let namespace = object.namespace().unwrap_or_default();
    let group = object_group(&namespace, &object.name_any());
    Some((group, Object(Arc::new(object.clone()))))
}

impl<K: Resource> Cache<Object<K>> {
    /// One object; `namespace` is empty for objects of the cluster.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let groups = self.groups();
        groups.get(&object_group(namespace, name))?.first().map(|object| Arc::clone(&object.0))
    }

    /// Every object, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.pick(|object| Some(Arc::clone(&object.0)))
    }
}

impl<F> Default for Cache<F> {
    fn default() -> Self {
        Self { groups: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl<F: Cached> Cache<F> {
    fn groups(&self) -> MutexGuard<'_, Groups<F>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members of `group`, by name.
    pub fn group(&self, group: &str) -> Vec<F> {
        let mut members = self.groups().get(group).cloned().unwrap_or_default();
        members.sort_by(|a, b| a.name().cmp(b.name()));
        members
    }

    /// What `pick` returns for each member of `group`, in no order; none of them is copied.
    pub fn pick_of<T>(&self, group: &str, pick: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        self.groups().get(group).into_iter().flatten().filter_map(pick).collect()
    }

    /// The first `most` things that `pick` returns for members, in no order.
    pub fn pick_first<T>(&self, most: usize, pick: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        self.groups().values().flatten().filter_map(pick).take(most).collect()
    }

    /// What `pick` returns for each member, in no order.
    pub fn pick<T>(&self, pick: impl FnMut(&F) -> Option<T>) -> Vec<T> {
        self.groups().values().flatten().filter_map(pick).collect()
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns once the first list is complete.
    pub async fn synced(&self) {
        // The sender is a field of this, so it is not gone.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Keeps the cache current with a watch of `what`, until the stream ends. `view` gives group and entry of an
    /// object, or nothing where it is not kept. `changed` is called with the entry before and after each change.
    pub async fn follow<K>(
        &self,
        what: &str,
        stream: impl Stream<Item = Result<Event<K>, watcher::Error>>,
        view: impl Fn(&K) -> Option<(String, F)>,
        mut changed: impl FnMut(Option<&F>, Option<&F>),
    ) {
        futures::pin_mut!(stream);
        let mut listed = HashSet::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Apply(object)) => self.set(view(&object), &mut changed),
                Ok(Event::Delete(object)) => {
                    if let Some((group, entry)) = view(&object) {
                        self.remove(&group, entry.name(), &mut changed);
                    }
                }
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    let entry = view(&object);
                    if let Some((group, entry)) = &entry {
                        listed.insert((group.clone(), entry.name().to_owned()));
                    }
                    self.set(entry, &mut changed);
                }
                Ok(Event::InitDone) => {
                    self.retain(&std::mem::take(&mut listed), &mut changed);
                    self.synced.send_replace(true);
                }
                Err(error) => {
                    tracing::warn!(what, error = %chain(&error), "watch interrupted");
                }
            }
        }
    }

    fn set(&self, entry: Option<(String, F)>, changed: &mut impl FnMut(Option<&F>, Option<&F>)) {
        let Some((group, entry)) = entry else { return };
        let mut groups = self.groups();
        let members = groups.entry(group).or_insert_with(|| Vec::with_capacity(1));
        let known = members.iter_mut().find(|member| member.name() == entry.name());
        let before = match known {
            Some(member) if *member == entry => return,
            Some(member) => Some(std::mem::replace(member, entry.clone())),
            None => {
                members.push(entry.clone());
                None
            }
        };
        drop(groups);
        changed(before.as_ref(), Some(&entry));
    }

    fn remove(&self, group: &str, name: &str, changed: &mut impl FnMut(Option<&F>, Option<&F>)) {
        let mut groups = self.groups();
        let Some(members) = groups.get_mut(group) else { return };
        let Some(index) = members.iter().position(|member| member.name() == name) else { return };
        let gone = members.swap_remove(index);
        if members.is_empty() {
            groups.remove(group);
        }
        drop(groups);
        changed(Some(&gone), None);
    }

    /// Removes what is not in `listed`.
    fn retain(
        &self,
        listed: &HashSet<(String, String)>,
        changed: &mut impl FnMut(Option<&F>, Option<&F>),
    ) {
        let names = |(group, members): (&String, &Vec<F>)| -> Vec<(String, String)> {
            members.iter().map(|member| (group.clone(), member.name().to_owned())).collect()
        };
        let known: Vec<(String, String)> = self.groups().iter().flat_map(names).collect();
        for (group, name) in known.iter().filter(|key| !listed.contains(*key)) {
            self.remove(group, name, changed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::reflector;
    use kube::runtime::{WatchStreamExt, reflector::ObjectRef};

    type Triple = (&'static str, &'static str, u32);

    impl Cached for (String, u32) {
        fn name(&self) -> &str {
            &self.0
        }
    }

    async fn follow(cache: &Cache<(String, u32)>, events: Vec<Event<Triple>>) -> Vec<String> {
        let mut reported = Vec::new();
        let stream = futures::stream::iter(events.into_iter().map(Ok));
        let view = |object: &Triple| Some((object.0.to_owned(), (object.1.to_owned(), object.2)));
        let changed = |before: Option<&(String, u32)>, after: Option<&(String, u32)>| {
            // Invariant 1: what is reported is what a look into the cache finds.
            if let Some(entry) = after {
                assert!(cache.pick(|found| (found == entry).then_some(())).len() == 1);
            }
            let number = |entry: Option<&(String, u32)>| entry.map_or(0, |entry| entry.1);
            let name = &before.or(after).unwrap().0;
            reported.push(format!("{name} {}>{}", number(before), number(after)));
        };
        cache.follow("objects", stream, view, changed).await;
        reported
    }

    #[tokio::test]
    async fn only_changes_are_reported() {
        let cache = Cache::default();
        let events = vec![
            Event::Init,
            Event::InitApply(("g", "a", 1)),
            Event::InitDone,
            Event::Apply(("g", "a", 1)),
            Event::Apply(("g", "a", 2)),
            Event::Apply(("g", "b", 3)),
            Event::Delete(("g", "a", 2)),
        ];
        assert_eq!(follow(&cache, events).await, ["a 0>1", "a 1>2", "b 0>3", "a 2>0"]);
        assert_eq!(cache.group("g"), [("b".to_owned(), 3)]);
        cache.synced().await;
    }

    #[tokio::test]
    async fn a_relist_reports_what_came_what_changed_and_what_went() {
        let cache = Cache::default();
        let first = vec![
            Event::Init,
            Event::InitApply(("g", "gone", 1)),
            Event::InitApply(("h", "edited", 1)),
            Event::InitApply(("h", "same", 1)),
            Event::InitDone,
        ];
        follow(&cache, first).await;
        let relist = vec![
            Event::Init,
            // Cut off and begun again: what was listed before counts for nothing.
            Event::InitApply(("g", "gone", 1)),
            Event::Init,
            Event::InitApply(("h", "edited", 2)),
            Event::InitApply(("h", "same", 1)),
            Event::InitApply(("i", "new", 5)),
            Event::InitDone,
        ];
        assert_eq!(follow(&cache, relist).await, ["edited 1>2", "new 0>5", "gone 1>0"]);
        assert!(cache.group("g").is_empty());
    }

    fn config_map(version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("new".to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    fn relist() -> Vec<Result<Event<ConfigMap>, watcher::Error>> {
        vec![Ok(Event::Init), Ok(Event::InitApply(config_map("2"))), Ok(Event::InitDone)]
    }

    /// Why the store is not the library's: it reports what a lookup does not find.
    #[tokio::test]
    async fn the_librarys_store_lacks_what_it_reports_during_a_relist() {
        let (store, writer) = reflector::store();
        let reported = futures::stream::iter(relist()).reflect(writer).touched_objects();
        let found: Vec<bool> = reported
            .map(|object| store.get(&ObjectRef::from_obj(&object.unwrap())).is_some())
            .collect()
            .await;
        assert_eq!(found, [false]);
    }

    #[tokio::test]
    async fn an_object_is_found_when_a_relist_reports_it() {
        let cache: Cache<Object<ConfigMap>> = Cache::default();
        let mut found = Vec::new();
        let stream = futures::stream::iter(relist());
        let changed = |_: Option<&Object<ConfigMap>>, after: Option<&Object<ConfigMap>>| {
            found.push(cache.get("", after.unwrap().name()).is_some());
        };
        cache.follow("configmaps", stream, object, changed).await;
        assert_eq!(found, [true]);
        assert_eq!(cache.all().len(), 1);
    }
}
