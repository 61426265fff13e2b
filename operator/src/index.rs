//! Finds owners by key without a walk over a store.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From key to owners. An entry is a hint: who uses one looks the owner up and checks.
#[derive(Debug, Default)]
pub struct Index {
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    owners: HashMap<String, BTreeSet<String>>,
    keys: HashMap<String, Vec<String>>,
}

impl Index {
    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that `owner`, unique as `identity`, has exactly these keys now.
    pub fn set(&self, identity: &str, owner: &str, keys: Vec<String>) {
        let mut maps = self.maps();
        if maps.keys.get(identity) == Some(&keys) {
            return;
        }
        remove(&mut maps, identity, owner);
        for key in &keys {
            let owners = maps.owners.entry(key.clone()).or_default();
            owners.insert(owner.to_owned());
        }
        if !keys.is_empty() {
            maps.keys.insert(identity.to_owned(), keys);
        }
    }

    /// The owners that have `key`.
    pub fn get(&self, key: &str) -> BTreeSet<String> {
        self.maps().owners.get(key).cloned().unwrap_or_default()
    }
}

fn remove(maps: &mut Maps, identity: &str, owner: &str) {
    for key in maps.keys.remove(identity).unwrap_or_default() {
        if let Some(owners) = maps.owners.get_mut(&key) {
            owners.remove(owner);
            if owners.is_empty() {
                maps.owners.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_changes_and_forgets() {
        let index = Index::default();
        index.set("ns/a", "a", vec!["x".into(), "y".into()]);
        index.set("ns/b", "b", vec!["x".into()]);
        assert_eq!(index.get("x").len(), 2);
        index.set("ns/a", "a", vec!["y".into()]);
        assert_eq!(index.get("x"), BTreeSet::from(["b".to_owned()]));
        index.set("ns/b", "b", Vec::new());
        assert!(index.get("x").is_empty());
        assert!(index.maps().owners.len() == 1 && index.maps().keys.len() == 1);
    }
}
