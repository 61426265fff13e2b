//! Who is to be reconciled, and when: first come, first served, each once however often it is asked for,
//! and never twice at the same time.
//!
//! The library's own controller looks at everything that waits each time that anything moves, so its
//! work grows with the square of a burst; and what it has no room for it takes in no order.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Keys that wait for their turn.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    /// Something became due, or is due sooner than all before, or nothing comes any more.
    news: Notify,
}

/// Where a key stands. One that is only due later stands nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// In line.
    InLine,
    /// Being worked on.
    AtWork,
    /// Being worked on, and asked for meanwhile.
    AtWorkAndAsked,
}

#[derive(Debug)]
struct State<K> {
    line: VecDeque<K>,
    stands: HashMap<K, Stands>,
    /// By time; the number tells equal times apart.
    later: BTreeSet<(Instant, u64)>,
    later_keys: HashMap<u64, K>,
    later_of: HashMap<K, (Instant, u64)>,
    numbers: u64,
    closed: bool,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            line: VecDeque::new(),
            stands: HashMap::new(),
            later: BTreeSet::new(),
            later_keys: HashMap::new(),
            later_of: HashMap::new(),
            numbers: 0,
            closed: false,
        };
        Self { state: Mutex::new(state), news: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `key` is to be worked on as soon as it is its turn.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.news.notify_one();
    }

    /// `key` is to be worked on after a time, unless it is asked for sooner.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.state().add_at(key, Instant::now() + delay);
        self.news.notify_one();
    }

    /// The next whose turn it is; `None` once the queue is closed. Say [`Self::done`] afterwards.
    pub async fn next(&self) -> Option<K> {
        loop {
            let (found, due, more) = {
                let mut state = self.state();
                if state.closed {
                    drop(state);
                    self.news.notify_one();
                    return None;
                }
                state.take_due(Instant::now());
                let found = state.line.pop_front();
                if let Some(key) = &found {
                    state.stands.insert(key.clone(), Stands::AtWork);
                }
                (found, state.later.first().map(|(at, _)| *at), !state.line.is_empty())
            };
            if found.is_some() {
                // A notification wakes one: who got something lets the next look.
                if more || due.is_some() {
                    self.news.notify_one();
                }
                return found;
            }
            match due {
                Some(due) => {
                    tokio::select! {
                        () = self.news.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => self.news.notified().await,
            }
        }
    }

    /// The work on `key` has ended.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        if state.stands.remove(key) == Some(Stands::AtWorkAndAsked) {
            state.add(key.clone());
            drop(state);
            self.news.notify_one();
        }
    }

    /// Nothing is handed out any more.
    pub fn close(&self) {
        self.state().closed = true;
        self.news.notify_one();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K) {
        self.forget_later(&key);
        match self.stands.get_mut(&key) {
            Some(Stands::InLine) => {}
            Some(stands) => *stands = Stands::AtWorkAndAsked,
            None => {
                self.stands.insert(key.clone(), Stands::InLine);
                self.line.push_back(key);
            }
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        let sooner = self.later_of.get(&key).is_some_and(|(known, _)| *known <= at);
        let asked = matches!(self.stands.get(&key), Some(Stands::InLine | Stands::AtWorkAndAsked));
        if sooner || asked {
            return;
        }
        self.forget_later(&key);
        self.numbers += 1;
        self.later.insert((at, self.numbers));
        self.later_keys.insert(self.numbers, key.clone());
        self.later_of.insert(key, (at, self.numbers));
    }

    fn forget_later(&mut self, key: &K) {
        if let Some(entry) = self.later_of.remove(key) {
            self.later.remove(&entry);
            self.later_keys.remove(&entry.1);
        }
    }

    fn take_due(&mut self, now: Instant) {
        while let Some(entry) = self.later.first().copied().filter(|(at, _)| *at <= now) {
            self.later.remove(&entry);
            if let Some(key) = self.later_keys.remove(&entry.1) {
                self.add(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn in_order_and_once() {
        let queue = Queue::default();
        for key in ["a", "b", "a", "c"] {
            queue.add(key);
        }
        for key in ["a", "b", "c"] {
            assert_eq!(queue.next().await, Some(key));
        }
        queue.done(&"a");
        queue.done(&"c");
        let nothing = tokio::time::timeout(Duration::from_secs(9), queue.next()).await;
        assert!(nothing.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn never_twice_at_the_same_time() {
        let queue = Queue::default();
        queue.add("a");
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        let busy = tokio::time::timeout(Duration::from_secs(9), queue.next()).await;
        assert!(busy.is_err());
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn later_and_the_soonest_counts() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("b", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("a", Duration::from_secs(20));
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!(start.elapsed().as_secs(), 3);
        assert_eq!(queue.next().await, Some("b"));
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        queue.add_after("a", Duration::from_secs(60));
        queue.add("a");
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        assert!(queue.state().later.is_empty() && queue.state().later_keys.is_empty());
        assert!(queue.state().later_of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_get_everything() {
        let queue = Arc::new(Queue::default());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move {
                    let mut done = 0;
                    while let Some(key) = queue.next().await {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        queue.done(&key);
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        (0..100).for_each(|n| queue.add(n));
        (100..200).for_each(|n| queue.add_after(n, Duration::from_secs(1)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        queue.close();
        let mut sum = 0;
        for worker in workers {
            sum += worker.await.unwrap();
        }
        assert_eq!(sum, 200);
    }
}
