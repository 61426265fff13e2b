//! A store in memory, and one worker's view of it, for one step.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::super::Objects;
use crate::failure::{Failure, Result};
use crate::storage::gone;

/// The objects, and what everybody shares beside them.
#[derive(Clone, Default, Hash)]
pub(super) struct Store {
    pub(super) objects: BTreeMap<String, Vec<u8>>,
    pub(super) now: u64,
    pub(super) fresh: u64,
    /// How often anything was changed: who waits looks again when it was.
    pub(super) changes: u64,
}

/// What a request was answered.
#[derive(Clone, Hash)]
pub(super) enum Answer {
    Bytes(Option<Vec<u8>>),
    Names(Vec<String>),
    Done(bool),
    Number(u64),
}

/// One worker's view of the store, for one step.
pub(super) struct View<'a> {
    pub(super) store: RefCell<&'a mut Store>,
    pub(super) answers: RefCell<&'a mut Vec<Answer>>,
    pub(super) at: Cell<usize>,
    pub(super) stepped: Cell<bool>,
    pub(super) stopped: Cell<bool>,
    pub(super) waits: Cell<bool>,
    /// Whether nobody is seen to have gone, as before there was `.owners/gone`.
    pub(super) forgets: bool,
}

impl View<'_> {
    /// The answer that was given before, or the one of `act` where the step is not over.
    fn ask(&self, is_request: bool, act: impl FnOnce(&mut Store) -> Answer) -> Result<Answer> {
        let stop = || {
            self.stopped.set(true);
            Err(Failure::internal("the step is over"))
        };
        if self.stopped.get() {
            return stop();
        }
        let at = self.at.get();
        self.at.set(at + 1);
        if let Some(answer) = self.answers.borrow().get(at) {
            return Ok(answer.clone());
        }
        if is_request && self.stepped.replace(true) {
            return stop();
        }
        let answer = act(&mut self.store.borrow_mut());
        self.answers.borrow_mut().push(answer.clone());
        Ok(answer)
    }

    fn number(&self, act: impl FnOnce(&mut Store) -> u64) -> u64 {
        match self.ask(false, |store| Answer::Number(act(store))) {
            Ok(Answer::Number(number)) => number,
            _ => 0,
        }
    }

    fn change(&self, act: impl FnOnce(&mut Store) -> bool) -> Result<bool> {
        let answer = self.ask(true, |store| {
            let done = act(store);
            store.changes += u64::from(done);
            Answer::Done(done)
        })?;
        Ok(matches!(answer, Answer::Done(true)))
    }

    /// Stores an artifact.
    pub(super) fn create(&self, name: &str) -> Result<()> {
        self.overwrite(name, b"code")
    }
}

impl Objects for View<'_> {
    /// Equal bytes are the same version, as where a store's versions are digests.
    type Version = Vec<u8>;

    fn versioned(&self, name: &str) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.ask(true, |store| Answer::Bytes(store.objects.get(name).cloned()))? {
            Answer::Bytes(found) => Ok(found.map(|bytes| (bytes.clone(), bytes))),
            _ => unreachable!("a worker asks the same each time"),
        }
    }

    fn swap(&self, name: &str, bytes: &[u8], version: Option<Vec<u8>>) -> Result<bool> {
        self.change(|store| {
            let same = store.objects.get(name) == version.as_ref();
            let is_lost = self.forgets && name == gone::NAME;
            if same && !is_lost {
                store.objects.insert(name.to_owned(), bytes.to_vec());
            }
            same
        })
    }

    fn overwrite(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let write = |store: &mut Store| {
            store.objects.insert(name.to_owned(), bytes.to_vec());
            true
        };
        self.change(write).map(drop)
    }

    fn size(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.versioned(name)?.map(|(bytes, _)| bytes.len() as u64))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.change(|store| store.objects.remove(name).is_some()).map(drop)
    }

    fn remove_before(&self, name: &str, until: u64) -> Result<bool> {
        let remove = |store: &mut Store| {
            let begins = store.now <= until;
            if begins {
                store.objects.remove(name);
            }
            begins
        };
        self.change(remove)
    }

    fn remove_once_before(&self, name: &str, until: u64) -> Result<bool> {
        self.remove_before(name, until)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let prefix = format!("{folder}/");
        let names = |store: &mut Store| {
            let names = store.objects.keys().filter_map(|name| name.strip_prefix(&prefix));
            names.map(str::to_owned).collect()
        };
        match self.ask(true, |store| Answer::Names(names(store)))? {
            Answer::Names(names) => Ok(names),
            _ => unreachable!("a worker asks the same each time"),
        }
    }

    fn pause(&self) -> Result<()> {
        if self.stepped.get() && !self.stopped.replace(true) {
            self.waits.set(true);
        }
        self.ask(false, |_| Answer::Done(true)).map(drop)
    }

    fn seconds(&self) -> u64 {
        self.number(|store| store.now)
    }

    fn fresh(&self) -> u64 {
        self.number(|store| {
            store.fresh += 1;
            store.fresh
        })
    }
}
