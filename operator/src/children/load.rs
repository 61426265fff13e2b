//! How many Jobs work or wait in each pool at this moment: a burst that names no pool spreads by this, where the
//! pools' statuses are seconds old.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::jobs::JobFacts;

/// Jobs under way by pool.
#[derive(Debug, Default)]
pub struct Load(Mutex<HashMap<String, i64>>);

impl Load {
    fn pools(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A Job was `before` and is `after` now. Returns whether that changes what is under way.
    pub fn changed(&self, before: Option<&JobFacts>, after: Option<&JobFacts>) -> bool {
        let (before, after) = (before.and_then(pool), after.and_then(pool));
        if before == after {
            return false;
        }
        let mut pools = self.pools();
        if let Some(pool) = before
            && let Some(count) = pools.get_mut(pool)
        {
            *count -= 1;
            if *count <= 0 {
                pools.remove(pool);
            }
        }
        if let Some(pool) = after {
            *pools.entry(pool.to_owned()).or_insert(0) += 1;
        }
        true
    }

    /// The Jobs under way in `pool`.
    pub fn of(&self, pool: &str) -> i64 {
        self.pools().get(pool).copied().unwrap_or(0)
    }
}

/// The pool in which a Job is under way.
fn pool(job: &JobFacts) -> Option<&str> {
    let view = &job.view;
    let under_way = view.purpose.uses_a_device() && view.finish.is_none();
    view.pool.as_deref().filter(|_| under_way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::jobs::{Finish, JobView};

    #[test]
    fn jobs_count_from_being_made_to_their_end() {
        let job = |pool: &str, finish| JobFacts {
            namespace: String::new(),
            uid: String::new(),
            owner_kind: "",
            owner: String::new(),
            owner_uid: String::new(),
            view: JobView { pool: Some(pool.to_owned()), finish, ..JobView::default() },
        };
        let load = Load::default();
        let (waits, ended) = (job("cpus", None), job("cpus", Some(Finish::Complete)));
        load.changed(None, Some(&waits));
        load.changed(None, Some(&waits));
        load.changed(Some(&waits), Some(&waits));
        assert_eq!(load.of("cpus"), 2);
        load.changed(Some(&waits), Some(&ended));
        load.changed(Some(&waits), None);
        load.changed(Some(&ended), None);
        assert!(load.of("cpus") == 0 && load.pools().is_empty());
    }
}
