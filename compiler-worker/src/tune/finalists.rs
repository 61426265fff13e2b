//! The best candidates of each program are compared once more, and the network decides: now and then while a search goes
//! on, and as it ends.
//!
//! A [`Contest`] has all that this takes, so that it may be held on a thread of its own while rounds go on; what came of
//! it is taken up by the search alone ([`Session::settle`]), which writes the records.

use std::collections::BTreeMap;

use hone_search::{Candidate, Class, Kind, Log, Nest, Record, Trial};

use super::confirm::{Confirm, Part, Verdict, with};
use super::measuring::Measuring;
use super::outcome::Outcome;
use super::protocol::{Measured, Trials};
use super::searched::{Searched, prescription};
use super::session::{Session, WORTH};
use super::store::{self, Recorded};
use crate::failure::Result;

/// Candidates of a task that are compared once more before the network decides.
const FINALISTS: usize = 4;

/// The best candidates of a program.
struct Finalists {
    /// The program's digest.
    program: String,
    /// Its kernels in an artifact, by number.
    kernels: Vec<usize>,
    /// Names of its nodes.
    nodes: String,
    candidates: Vec<Candidate>,
    /// Which of them is used so far, where one is.
    incumbent: Option<usize>,
    /// The same as a device takes them.
    trials: Trials,
}

/// What the network is to decide about.
pub(super) struct Contest<'a> {
    confirm: &'a Confirm<'a>,
    so_far: Recorded,
    finalists: Vec<Finalists>,
    /// Seconds of each comparison in the network.
    seconds: f64,
}

/// What the network decided.
pub(super) struct Decided {
    /// Recorded schedules that compilations use from now on.
    pub(super) kept: Recorded,
    /// Those that won, by program, with what was measured of them.
    won: BTreeMap<String, (Candidate, Measured, String)>,
    /// Every comparison.
    rounds: Vec<Verdict>,
    /// The network with what is kept beside the untuned one, where something won and that was asked for.
    pub(super) whole: Option<Verdict>,
}

impl Decided {
    /// How many schedules won.
    pub(super) fn winners(&self) -> usize {
        self.won.len()
    }
}

impl Contest<'_> {
    /// Compares the best candidates once more, and lets the network decide.
    ///
    /// # Errors
    /// A device that is lost; an artifact that cannot be made or written.
    pub(super) fn hold(&self, device: &mut Measuring<'_>) -> Result<Decided> {
        let mut best = BTreeMap::new();
        for own in &self.finalists {
            if let Some((candidate, measured)) = own.best(device)? {
                best.insert(own.program.clone(), (candidate, measured, own.nodes.clone()));
            }
        }
        let proposed =
            best.iter().map(|(program, own)| (program.clone(), prescription(&own.0))).collect();
        let kernels: BTreeMap<&str, &[usize]> =
            self.finalists.iter().map(|own| (own.program.as_str(), &own.kernels[..])).collect();
        let part = |program: &str| kernels.get(program).copied().map(Part::Kernels);
        let (won, rounds) =
            self.confirm.winners(device, &part, &self.so_far, &proposed, self.seconds)?;
        best.retain(|program, _| won.contains_key(program));
        Ok(Decided { kept: with(&self.so_far, &won), won: best, rounds, whole: None })
    }

    /// The same; where something won, the network with it is compared with the untuned one.
    ///
    /// # Errors
    /// As for [`Contest::hold`].
    pub(super) fn hold_whole(&self, device: &mut Measuring<'_>) -> Result<Decided> {
        let mut decided = self.hold(device)?;
        if decided.kept != self.so_far {
            let seconds = self.seconds / 2.0;
            decided.whole = Some(self.confirm.against_untuned(device, &decided.kept, seconds)?);
        }
        Ok(decided)
    }
}

impl Finalists {
    /// The best one, where it is surely faster than the schedule that is used so far.
    fn best(&self, device: &mut Measuring<'_>) -> Result<Option<(Candidate, Measured)>> {
        let measured = device.trials(self.trials.clone())?;
        let ratio = |index: usize| {
            let own: &Measured = &measured[index];
            own.ratio
                .filter(|_| own.class == Class::Ok)
                .map_or((f64::INFINITY, f64::INFINITY), |own| (own.0, own.2))
        };
        let best = (0..measured.len()).min_by(|a, b| ratio(*a).0.total_cmp(&ratio(*b).0));
        let Some(best) = best.filter(|best| ratio(*best).1 < WORTH) else { return Ok(None) };
        if self.incumbent.is_some_and(|used| ratio(used).0 * WORTH < ratio(best).0) {
            return Ok(None);
        }
        Ok(Some((self.candidates[best].clone(), measured[best].clone())))
    }
}

impl Session<'_> {
    /// What the network is to decide about, of what was found so far.
    pub(super) fn contest<'c>(
        &self,
        searched: &[Searched],
        so_far: &Recorded,
        confirm: &'c Confirm<'c>,
    ) -> Contest<'c> {
        let finalists = searched.iter().filter_map(|own| self.finalists(own, so_far)).collect();
        Contest { confirm, so_far: so_far.clone(), finalists, seconds: self.in_network() }
    }

    /// Writes down what the network decided.
    ///
    /// # Errors
    /// Records that cannot be written.
    pub(super) fn settle(
        &self,
        searched: &[Searched],
        decided: Decided,
        log: &mut Log,
        outcome: &mut Outcome,
    ) -> Result<Recorded> {
        for (program, (candidate, measured, nodes)) in &decided.won {
            let record = self.record((program, nodes), candidate, measured);
            let (kind, features, nest) = (Kind::Winner, Vec::new(), Nest::default());
            log.append(&Record { kind, features, nest, ..record }).map_err(store::failed)?;
        }
        log.sync().map_err(store::failed)?;
        outcome.won.extend(decided.won.into_keys());
        for task in &mut outcome.tasks {
            task.won = outcome.won.contains(&task.program);
        }
        outcome.tasks.sort_by(|a, b| b.nanoseconds.total_cmp(&a.nanoseconds));
        outcome.winners = outcome.won.len();
        outcome.verdict = decided.rounds.last().cloned().or(outcome.verdict.take());
        outcome.rounds.extend(decided.rounds);
        if let Some(whole) = decided.whole {
            self.note_whole(searched, &decided.kept, whole, outcome);
        }
        Ok(decided.kept)
    }

    /// The best candidates of a program and the schedule that is used so far; `None` where no candidate is faster than the
    /// schedule without tuning.
    fn finalists(&self, own: &Searched, so_far: &Recorded) -> Option<Finalists> {
        let mut trials: Vec<&Trial> =
            own.trials.iter().filter(|trial| trial.ratio < WORTH).collect();
        trials.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        trials.truncate(FINALISTS);
        if trials.is_empty() {
            return None;
        }
        let mut candidates: Vec<Candidate> =
            trials.into_iter().map(|trial| trial.candidate.clone()).collect();
        let used = so_far.get(&own.task.digest).and_then(|used| {
            own.space.with_choices(&used.template, &used.choices).ok().map(|own| own.identity)
        });
        let used = used.and_then(|used| {
            candidates.retain(|own| own.identity != used);
            own.trials.iter().find(|own| own.candidate.identity == used)
        });
        candidates.extend(used.map(|own| own.candidate.clone()));
        Some(Finalists {
            program: own.task.digest.clone(),
            kernels: own.task.kernels.clone(),
            nodes: own.task.nodes.clone(),
            incumbent: used.map(|_| candidates.len() - 1),
            trials: self.trials(own, &candidates, 3.0 * self.settings.seconds),
            candidates,
        })
    }
}
