//! The digest of bytes as they come in: few are hashed at once, of many another thread makes it beside what stores them.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use hone_driver::Bytes;
use sha2::{Digest, Sha256};

/// SHA-256 of the parts that it was given, in their order.
#[derive(Debug)]
pub(super) enum RunningDigest {
    /// Made where parts are added.
    Here(Sha256),
    /// Made by another thread, which ends when nothing more can be sent.
    Beside(SyncSender<Bytes>, JoinHandle<Sha256>),
}

/// Parts that may wait for their digest: whoever adds more waits, so that memory stays bounded.
const WAITING: usize = 4;

impl RunningDigest {
    /// Of no bytes yet.
    pub(super) fn new() -> Self {
        Self::Here(Sha256::new())
    }

    /// Goes on in another thread from here on, where the system gives one.
    pub(super) fn run_beside(&mut self) {
        let Self::Here(digest) = self else { return };
        let mut digest = digest.clone();
        let (sender, receiver) = sync_channel::<Bytes>(WAITING);
        let work = move || {
            receiver.iter().for_each(|part| digest.update(&part));
            digest
        };
        if let Ok(thread) = thread::Builder::new().name("digest".into()).spawn(work) {
            *self = Self::Beside(sender, thread);
        }
    }

    /// Takes the next part.
    pub(super) fn add(&mut self, part: &Bytes) {
        match self {
            Self::Here(digest) => digest.update(part),
            // A thread that is gone has panicked, which `finish` passes on.
            Self::Beside(sender, _) => drop(sender.send(part.clone())),
        }
    }

    /// `sha256:` and the digest of all parts.
    pub(super) fn finish(self) -> String {
        let digest = match self {
            Self::Here(digest) => digest,
            Self::Beside(sender, thread) => {
                drop(sender);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        format!("sha256:{:x}", digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sha256;

    #[test]
    fn both_threads_give_the_digest_of_all_parts_in_order() {
        let parts: Vec<Bytes> = (0..50u8).map(|part| vec![part; 1000].into()).collect();
        let whole = sha256(&parts.concat());
        for switch in [0, 7, usize::MAX] {
            let mut running = RunningDigest::new();
            for (number, part) in parts.iter().enumerate() {
                if number == switch {
                    running.run_beside();
                }
                running.add(part);
            }
            assert_eq!(running.finish(), whole);
        }
    }
}
