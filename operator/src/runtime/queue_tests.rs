//! The invariants of the work queue, by hand-written cases and by random operations.
#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::HashSet;
use std::sync::Arc;

use Priority::{Change, Resync};

fn key(name: &str) -> Key {
    Key { kind: "modelcompilation", namespace: "team".to_owned(), name: name.to_owned() }
}

fn pool(name: &str) -> Key {
    Key { kind: "devicepool", namespace: String::new(), name: name.to_owned() }
}

/// Panics where an invariant does not hold.
fn check(queue: &WorkQueue) {
    let inner = queue.inner();
    for lane in &inner.lanes {
        let mut live = HashSet::new();
        for (priority, keys) in [(Change, &lane.changes), (Resync, &lane.resyncs)] {
            let is_live = |key: &&Key| inner.entries[*key].state == State::Queued(priority);
            let known = |key: &&Key| inner.entries.contains_key(*key);
            live.extend(keys.iter().filter(known).filter(is_live));
        }
        let queued = |(key, entry): &(&Key, &Entry)| {
            key.kind == lane.kind && matches!(entry.state, State::Queued(_))
        };
        let expected: HashSet<&Key> = inner.entries.iter().filter(queued).map(|e| e.0).collect();
        assert_eq!(live, expected, "queued keys and lanes differ");
        assert_eq!(lane.depth, expected.len());
    }
    for (timer, key) in &inner.timers {
        assert_eq!(inner.entries[key].timer, Some(*timer));
    }
    let timed = inner.entries.values().filter(|entry| entry.timer.is_some()).count();
    assert_eq!(timed, inner.timers.len());
}

async fn take(queue: &WorkQueue) -> Option<String> {
    let next = tokio::time::timeout(Duration::from_millis(1), queue.next()).await;
    check(queue);
    next.ok().flatten().map(|taken| taken.key.name)
}

#[tokio::test(start_paused = true)]
async fn keys_are_served_in_order_and_once() {
    let queue = WorkQueue::default();
    for name in ["a", "b", "a", "c"] {
        queue.add(key(name), Change);
    }
    assert_eq!(queue.depth("modelcompilation"), 3);
    for name in ["a", "b", "c"] {
        assert_eq!(take(&queue).await.as_deref(), Some(name));
    }
    queue.done(&key("a"), Done::Settled);
    queue.done(&key("c"), Done::Settled);
    assert_eq!(take(&queue).await, None);
    queue.done(&key("b"), Done::Settled);
    assert!(queue.inner().entries.is_empty(), "{:?}", queue.inner().entries);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_active_twice() {
    let queue = WorkQueue::default();
    queue.add(key("a"), Change);
    assert_eq!(take(&queue).await.as_deref(), Some("a"));
    queue.add(key("a"), Change);
    assert_eq!(take(&queue).await, None);
    // What arrived meanwhile is newer than the failure: there is no back-off.
    queue.done(&key("a"), Done::Failed(0.5));
    assert_eq!(take(&queue).await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_edit_goes_before_resyncs_and_no_resync_starves() {
    let queue = WorkQueue::default();
    (0..100).for_each(|n| queue.add(key(&format!("resync-{n}")), Resync));
    queue.add(key("edit"), Change);
    assert_eq!(take(&queue).await.as_deref(), Some("edit"));
    // A resync that is edited goes first, and is served once.
    queue.add(key("resync-50"), Change);
    assert_eq!(take(&queue).await.as_deref(), Some("resync-50"));
    assert_eq!(queue.depth("modelcompilation"), 99);
    (0..100).for_each(|n| queue.add(key(&format!("edit-{n}")), Change));
    let mut resyncs = 0;
    for _ in 0..80 {
        resyncs += usize::from(take(&queue).await.unwrap().starts_with("resync"));
    }
    assert_eq!(resyncs, 10);
}

#[tokio::test(start_paused = true)]
async fn kinds_take_turns() {
    let queue = WorkQueue::default();
    (0..1000).for_each(|n| queue.add(key(&n.to_string()), Change));
    queue.add(pool("pool"), Change);
    let first = [take(&queue).await.unwrap(), take(&queue).await.unwrap()];
    assert!(first.contains(&"pool".to_owned()), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn the_earliest_timer_counts() {
    let queue = WorkQueue::default();
    let start = Instant::now();
    queue.add_after(key("a"), Duration::from_secs(10));
    queue.add_after(key("b"), Duration::from_secs(5));
    queue.add_after(key("a"), Duration::from_secs(3));
    queue.add_after(key("a"), Duration::from_secs(20));
    assert_eq!(queue.next().await.unwrap().key, key("a"));
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(queue.next().await.unwrap().key, key("b"));
    assert_eq!(start.elapsed().as_secs(), 5);
    queue.done(&key("a"), Done::RequeueAfter(Duration::from_secs(60)));
    queue.add(key("a"), Change);
    assert_eq!(take(&queue).await.as_deref(), Some("a"));
    queue.done(&key("a"), Done::Settled);
    assert!(queue.inner().timers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn back_off_grows_and_resets() {
    let queue = WorkQueue::default();
    let fail = async |random| {
        queue.add(key("a"), Change);
        take(&queue).await.unwrap();
        queue.done(&key("a"), Done::Failed(random)).unwrap()
    };
    let (first, second) = (fail(0.5).await, fail(0.5).await);
    assert!(second > first);
    for _ in 0..20 {
        assert!(fail(0.99).await <= Duration::from_secs(96));
    }
    queue.add(key("a"), Change);
    take(&queue).await.unwrap();
    queue.done(&key("a"), Done::Settled);
    queue.add(key("a"), Change);
    take(&queue).await.unwrap();
    assert_eq!(queue.done(&key("a"), Done::Failed(0.5)), Some(first));
}

#[tokio::test(start_paused = true)]
async fn what_was_put_back_is_no_failure() {
    let queue = WorkQueue::default();
    queue.add(key("a"), Change);
    take(&queue).await.unwrap();
    assert_eq!(queue.done(&key("a"), Done::PutBack), None);
    assert_eq!(take(&queue).await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_written_is_waited_for() {
    let queue = WorkQueue::default();
    assert!(!queue.is_stale(&key("a"), Some("7")));
    queue.wrote(&key("a"), Some("9"));
    assert!(queue.is_stale(&key("a"), Some("7")));
    assert!(!queue.is_stale(&key("a"), Some("9")));
    // An object that is gone leaves nothing behind.
    queue.wrote(&key("a"), Some("11"));
    queue.add(key("a"), Change);
    take(&queue).await.unwrap();
    queue.done(&key("a"), Done::Gone);
    assert!(queue.inner().entries.is_empty());
}

/// A generator of numbers that is the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test(start_paused = true)]
async fn random_operations_keep_the_invariants() {
    let mut random = Random(1);
    let queue = WorkQueue::default();
    let mut active: Vec<Key> = Vec::new();
    for _ in 0..5000 {
        let name = random.below(12).to_string();
        let key = if random.below(2) == 0 { key(&name) } else { pool(&name) };
        match random.below(6) {
            0 => queue.add(key, Change),
            1 => queue.add(key, Resync),
            2 => queue.add_after(key, Duration::from_millis(random.below(50))),
            3 => tokio::time::advance(Duration::from_millis(random.below(20))).await,
            4 => {
                let next = tokio::time::timeout(Duration::ZERO, queue.next()).await;
                if let Ok(Some(taken)) = next {
                    assert!(!active.contains(&taken.key), "{:?} is active twice", taken.key);
                    active.push(taken.key);
                }
            }
            _ if !active.is_empty() => {
                let key = active.swap_remove(random.below(active.len() as u64) as usize);
                let done = match random.below(4) {
                    0 => Done::Settled,
                    1 => Done::RequeueAfter(Duration::from_millis(random.below(50))),
                    2 => Done::Failed(0.5),
                    _ => Done::Gone,
                };
                queue.done(&key, done);
            }
            _ => {}
        }
        check(&queue);
    }
}

#[tokio::test(start_paused = true)]
async fn many_workers_get_everything() {
    let queue = Arc::new(WorkQueue::default());
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                let mut done = 0;
                while let Some(taken) = queue.next().await {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    queue.done(&taken.key, Done::Settled);
                    done += 1;
                }
                done
            })
        })
        .collect();
    (0..100).for_each(|n| queue.add(key(&n.to_string()), Change));
    (100..200).for_each(|n| queue.add_after(key(&n.to_string()), Duration::from_secs(1)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    queue.close();
    let mut sum = 0;
    for worker in workers {
        sum += worker.await.unwrap();
    }
    assert_eq!(sum, 200);
}

/// B24: ten thousand objects that all fail are not tried by each event that comes.
#[tokio::test(start_paused = true)]
async fn changes_of_what_fails_are_served_at_a_bounded_rate() {
    const OBJECTS: usize = 2000;
    let queue = WorkQueue::default();
    let keys: Vec<Key> = (0..OBJECTS).map(|number| key(&format!("object-{number}"))).collect();
    keys.iter().for_each(|key| queue.add(key.clone(), Change));
    for _ in 0..OBJECTS {
        let taken = queue.next().await.unwrap();
        // The longest back-off, so that only events bring it back.
        queue.inner().entries.get_mut(&taken.key).unwrap().failures = 9;
        queue.done(&taken.key, Done::Failed(0.5));
    }
    let start = Instant::now();
    let mut served = 0;
    for key in &keys {
        queue.add(key.clone(), Change);
    }
    while tokio::time::timeout(Duration::from_secs(2), queue.next()).await.is_ok() {
        served += 1;
        if start.elapsed() >= Duration::from_secs(10) {
            break;
        }
    }
    let most = RETRY_BURST as usize + 10 * 50 + 2;
    assert!(served <= most && served >= most - 20, "{served} in ten seconds");
    check(&queue);
    // What did not fail waits for nobody.
    queue.add(key("new"), Change);
    assert_eq!(queue.depth("modelcompilation"), 1);
}
