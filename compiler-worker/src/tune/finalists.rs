//! The end of a search: the best candidates of each program are compared once more, and the network decides.

use std::collections::BTreeMap;

use hone_driver::TuningTask;
use hone_search::{Candidate, Class, Kind, Log, Nest, Record, Trial};

use super::confirm::{Confirm, Part, with};
use super::measuring::Measuring;
use super::outcome::Outcome;
use super::protocol::Measured;
use super::searched::{Searched, prescription};
use super::session::{Session, WORTH};
use super::store::{self, Recorded};
use crate::failure::Result;

/// Candidates of a task that are compared once more before the network decides.
const FINALISTS: usize = 4;

impl Session<'_> {
    /// Compares the best candidates once more, and lets the network decide.
    pub(super) fn confirm(
        &self,
        searched: &[Searched],
        so_far: &Recorded,
        confirm: &Confirm<'_>,
        device: &mut Measuring<'_>,
        log: &mut Log,
        outcome: &mut Outcome,
    ) -> Result<Recorded> {
        let mut proposed = BTreeMap::new();
        let mut records = BTreeMap::new();
        for own in searched {
            let Some((candidate, measured)) = self.finalist(own, so_far, device)? else { continue };
            let record = Record { kind: Kind::Winner, ..self.record(own, &candidate, &measured) };
            let digest = own.task.digest.clone();
            proposed.insert(digest.clone(), prescription(&candidate));
            records
                .insert(digest, Record { features: Vec::new(), nest: Nest::default(), ..record });
        }
        let tasks: BTreeMap<&str, &TuningTask> =
            searched.iter().map(|own| (own.task.digest.as_str(), &own.task)).collect();
        let part = |digest: &str| tasks.get(digest).map(|task| Part::Kernels(&task.kernels));
        let (won, rounds) = confirm.winners(device, &part, so_far, &proposed, self.in_network())?;
        for digest in won.keys() {
            if let Some(record) = records.get(digest) {
                log.append(record).map_err(store::failed)?;
            }
        }
        log.sync().map_err(store::failed)?;
        outcome.won.extend(won.keys().cloned());
        for task in &mut outcome.tasks {
            task.won = outcome.won.contains(&task.program);
        }
        outcome.tasks.sort_by(|a, b| b.nanoseconds.total_cmp(&a.nanoseconds));
        outcome.winners = outcome.won.len();
        outcome.verdict = rounds.last().cloned().or(outcome.verdict.take());
        outcome.rounds.extend(rounds);
        Ok(with(so_far, &won))
    }

    /// The best candidate of a task, where it is surely faster than the schedule that is used so far.
    fn finalist(
        &self,
        own: &Searched,
        so_far: &Recorded,
        device: &mut Measuring<'_>,
    ) -> Result<Option<(Candidate, Measured)>> {
        let mut trials: Vec<&Trial> =
            own.trials.iter().filter(|trial| trial.ratio < WORTH).collect();
        trials.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        trials.truncate(FINALISTS);
        if trials.is_empty() {
            return Ok(None);
        }
        let mut candidates: Vec<Candidate> =
            trials.into_iter().map(|trial| trial.candidate.clone()).collect();
        let incumbent = so_far.get(&own.task.digest);
        let incumbent = incumbent.and_then(|used| {
            own.space.with_choices(&used.template, &used.choices).ok().map(|own| own.identity)
        });
        let incumbent = match incumbent {
            None => None,
            Some(used) => {
                candidates.retain(|own| own.identity != used);
                let used = own.trials.iter().find(|own| own.candidate.identity == used);
                candidates.extend(used.map(|own| own.candidate.clone()));
                used.map(|_| candidates.len() - 1)
            }
        };
        let measured = device.trials(self.trials(own, &candidates, 3.0 * self.settings.seconds))?;
        let ratio = |place: usize| {
            let own: &Measured = &measured[place];
            own.ratio
                .filter(|_| own.class == Class::Ok)
                .map_or((f64::INFINITY, f64::INFINITY), |own| (own.0, own.2))
        };
        let best = (0..candidates.len()).min_by(|a, b| ratio(*a).0.total_cmp(&ratio(*b).0));
        let Some(best) = best.filter(|best| ratio(*best).1 < WORTH) else { return Ok(None) };
        if incumbent.is_some_and(|used| ratio(used).0 * WORTH < ratio(best).0) {
            return Ok(None);
        }
        Ok(Some((candidates.swap_remove(best), measured[best].clone())))
    }
}
