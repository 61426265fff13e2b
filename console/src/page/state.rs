//! What is known of the cluster, numbered by change.
//!
//! Invariants: an object is stored under one key with the number of its last change, and `changed` lists each key once,
//! by that number. A reader remembers the highest number it was sent and asks for what is above it. What was deleted
//! stays as a mark until [`MARKS`] newer marks are there; who is further behind begins anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::shown::{self, Change};

/// Lines of activity that are kept.
const ACTIVITY: usize = 200;
/// Marks of deleted objects that are kept.
const MARKS: usize = 4096;
/// Most objects of a kind that one reader is sent: those that were made last.
pub const SHOWN: usize = 500;

/// An object's identity: kind, namespace, name.
pub type Key = (String, String, String);

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Key, (u64, Value)>,
    marks: BTreeMap<Key, u64>,
    changed: BTreeMap<u64, Key>,
    /// Everything up to this number may lack marks.
    forgotten: u64,
    last: u64,
    activity: VecDeque<(u64, Change)>,
    notices: BTreeMap<String, String>,
    synced: BTreeSet<String>,
}

/// The state, and a channel that notifies of each change.
pub struct State {
    inner: Mutex<Inner>,
    notify: watch::Sender<u64>,
}

impl Default for State {
    fn default() -> Self {
        Self { inner: Mutex::default(), notify: watch::Sender::new(0) }
    }
}

/// What a reader wants to see.
#[derive(Clone, Debug, Default)]
pub struct Filter(String);

impl Filter {
    /// Objects whose `namespace/name` holds `text`, in either case of letters.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_lowercase())
    }

    fn wants(&self, (kind, namespace, name): &Key) -> bool {
        // Pools and who holds their devices are few, and everybody's.
        let whole = matches!(kind.as_str(), "DevicePool" | "Lease");
        whole || self.0.is_empty() || format!("{namespace}/{name}").to_lowercase().contains(&self.0)
    }
}

impl State {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an object. Activity is reported only once its kind was listed: what existed before is no change.
    pub fn put(&self, key: Key, value: Value, now: Timestamp) {
        let mut inner = self.inner();
        let before = inner.objects.get(&key).map(|(_, value)| value);
        if before == Some(&value) {
            return;
        }
        let changes = match inner.synced.contains(&key.0) {
            true => shown::changes(before, &value, now),
            false => Vec::new(),
        };
        let number = inner.number(&key);
        inner.marks.remove(&key);
        inner.objects.insert(key, (number, value));
        for change in changes {
            inner.activity.push_back((number, change));
        }
        let over = inner.activity.len().saturating_sub(ACTIVITY);
        inner.activity.drain(..over);
        self.notify.send_replace(number);
    }

    /// Forgets an object and leaves a mark.
    pub fn remove(&self, key: &Key) {
        let mut inner = self.inner();
        if inner.objects.contains_key(key) {
            let number = inner.number(key);
            inner.objects.remove(key);
            inner.marks.insert(key.clone(), number);
            inner.trim_marks();
            self.notify.send_replace(number);
        }
    }

    /// After a list of a kind: forgets the objects that were not in it.
    pub fn listed(&self, kind: &str, found: &BTreeSet<Key>) {
        let gone: Vec<Key> = {
            let mut inner = self.inner();
            inner.synced.insert(kind.to_owned());
            let of_kind = inner.objects.keys().filter(|key| key.0 == kind);
            of_kind.filter(|key| !found.contains(*key)).cloned().collect()
        };
        gone.iter().for_each(|key| self.remove(key));
    }

    /// Notes why a kind cannot be watched, or that it can.
    pub fn notice(&self, kind: &str, why: Option<String>) {
        let mut inner = self.inner();
        let changed = match why {
            Some(why) => inner.notices.insert(kind.to_owned(), why.clone()) != Some(why),
            None => inner.notices.remove(kind).is_some(),
        };
        if changed {
            inner.last += 1;
            self.notify.send_replace(inner.last);
        }
    }

    /// Notifies when there is a newer number than the last.
    pub fn notifications(&self) -> watch::Receiver<u64> {
        self.notify.subscribe()
    }

    /// An object as it is shown.
    pub fn get(&self, key: &Key) -> Option<Value> {
        self.inner().objects.get(key).map(|(_, value)| value.clone())
    }

    /// What changed after number `since`, for a reader with this filter, and the number that it has then seen. A
    /// `since` of 0, or one too old, gives everything with `reset` set.
    pub fn after(&self, since: u64, filter: &Filter) -> (u64, Value) {
        let inner = self.inner();
        let reset = since == 0 || since < inner.forgotten;
        let (objects, gone) = match reset {
            true => (inner.newest(filter), Vec::new()),
            false => inner.changed_after(since, filter),
        };
        let activity = inner.activity.iter().filter(|(number, _)| reset || *number > since);
        let activity: Vec<&Change> = activity.map(|(_, change)| change).collect();
        let batch = json!({
            "reset": reset,
            "objects": objects,
            "gone": gone,
            "activity": activity,
            "notices": inner.notices,
            "totals": inner.totals(),
            "limit": SHOWN,
        });
        (inner.last.max(1), batch)
    }
}

impl Inner {
    /// The next number, under which `key` has changed now.
    fn number(&mut self, key: &Key) -> u64 {
        let earlier = self.objects.get(key).map(|(number, _)| *number);
        if let Some(earlier) = earlier.or(self.marks.get(key).copied()) {
            self.changed.remove(&earlier);
        }
        self.last += 1;
        self.changed.insert(self.last, key.clone());
        self.last
    }

    fn trim_marks(&mut self) {
        while self.marks.len() > MARKS {
            let oldest = self.marks.iter().min_by_key(|(_, number)| **number);
            let Some((key, number)) = oldest.map(|(key, number)| (key.clone(), *number)) else {
                return;
            };
            self.marks.remove(&key);
            self.changed.remove(&number);
            self.forgotten = number;
        }
    }

    /// The objects that were made last, at most [`SHOWN`] of each kind.
    fn newest(&self, filter: &Filter) -> Vec<&Value> {
        let mut kinds: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for (key, (_, value)) in self.objects.iter().filter(|(key, _)| filter.wants(key)) {
            kinds.entry(&key.0).or_default().push(value);
        }
        let made = |value: &Value| value["created"].as_str().map(str::to_owned);
        for objects in kinds.values_mut() {
            objects.sort_by_key(|value| std::cmp::Reverse(made(value)));
            objects.truncate(SHOWN);
        }
        kinds.into_values().flatten().collect()
    }

    fn changed_after(&self, since: u64, filter: &Filter) -> (Vec<&Value>, Vec<[&str; 3]>) {
        let (mut objects, mut gone) = (Vec::new(), Vec::new());
        for key in
            self.changed.range(since + 1..).map(|(_, key)| key).filter(|key| filter.wants(key))
        {
            match self.objects.get(key) {
                Some((_, value)) => objects.push(value),
                None => gone.push([key.0.as_str(), key.1.as_str(), key.2.as_str()]),
            }
        }
        (objects, gone)
    }

    /// Compilations by phase, whatever the filter.
    fn totals(&self) -> BTreeMap<&str, u64> {
        let mut totals = BTreeMap::new();
        for (_, (_, value)) in self.objects.iter().filter(|(key, _)| key.0 == "ModelCompilation") {
            let phase = value.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending");
            *totals.entry(phase).or_insert(0) += 1;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ModelCompilation".to_owned(), "team".to_owned(), name.to_owned())
    }

    fn object(name: &str, phase: &str) -> Value {
        json!({"kind": "ModelCompilation", "namespace": "team", "name": name, "created": format!("2026-{name}"),
            "status": {"phase": phase}})
    }

    fn put(state: &State, name: &str, phase: &str) {
        state.put(key(name), object(name, phase), Timestamp::UNIX_EPOCH);
    }

    fn names(batch: &Value) -> Vec<&str> {
        batch["objects"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|o| o["name"].as_str())
            .collect()
    }

    #[test]
    fn a_reader_gets_what_changed_since_it_looked() {
        let (state, all) = (State::default(), Filter::default());
        put(&state, "a", "Pending");
        put(&state, "b", "Pending");
        state.listed("ModelCompilation", &BTreeSet::from([key("a"), key("b")]));
        let (seen, first) = state.after(0, &all);
        assert_eq!((first["reset"].as_bool(), names(&first)), (Some(true), vec!["b", "a"]));
        assert_eq!(first["activity"], json!([]), "what was there before did not just happen");
        put(&state, "a", "Running");
        put(&state, "a", "Succeeded");
        put(&state, "b", "Pending");
        state.remove(&key("b"));
        let (seen, next) = state.after(seen, &all);
        assert_eq!((next["reset"].as_bool(), names(&next)), (Some(false), vec!["a"]));
        assert_eq!(next["gone"], json!([["ModelCompilation", "team", "b"]]));
        assert_eq!(next["totals"], json!({"Succeeded": 1}));
        assert_eq!(next["activity"].as_array().map(Vec::len), Some(2));
        let (_, nothing) = state.after(seen, &all);
        assert_eq!((names(&nothing), &nothing["activity"]), (vec![], &json!([])));
    }

    #[test]
    fn a_relist_forgets_what_is_gone() {
        let state = State::default();
        put(&state, "a", "Pending");
        put(&state, "b", "Pending");
        let (seen, _) = state.after(0, &Filter::default());
        state.listed("ModelCompilation", &BTreeSet::from([key("b")]));
        assert_eq!(
            state.after(seen, &Filter::default()).1["gone"],
            json!([["ModelCompilation", "team", "a"]])
        );
    }

    #[test]
    fn who_is_too_far_behind_begins_anew() {
        let (state, all) = (State::default(), Filter::default());
        put(&state, "kept", "Pending");
        let (seen, _) = state.after(0, &all);
        for number in 0..MARKS + 2 {
            put(&state, &number.to_string(), "Pending");
            state.remove(&key(&number.to_string()));
        }
        let (_, batch) = state.after(seen, &all);
        assert_eq!((batch["reset"].as_bool(), names(&batch)), (Some(true), vec!["kept"]));
        assert!(state.inner().changed.len() <= MARKS + 1);
    }

    #[test]
    fn a_reader_is_sent_a_bounded_number() {
        let state = State::default();
        (0..SHOWN + 20).for_each(|number| put(&state, &format!("{number:04}"), "Pending"));
        let (_, batch) = state.after(0, &Filter::default());
        assert_eq!(names(&batch).len(), SHOWN);
        assert_eq!(batch["totals"]["Pending"], (SHOWN + 20) as u64);
        assert_eq!(names(&state.after(0, &Filter::new("TEAM/0007")).1), ["0007"]);
    }
}
