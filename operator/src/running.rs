//! Which workers run for long enough that it is worth a status.
//!
//! A status is the dearest thing that is written, to the API server and to everyone who watches. So
//! that a worker runs is told a little late: work that has ended by then needs no status that says that
//! it runs. And while objects wait for their turn, theirs come first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use hone_crds::ModelCompilation;
use kube::runtime::reflector::ObjectRef;

use crate::waiting::Waiting;

/// How late it is told that a worker runs.
const LATE: Duration = Duration::from_secs(2);
/// How often [`LATE`] at most, when others wait.
const ROUNDS: u32 = 15;
/// So many that wait are no reason to be later than [`LATE`].
const FEW: usize = 16;

/// A Job: the uid of its compilation, and its name.
type Key = (String, String);

/// The Jobs whose first pod runs, and whether that is told.
#[derive(Debug)]
pub struct Running {
    jobs: Mutex<HashMap<Key, bool>>,
    waiting: Arc<Waiting>,
    wake: UnboundedSender<ObjectRef<ModelCompilation>>,
}

impl Running {
    /// None yet. `wake` wakes the owner of a Job when it is told to run.
    pub fn new(waiting: Arc<Waiting>, wake: UnboundedSender<ObjectRef<ModelCompilation>>) -> Self {
        Self { jobs: Mutex::default(), waiting, wake }
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is news of Job `name`, of the compilation `owner` with this uid: its first pod runs.
    pub fn began(self: &Arc<Self>, uid: String, name: String, owner: ObjectRef<ModelCompilation>) {
        let key = (uid, name);
        match self.jobs().entry(key.clone()) {
            Entry::Occupied(told) => {
                // It is told already, so this is other news of it.
                if *told.get() {
                    let _ = self.wake.unbounded_send(owner);
                }
                return;
            }
            Entry::Vacant(place) => place.insert(false),
        };
        let running = Arc::clone(self);
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                tokio::time::sleep(LATE).await;
                if running.waiting.depth() <= FEW {
                    break;
                }
            }
            // It may have ended meanwhile.
            if let Some(told) = running.jobs().get_mut(&key) {
                *told = true;
                let _ = running.wake.unbounded_send(owner);
            }
        });
    }

    /// Job `name` of the compilation with this uid does not run any more.
    pub fn ended(&self, uid: &str, name: &str) {
        self.jobs().remove(&(uid.to_owned(), name.to_owned()));
    }

    /// Whether the worker of this Job runs for some time.
    pub fn is_settled(&self, uid: &str, name: &str) -> bool {
        self.jobs().get(&(uid.to_owned(), name.to_owned())).is_some_and(|told| *told)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::StreamExt;

    #[tokio::test(start_paused = true)]
    async fn who_waits_comes_first() {
        let (wake, mut woken) = futures::channel::mpsc::unbounded();
        let waiting = Arc::new(Waiting::default());
        let running = Arc::new(Running::new(Arc::clone(&waiting), wake));
        let start = tokio::time::Instant::now();
        running.began("u".into(), "quiet".into(), ObjectRef::new("a"));
        assert!(!running.is_settled("u", "quiet"));
        assert_eq!(woken.next().await.unwrap().name, "a");
        assert_eq!(start.elapsed().as_secs(), 2);
        assert!(running.is_settled("u", "quiet"));
        running.began("u".into(), "quiet".into(), ObjectRef::new("again"));
        assert_eq!(woken.next().await.unwrap().name, "again");
        running.ended("u", "quiet");
        assert!(!running.is_settled("u", "quiet"));

        running.began("u".into(), "short".into(), ObjectRef::new("c"));
        running.ended("u", "short");
        tokio::time::sleep(LATE * 2).await;
        assert!(woken.try_recv().is_err() && running.jobs().is_empty());

        (0..=FEW).for_each(|n| waiting.event(n.to_string()));
        running.began("u".into(), "busy".into(), ObjectRef::new("b"));
        assert_eq!(woken.next().await.unwrap().name, "b");
        assert_eq!(start.elapsed().as_secs(), 2 + 4 + 30);
    }
}
