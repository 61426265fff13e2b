//! The work queue of all kinds: what is to be reconciled, when, and what is known of its last reconcile.
//!
//! One entry per key holds all of it: whether the key is queued or active, since when it waits, its timer, its
//! failures in a row, and the version that was written last.
//!
//! Invariants; the tests check them after every step:
//! 1. A key is handed out to one worker at a time. What arrives while it is active queues it at [`WorkQueue::done`].
//! 2. A key is queued at most once, however often it is added, in the lane of its most urgent priority.
//! 3. A key has at most one timer, the earliest that was asked for. Queueing the key cancels it.
//! 4. Kinds take turns. Within a kind a change is served before a resync, except that every eighth turn serves a
//!    resync first, so that none waits for ever.
//! 5. A change of a key that failed is served before its back-off is over, but of all such keys no more than
//!    [`RETRY_BURST`] at once and one each [`RETRY_EVERY`]: what fails for everybody, such as a webhook that is down, is
//!    not tried by each event that comes.
//! 6. An entry that holds nothing is dropped: memory is bounded by the keys that are queued, timed, failing or
//!    waited for.
//!
//! The library's runner polls everything that waits each time that anything moves, so a burst of n objects costs
//! it n² polls, and it takes what it has no room for in no order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// An object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The controller's name, such as `modelcompilation`.
    pub kind: &'static str,
    /// The object's namespace; empty for objects of the cluster.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key of an object of the controller `kind`.
    pub fn of<K: kube::Resource>(kind: &'static str, object: &K) -> Self {
        let metadata = object.meta();
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// How urgent a reconcile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The object or something that it depends on changed.
    Change,
    /// Nothing is known to have changed.
    Resync,
}

/// A key that was handed out.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The key; [`WorkQueue::done`] must be called with it.
    pub key: Key,
    /// How long it was queued.
    pub waited: Duration,
}

/// How the work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Done {
    /// Nothing is to be done until something changes.
    Settled,
    /// It is to be reconciled again after a time, unless something changes before.
    RequeueAfter(Duration),
    /// It failed and is tried again after a back-off, which the random number in `[0, 1)` spreads.
    Failed(f64),
    /// It was not tried: it is queued again at once, and counts as no failure.
    PutBack,
    /// The object does not exist any more: everything known of it is dropped.
    Gone,
}

/// Keys that wait for a worker.
#[derive(Debug)]
pub struct WorkQueue {
    inner: Mutex<Inner>,
    /// Something is ready, or due sooner than before, or the queue is closed.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Queued(Priority),
    Active,
    /// Active, and to be queued again.
    Dirty(Priority),
}

/// When a timer fires; the number tells equal times apart.
type Timer = (Instant, u64);

#[derive(Debug, Default)]
struct Entry {
    state: State,
    since: Option<Instant>,
    timer: Option<Timer>,
    failures: u32,
    written: Option<u64>,
}

/// The queued keys of one kind.
#[derive(Debug)]
struct Lane {
    kind: &'static str,
    changes: VecDeque<Key>,
    resyncs: VecDeque<Key>,
    turns: u32,
    depth: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Key, Entry>,
    lanes: Vec<Lane>,
    /// The lane that was served last.
    served: usize,
    timers: BTreeMap<Timer, Key>,
    numbers: u64,
    /// When the next change of a failed key could be served at the earliest, had there been no burst.
    next_retry: Option<Instant>,
    closed: bool,
}

impl Default for WorkQueue {
    fn default() -> Self {
        Self { inner: Mutex::default(), changed: Notify::new() }
    }
}

/// Every so many turns a resync is served before a change.
const RESYNC_TURN: u32 = 8;
/// Changes of failed keys that are served at once.
const RETRY_BURST: u32 = 100;
/// The time between two of them after that.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// The first back-off, in seconds; doubled for each failure in a row.
const FIRST_BACK_OFF: f64 = 0.25;
/// The longest back-off before it is spread, in seconds.
const LONGEST_BACK_OFF: f64 = 60.0;

impl WorkQueue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `key` is to be reconciled as soon as a worker is free.
    pub fn add(&self, key: Key, priority: Priority) {
        let now = Instant::now();
        let mut inner = self.inner();
        match inner.retry_at(&key, now) {
            Some(at) => inner.set_timer(key, at),
            None => inner.queue(key, priority, now),
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// `key` is to be reconciled after a time, unless it is added sooner.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.inner().set_timer(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// The next key to work on; `None` once the queue is closed.
    pub async fn next(&self) -> Option<Taken> {
        loop {
            let (taken, due, more) = {
                let mut inner = self.inner();
                if inner.closed {
                    drop(inner);
                    self.changed.notify_one();
                    return None;
                }
                let now = Instant::now();
                inner.fire_timers(now);
                let taken = inner.take(now);
                let due = inner.timers.first_key_value().map(|((at, _), _)| *at);
                (taken, due, inner.lanes.iter().any(|lane| lane.depth > 0))
            };
            if taken.is_some() {
                // A notification wakes one worker: whoever got a key wakes the next.
                if more || due.is_some() {
                    self.changed.notify_one();
                }
                return taken;
            }
            match due {
                Some(due) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// The work on `key` has ended. Returns the back-off after a failure.
    pub fn done(&self, key: &Key, done: Done) -> Option<Duration> {
        let back_off = self.inner().done(key, done, Instant::now());
        self.changed.notify_one();
        back_off
    }

    /// The object was written and has this resource version now.
    pub fn wrote(&self, key: &Key, resource_version: Option<&str>) {
        if let Some(version) = resource_version.and_then(|version| version.parse().ok()) {
            self.inner().entries.entry(key.clone()).or_default().written = Some(version);
        }
    }

    /// Whether `resource_version` is older than what was written last: planning from it would only end in a
    /// conflict. The watch brings the newer one and queues the object again.
    pub fn is_stale(&self, key: &Key, resource_version: Option<&str>) -> bool {
        let seen: Option<u64> = resource_version.and_then(|version| version.parse().ok());
        let mut inner = self.inner();
        let Some(entry) = inner.entries.get_mut(key) else { return false };
        match (entry.written, seen) {
            (Some(written), Some(seen)) if seen < written => true,
            _ => {
                entry.written = None;
                false
            }
        }
    }

    /// How many keys of `kind` are queued.
    pub fn depth(&self, kind: &str) -> usize {
        self.inner().lanes.iter().filter(|lane| lane.kind == kind).map(|lane| lane.depth).sum()
    }

    /// The kinds that had a key.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.inner().lanes.iter().map(|lane| lane.kind).collect()
    }

    /// Nothing is handed out any more.
    pub fn close(&self) {
        self.inner().closed = true;
        self.changed.notify_one();
    }
}

impl Inner {
    /// When a change of `key` is to be served where it failed and too many such keys change; `None` for now.
    fn retry_at(&mut self, key: &Key, now: Instant) -> Option<Instant> {
        let entry = self.entries.get(key)?;
        if entry.failures == 0 || entry.state != State::Idle {
            return None;
        }
        let next = self.next_retry.map_or(now, |next| next.max(now));
        let at = next.checked_sub(RETRY_EVERY * RETRY_BURST).filter(|at| *at > now);
        // One that has its turn before that keeps it.
        if at.is_some() && entry.timer.is_some_and(|(timer, _)| Some(timer) <= at) {
            return at;
        }
        self.next_retry = Some(next + RETRY_EVERY);
        at
    }

    fn queue(&mut self, key: Key, priority: Priority, now: Instant) {
        self.cancel_timer(&key);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.since.get_or_insert(now);
        let (state, was_queued) = match entry.state {
            State::Idle => (State::Queued(priority), false),
            State::Queued(queued) if priority < queued => (State::Queued(priority), true),
            State::Queued(_) => return,
            State::Active => (State::Dirty(priority), false),
            State::Dirty(queued) => (State::Dirty(queued.min(priority)), false),
        };
        entry.state = state;
        if let State::Queued(_) = state {
            let lane = self.lane(key.kind);
            lane.depth += usize::from(!was_queued);
            // The copy in the lane of the lower priority is skipped when its turn comes.
            lane.of(priority).push_back(key);
        }
    }

    fn lane(&mut self, kind: &'static str) -> &mut Lane {
        let found = self.lanes.iter().position(|lane| lane.kind == kind);
        let index = found.unwrap_or_else(|| {
            let (changes, resyncs) = Default::default();
            self.lanes.push(Lane { kind, changes, resyncs, turns: 0, depth: 0 });
            self.lanes.len() - 1
        });
        &mut self.lanes[index]
    }

    fn take(&mut self, now: Instant) -> Option<Taken> {
        let count = self.lanes.len();
        for step in 1..=count {
            let index = (self.served + step) % count;
            let entries = &self.entries;
            let is_live = |key: &Key, priority| {
                entries.get(key).is_some_and(|entry| entry.state == State::Queued(priority))
            };
            let Some(key) = self.lanes[index].pop(is_live) else { continue };
            self.served = index;
            let entry = self.entries.entry(key.clone()).or_default();
            entry.state = State::Active;
            let waited = entry.since.take().map_or(Duration::ZERO, |since| now - since);
            return Some(Taken { key, waited });
        }
        None
    }

    fn done(&mut self, key: &Key, done: Done, now: Instant) -> Option<Duration> {
        let entry = self.entries.entry(key.clone()).or_default();
        let state = std::mem::take(&mut entry.state);
        let mut back_off = None;
        match done {
            Done::Settled | Done::RequeueAfter(_) => entry.failures = 0,
            Done::Failed(random) => {
                let base = FIRST_BACK_OFF * f64::from(1 << entry.failures.min(8));
                entry.failures += 1;
                let seconds = base.min(LONGEST_BACK_OFF) * (0.5 + random);
                back_off = Some(Duration::from_secs_f64(seconds));
            }
            Done::PutBack => {}
            Done::Gone => {
                entry.failures = 0;
                entry.written = None;
                self.cancel_timer(key);
            }
        }
        let delay = match done {
            Done::RequeueAfter(delay) => Some(delay),
            _ => back_off,
        };
        match (state, delay) {
            (State::Dirty(priority), _) => self.queue(key.clone(), priority, now),
            _ if done == Done::PutBack => self.queue(key.clone(), Priority::Change, now),
            (_, Some(delay)) => self.set_timer(key.clone(), now + delay),
            _ => {}
        }
        self.drop_if_empty(key);
        back_off
    }

    fn set_timer(&mut self, key: Key, at: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        let is_due = matches!(entry.state, State::Queued(_) | State::Dirty(_));
        if is_due || entry.timer.is_some_and(|(known, _)| known <= at) {
            return;
        }
        self.cancel_timer(&key);
        self.numbers += 1;
        let timer = (at, self.numbers);
        self.entries.entry(key.clone()).or_default().timer = Some(timer);
        self.timers.insert(timer, key);
    }

    fn cancel_timer(&mut self, key: &Key) {
        if let Some(timer) = self.entries.get_mut(key).and_then(|entry| entry.timer.take()) {
            self.timers.remove(&timer);
        }
    }

    fn fire_timers(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.get().clone();
            self.queue(key, Priority::Change, now);
        }
    }

    fn drop_if_empty(&mut self, key: &Key) {
        let is_empty = self.entries.get(key).is_some_and(|entry| {
            entry.state == State::Idle
                && entry.timer.is_none()
                && entry.failures == 0
                && entry.written.is_none()
        });
        if is_empty {
            self.entries.remove(key);
        }
    }
}

impl Lane {
    fn of(&mut self, priority: Priority) -> &mut VecDeque<Key> {
        match priority {
            Priority::Change => &mut self.changes,
            Priority::Resync => &mut self.resyncs,
        }
    }

    /// The next key that is still queued with the priority of its list.
    fn pop(&mut self, is_live: impl Fn(&Key, Priority) -> bool) -> Option<Key> {
        if self.depth == 0 {
            self.changes.clear();
            self.resyncs.clear();
            return None;
        }
        self.turns = self.turns.wrapping_add(1);
        let order = match self.turns % RESYNC_TURN {
            0 => [Priority::Resync, Priority::Change],
            _ => [Priority::Change, Priority::Resync],
        };
        for priority in order {
            while let Some(key) = self.of(priority).pop_front() {
                if is_live(&key, priority) {
                    self.depth -= 1;
                    return Some(key);
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
