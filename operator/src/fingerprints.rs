//! On what hardware results were measured, counted by pool as compilations change, so that no pool walks them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hone_crds::ModelCompilation;

/// Results by pool and fingerprint.
#[derive(Debug, Default)]
pub struct Fingerprints(Mutex<BTreeMap<String, BTreeMap<String, i64>>>);

impl Fingerprints {
    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, i64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A compilation was `before` and is `after` now. Returns the pools whose counts changed.
    pub fn changed(
        &self,
        before: Option<&ModelCompilation>,
        after: Option<&ModelCompilation>,
    ) -> BTreeSet<String> {
        let (before, after) = (measured(before), measured(after));
        if before == after {
            return BTreeSet::new();
        }
        let mut pools = self.pools();
        for (found, step) in [(&before, -1), (&after, 1)] {
            for (pool, fingerprint) in found {
                let counts = pools.entry((*pool).to_owned()).or_default();
                *counts.entry((*fingerprint).to_owned()).or_insert(0) += step;
            }
        }
        for counts in pools.values_mut() {
            counts.retain(|_, count| *count > 0);
        }
        pools.retain(|_, counts| !counts.is_empty());
        before.iter().chain(&after).map(|(pool, _)| (*pool).to_owned()).collect()
    }

    /// Results of `pool` by fingerprint.
    pub fn of(&self, pool: &str) -> BTreeMap<String, i64> {
        self.pools().get(pool).cloned().unwrap_or_default()
    }
}

/// Pool and fingerprint of each target that was measured.
fn measured(object: Option<&ModelCompilation>) -> Vec<(&str, &str)> {
    let targets = object.and_then(|object| object.status.as_ref()).into_iter();
    let targets = targets.flat_map(|status| &status.targets);
    targets.filter_map(|t| Some((t.pool.as_deref()?, t.fingerprint.as_deref()?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn object(pool: &str, fingerprint: Option<&str>) -> ModelCompilation {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation", "metadata": {"name": "a"},
            "spec": {"model": {"uri": "s3://a/b"}, "output": {"uri": "s3://a"}, "targets": [],
                "correctness": {}},
            "status": {"targets": [{"name": "t", "pool": pool, "fingerprint": fingerprint}]}
        }))
        .unwrap()
    }

    #[test]
    fn counts_follow_changes() {
        let found = Fingerprints::default();
        let (waits, done) = (object("p", None), object("p", Some("sha256:1")));
        assert!(found.changed(None, Some(&waits)).is_empty());
        assert_eq!(found.changed(Some(&waits), Some(&done)).len(), 1);
        assert!(found.changed(Some(&done), Some(&done)).is_empty());
        assert_eq!(found.of("p")["sha256:1"], 1);
        found.changed(Some(&done), Some(&object("q", Some("sha256:1"))));
        assert!(found.of("p").is_empty());
        found.changed(Some(&object("q", Some("sha256:1"))), None);
        assert!(found.pools().is_empty());
    }
}
