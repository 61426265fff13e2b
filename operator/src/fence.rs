//! Whether this replica may write now.
//!
//! A leader whose Lease ran out, for example because it was stopped or cut off, must not write
//! even one more time. So every write asks the fence, which holds the Lease's own end as it was
//! last seen. What slips through between asking and writing meets a resource version that is
//! no longer the newest, or an object of the same name and content.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// The end of the lease that this replica holds.
#[derive(Debug)]
pub struct Fence {
    valid_until_milliseconds: AtomicI64,
}

impl Fence {
    /// A closed fence.
    pub fn closed() -> Self {
        Self { valid_until_milliseconds: AtomicI64::new(i64::MIN) }
    }

    /// A fence that is always open, for operators without leader election.
    pub fn open() -> Self {
        Self { valid_until_milliseconds: AtomicI64::new(i64::MAX) }
    }

    /// The lease is ours until then.
    pub fn extend(&self, until: Timestamp) {
        let until = until.as_millisecond();
        self.valid_until_milliseconds.store(until, Ordering::SeqCst);
    }

    /// The lease is not ours.
    pub fn close(&self) {
        self.valid_until_milliseconds.store(i64::MIN, Ordering::SeqCst);
    }

    /// Whether the lease is ours at this moment.
    pub fn leads(&self) -> bool {
        let until = self.valid_until_milliseconds.load(Ordering::SeqCst);
        Timestamp::now().as_millisecond() < until
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn an_expired_lease_closes_it() {
        let fence = Fence::closed();
        assert!(!fence.leads());
        let second = SignedDuration::from_secs(1);
        fence.extend(Timestamp::now().checked_add(second).unwrap());
        assert!(fence.leads());
        fence.extend(Timestamp::now().checked_sub(second).unwrap());
        assert!(!fence.leads());
        assert!(Fence::open().leads());
    }
}
