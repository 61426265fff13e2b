//! Whether this replica may write now.
//!
//! A leader whose Lease ran out, for example because it was stopped or cut off, must not write
//! even one more time. So every write asks the fence, which holds the Lease's own end as it was
//! last seen. What slips through between asking and writing meets a resource version that is
//! no longer the newest, or an object of the same name and content.

use jiff::Timestamp;
use tokio::sync::watch;

/// The end of the lease that this replica holds.
#[derive(Debug)]
pub struct Fence {
    valid_until_milliseconds: watch::Sender<i64>,
}

impl Fence {
    /// A closed fence.
    pub fn closed() -> Self {
        Self { valid_until_milliseconds: watch::Sender::new(i64::MIN) }
    }

    /// A fence that is always open, for operators without leader election.
    pub fn open() -> Self {
        Self { valid_until_milliseconds: watch::Sender::new(i64::MAX) }
    }

    /// The lease is ours until then.
    pub fn extend(&self, until: Timestamp) {
        self.valid_until_milliseconds.send_replace(until.as_millisecond());
    }

    /// The lease is not ours.
    pub fn close(&self) {
        self.valid_until_milliseconds.send_replace(i64::MIN);
    }

    /// Whether the lease is ours at this moment.
    pub fn leads(&self) -> bool {
        is_valid(*self.valid_until_milliseconds.borrow())
    }

    /// Returns once the lease is ours.
    pub async fn opened(&self) {
        if !self.leads() {
            // The sender is a field of this, so it is not gone.
            let mut ends = self.valid_until_milliseconds.subscribe();
            let _ = ends.wait_for(|until| is_valid(*until)).await;
        }
    }
}

fn is_valid(until_milliseconds: i64) -> bool {
    Timestamp::now().as_millisecond() < until_milliseconds
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
