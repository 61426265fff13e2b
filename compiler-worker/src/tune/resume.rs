//! What a search takes up of records: the trials of earlier calls, and what the model learns from.
//!
//! A run may have a hundred thousand trials, and making the schedule of one again takes milliseconds. So only the fastest of
//! a program are made again, from which candidates are bred and chosen; of the others their choices are remembered, so that
//! none is measured twice.

use std::collections::{BTreeMap, HashSet};

use hone_search::autotvm::starts;
use hone_search::{Candidate, Class, FEATURES, Features, Kind, Record, Sample, Transfer};

use super::outcome::Outcome;
use super::rounds::SEEDS;
use super::searched::Searched;
use super::session::{BATCH, LEAST_GAIN, Session, total};
use super::store;

/// Trials of a program whose schedules are made again: the fastest.
const MADE_AGAIN: usize = 128;

impl Session<'_> {
    /// Takes up the trials of earlier calls; what the model learns from records, those of other networks too.
    pub(super) fn take_over(
        &self,
        records: &[Record],
        machine: &str,
        searched: &mut [Searched],
        outcome: &mut Outcome,
    ) -> Vec<Sample> {
        let mut samples = Vec::new();
        if !self.settings.warm {
            return samples;
        }
        let target = store::target_key(self.target);
        let least = LEAST_GAIN * total(searched);
        let indices: BTreeMap<String, usize> = searched
            .iter()
            .enumerate()
            .map(|(index, searched)| (searched.task.digest.clone(), index))
            .collect();
        let earlier = self.earlier.iter().map(|record| (record, false));
        let every: Vec<(&Record, bool)> = earlier
            .chain(records.iter().map(|record| (record, true)))
            .filter(|(record, _)| record.kind == Kind::Trial && record.target == target)
            .collect();
        let is_ours = |own: &Record| own.machine == machine && own.threads == self.settings.threads;
        let fast = fastest(&every, |own| is_ours(own) && indices.contains_key(&own.program));
        for (position, (record, is_logged)) in every.into_iter().enumerate() {
            let index = indices.get(&record.program).copied();
            let (is_ours, is_fast) = (is_ours(record), fast.contains(&position));
            // Earlier versions kept no nest: where the candidate can be made again, it tells.
            let is_made = is_fast || !is_ours && record.nest.is_empty();
            let space = index.filter(|_| is_made).map(|index| &searched[index].space);
            let candidate =
                space.and_then(|own| own.with_choices(&record.template, &record.decisions).ok());
            samples.extend(sample(record, candidate.as_ref()));
            let Some(index) = index else { continue };
            match record.class {
                _ if !is_logged => {}
                Class::Ok => outcome.logged.0 += 1,
                _ => outcome.logged.1 += 1,
            }
            if !is_ours {
                continue;
            }
            let own = &mut searched[index];
            let gain = match candidate {
                Some(new) if !own.known.contains(&new.identity) => {
                    Some(own.add(new, ratio(record)))
                }
                None if !is_fast => {
                    own.pass_over(&record.template, &record.decisions).then_some(0.0)
                }
                _ => None,
            };
            let Some(gain) = gain else { continue };
            if is_logged {
                outcome.note_gain(gain >= least);
            }
            outcome.resumed += 1;
        }
        self.begin(records, searched);
        samples
    }

    /// Gives each program what its first round begins with, and the rounds that its trials were.
    fn begin(&self, records: &[Record], searched: &mut [Searched]) {
        let transfer = Transfer::new(self.earlier.iter().chain(records));
        for own in searched.iter_mut() {
            own.starts = starts(records, &own.space, SEEDS);
            own.starts.extend(transfer.candidates(&own.space, &own.task.digest, SEEDS));
            for _ in 0..own.progress.trials.div_ceil(BATCH) {
                own.close_round();
            }
        }
    }
}

/// Positions of the records that are among the fastest [`MADE_AGAIN`] of their programs, of those that fit; of equals the
/// latest.
fn fastest(every: &[(&Record, bool)], fits: impl Fn(&Record) -> bool) -> HashSet<usize> {
    let mut by_program: BTreeMap<&str, Vec<(f64, usize)>> = BTreeMap::new();
    for (position, (record, _)) in every.iter().enumerate().filter(|(_, own)| fits(own.0)) {
        by_program.entry(&record.program).or_default().push((ratio(record), position));
    }
    let first = |mut own: Vec<(f64, usize)>| {
        own.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        own.into_iter().take(MADE_AGAIN).map(|(_, position)| position)
    };
    by_program.into_values().flat_map(first).collect()
}

/// A trial's time over that of the schedule without tuning; infinite for one that failed.
fn ratio(record: &Record) -> f64 {
    record.ratio.unwrap_or(f64::INFINITY)
}

/// What cost models learn from a record, where it keeps that; `made` is its candidate, where it was made again.
fn sample(record: &Record, made: Option<&Candidate>) -> Option<Sample> {
    if record.features.len() != FEATURES.len() {
        return None;
    }
    let kept = || Features { counts: record.features.clone(), nest: record.nest.clone() };
    let made = made.filter(|_| record.nest.is_empty());
    let features = made.map_or_else(kept, |own| own.features.clone());
    Some(Sample { features, ratio: ratio(record), task: record.program.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn record(program: &str, ratio: Option<f64>) -> Record {
        serde_json::from_value(json!({
            "schema": 1, "kind": "trial", "time": 0, "program": program, "target": "", "machine": "",
            "threads": 1, "template": "", "decisions": [], "class": "Ok", "ratio": ratio,
        }))
        .unwrap()
    }

    #[test]
    fn the_fastest_of_each_program_are_made_again() {
        let few = [record("a", Some(1.0)), record("a", None)];
        let many = (0..300).map(|own| record("b", Some(f64::from(300 - own))));
        let records: Vec<Record> = few.into_iter().chain(many).collect();
        let every: Vec<(&Record, bool)> = records.iter().map(|own| (own, true)).collect();
        let mut found: Vec<usize> = fastest(&every, |_| true).into_iter().collect();
        found.sort_unstable();
        let latest = (302 - MADE_AGAIN)..302;
        assert_eq!(found, [0, 1].into_iter().chain(latest).collect::<Vec<_>>());
        assert!(fastest(&every, |own| own.program == "c").is_empty());
    }
}
