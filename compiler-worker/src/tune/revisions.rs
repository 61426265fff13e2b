//! What a search has found so far, made usable while it goes on: now and then the network decides about the best
//! candidates, as it does at the end, and those that win are in the records from then on.
//!
//! That takes a device for some seconds, so it is done rarely: after 64 trials and then where their number has doubled, so
//! that a search of a million trials does it 14 times at the most, and only where a run of the network is expected to be
//! at least 2 % shorter than it was the last time. Where this machine measures, rounds wait
//! meanwhile, since artifacts that are made would disturb them; where sessions alone measure, one of them compares while the
//! others go on.

use std::collections::BTreeSet;
use std::thread::ScopedJoinHandle;

use hone_search::Log;

use super::confirm::{Confirm, Verdict};
use super::devices::Devices;
use super::finalists::Decided;
use super::measuring::Measuring;
use super::outcome::Outcome;
use super::searched::{Searched, expected};
use super::session::Session;
use super::store::Recorded;
use crate::failure::{Failure, Result};

/// Trials before the network decides for the first time.
const FIRST: usize = 64;
/// A run must be expected to take at most this share of what it was expected to take the last time.
const SHARE: f64 = 0.98;

/// The schedules that won in the network, and when it decided last.
pub(super) struct Revisions {
    /// Recorded schedules that compilations use now.
    pub(super) kept: Recorded,
    /// Trials of the run then.
    trials: usize,
    /// Nanoseconds that a run of the network was expected to take then.
    expected: f64,
}

/// A decision of the network that is under way while rounds go on.
pub(super) struct Pending<'scope>(ScopedJoinHandle<'scope, Result<Decided>>);

impl Pending<'_> {
    /// Whether it is made.
    pub(super) fn is_made(&self) -> bool {
        self.0.is_finished()
    }

    /// The decision, waited for.
    ///
    /// # Errors
    /// What went wrong with it.
    pub(super) fn join(self) -> Result<Decided> {
        let gone = |_| Err(Failure::internal("a comparison in the network broke off"));
        self.0.join().unwrap_or_else(gone)
    }
}

impl Revisions {
    /// At the beginning of a search, where `kept` are used.
    pub(super) fn new(kept: &Recorded, searched: &[Searched]) -> Self {
        let of = |own: &Searched| own.progress.weight * own.ratio_of(kept.get(&own.task.digest));
        Self { kept: kept.clone(), trials: 0, expected: searched.iter().map(of).sum() }
    }

    /// Whether the network is to decide after `trials` of the run, with so many nanoseconds expected of a run of it.
    pub(super) fn is_due(&self, trials: usize, expected: f64) -> bool {
        trials >= FIRST.max(2 * self.trials) && expected <= SHARE * self.expected
    }

    /// The network has decided.
    pub(super) fn decided(&mut self, trials: usize, expected: f64) {
        (self.trials, self.expected) = (trials, expected);
    }
}

impl Session<'_> {
    /// Whether the network is to decide before more rounds are asked for: only in a run whose results others wait for, and
    /// not where it does so anyway, as the search ends.
    pub(super) fn is_due(
        &self,
        revisions: &Revisions,
        searched: &[Searched],
        outcome: &Outcome,
    ) -> bool {
        let (trials, expected) = (self.done(outcome), expected(searched));
        self.settings.whole
            && revisions.is_due(trials, expected)
            && self.ends(outcome, trials, expected).is_none()
    }

    /// Lets the network decide about what was found so far, with a measuring process of its own; no other may be at work
    /// on this machine meanwhile.
    ///
    /// # Errors
    /// As for [`Contest::hold`](super::finalists::Contest::hold).
    pub(super) fn revise(
        &self,
        searched: &[Searched],
        revisions: &mut Revisions,
        confirm: &Confirm<'_>,
        outcome: &Outcome,
    ) -> Result<Decided> {
        self.begin_revision(searched, revisions, outcome);
        self.contest(searched, &revisions.kept, confirm).hold_whole(&mut self.device())
    }

    /// The same while rounds go on, where sessions alone measure; `None` where they do not.
    pub(super) fn revise_beside<'scope, 'env>(
        &self,
        searched: &[Searched],
        revisions: &mut Revisions,
        confirm: &'env Confirm<'env>,
        devices: &Devices<'scope, 'env>,
        outcome: &Outcome,
    ) -> Option<Pending<'scope>> {
        let fleet = devices.fleet().filter(|_| self.elsewhere)?;
        self.begin_revision(searched, revisions, outcome);
        let contest = self.contest(searched, &revisions.kept, confirm);
        let hold = move || contest.hold_whole(&mut Measuring::elsewhere(fleet));
        Some(Pending(devices.scope().spawn(hold)))
    }

    fn begin_revision(&self, searched: &[Searched], revisions: &mut Revisions, outcome: &Outcome) {
        let trials = self.done(outcome);
        eprintln!("after {trials} trials the network decides about what was found so far");
        revisions.decided(trials, expected(searched));
    }

    /// Takes up what the network decided. What went wrong with that is said, and the search goes on.
    ///
    /// # Errors
    /// Records that cannot be written.
    pub(super) fn take_revision(
        &self,
        searched: &[Searched],
        revisions: &mut Revisions,
        decided: Result<Decided>,
        log: &mut Log,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let decided = match decided {
            Ok(decided) => decided,
            Err(failure) => {
                eprintln!("warning: no schedules were kept so far: {}", failure.chain());
                return Ok(());
            }
        };
        let new = decided.winners();
        revisions.kept = self.settle(searched, decided, log, outcome)?;
        eprintln!(
            "the network has decided after {} trials: {} schedules are kept so far, {new} of them new",
            self.done(outcome),
            outcome.won.len()
        );
        outcome.revisions += usize::from(new > 0);
        Ok(())
    }

    /// Takes down how fast the network is with all schedules that are kept.
    pub(super) fn note_whole(
        &self,
        searched: &[Searched],
        kept: &Recorded,
        whole: Verdict,
        outcome: &mut Outcome,
    ) {
        outcome.whole = Some(whole);
        let keys = searched.iter().map(|own| &own.task.digest);
        let keys: BTreeSet<&String> =
            keys.chain(outcome.decisions.iter().map(|own| &own.structure)).collect();
        outcome.tuned = keys.into_iter().filter(|key| kept.contains_key(*key)).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_decides_where_trials_doubled_and_it_is_worth_it() {
        let mut revisions = Revisions { kept: Recorded::default(), trials: 0, expected: 1000.0 };
        assert!(!revisions.is_due(63, 500.0), "too early");
        assert!(!revisions.is_due(64, 981.0), "too little");
        assert!(revisions.is_due(64, 980.0) && revisions.is_due(5000, 500.0));
        revisions.decided(100, 900.0);
        assert!(!revisions.is_due(199, 500.0) && !revisions.is_due(200, 890.0));
        assert!(revisions.is_due(200, 882.0));
        // Nothing but ever better schedules: the number of times is bounded.
        let mut revisions = Revisions { kept: Recorded::default(), trials: 0, expected: f64::MAX };
        let mut times = 0;
        for trials in 0..1_000_000 {
            let expected = 1e9 * 0.99f64.powi(trials);
            if revisions.is_due(trials as usize, expected) {
                revisions.decided(trials as usize, expected);
                times += 1;
            }
        }
        assert_eq!(times, 14);
    }
}
