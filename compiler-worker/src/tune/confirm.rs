//! The last word: schedules that won alone replace others only where they win in the network, beside the
//! artifact that compilations make so far, in one interleaved run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use hone_artifact::request::Input;
use hone_driver::{DataType, Prescription, Target, TuningTask};
use serde::Serialize;

use super::device::Device;
use super::protocol::{Compare, Compared};
use super::statistics::paired;
use super::store::Recorded;
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};

/// A kernel's time in the network must shrink to this share before it counts as a gain.
const GAIN: f64 = 0.99;
/// Times that the set of schedules is made smaller.
const ROUNDS: usize = 3;

/// How fast a network is before and after.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Median nanoseconds with the schedules so far.
    pub before: u64,
    /// The same with the new ones.
    pub after: u64,
    /// Median of after by before, run by run.
    pub ratio: f64,
    /// 95 % confidence interval of the ratio.
    pub interval: (f64, f64),
    /// Runs of each.
    pub runs: usize,
    /// New schedules in it.
    pub tried: usize,
    /// Those whose kernels did not gain in the network.
    pub lost: usize,
}

/// Makes artifacts of one model and compares them.
pub(super) struct Confirm<'a> {
    pub(super) model: &'a Model,
    pub(super) inputs: &'a [Input],
    pub(super) target: &'a Target,
    pub(super) folder: tempfile::TempDir,
}

impl Confirm<'_> {
    /// The model's artifact with some recorded schedules, as a file that lives as long as this.
    pub(super) fn artifact(&self, name: &str, records: &Recorded) -> Result<PathBuf> {
        let recipe = Recipe::analytic(DataType::F32);
        let compiled = compiler::compile(self.model, self.inputs, self.target, &recipe, records)?;
        let path = self.folder.path().join(format!("{name}.hone"));
        std::fs::write(&path, &compiled.artifact).map_err(|error| {
            Failure::io(format!("'{}' cannot be written", path.display()), error)
        })?;
        Ok(path)
    }

    /// Nanoseconds of each task in a run of the network, all its uses together, with the schedules so far.
    pub(super) fn task_times(
        &self,
        device: &mut Device,
        tasks: &[TuningTask],
        seconds: f64,
    ) -> Result<Vec<f64>> {
        let path = self.artifact("untuned", &Recorded::default())?;
        let compared = device.compare(&Compare { ours: path.clone(), theirs: path, seconds })?;
        let times = kernel_times(&compared.our_steps);
        let of_task = |task: &TuningTask| -> f64 {
            task.kernels.iter().filter_map(|kernel| times.get(kernel)).map(|own| median(own)).sum()
        };
        Ok(tasks.iter().map(of_task).collect())
    }

    /// The network with recorded schedules beside the untuned one.
    pub(super) fn against_untuned(
        &self,
        device: &mut Device,
        kept: &Recorded,
        seconds: f64,
    ) -> Result<Verdict> {
        let theirs = self.artifact("untuned", &Recorded::default())?;
        let ours = self.artifact("kept", kept)?;
        Ok(verdict(&device.compare(&Compare { ours, theirs, seconds })?))
    }

    /// Which of `proposed` win in the network against `so_far`, none where it is not faster for sure; and what
    /// each round of comparing said, the last of them about those that are kept.
    pub(super) fn winners(
        &self,
        device: &mut Device,
        tasks: &[TuningTask],
        so_far: &Recorded,
        proposed: &BTreeMap<String, Prescription>,
        seconds: f64,
    ) -> Result<(BTreeMap<String, Prescription>, Vec<Verdict>)> {
        let theirs = self.artifact("before", so_far)?;
        let mut kept = proposed.clone();
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            if kept.is_empty() {
                break;
            }
            let ours = self.artifact("after", &with(so_far, &kept))?;
            let compare = Compare { ours, theirs: theirs.clone(), seconds };
            let compared = device.compare(&compare)?;
            let mut verdict = verdict(&compared);
            let losers = losers(tasks, &kept, &compared);
            let is_faster = verdict.interval.1 < 1.0;
            verdict.tried = kept.len();
            verdict.lost = losers.len();
            rounds.push(verdict);
            if is_faster && (losers.is_empty() || round + 1 == ROUNDS) {
                return Ok((kept, rounds));
            }
            if losers.is_empty() {
                // Faster kernels, but not a faster network: another try with more runs does not hurt.
                continue;
            }
            kept.retain(|program, _| !losers.contains(program));
        }
        Ok((BTreeMap::new(), rounds))
    }
}

/// The schedules so far with others in their places.
pub(super) fn with(so_far: &Recorded, others: &BTreeMap<String, Prescription>) -> Recorded {
    let mut all = (**so_far).clone();
    all.extend(others.clone());
    Arc::new(all)
}

pub(super) fn verdict(compared: &Compared) -> Verdict {
    let (ratio, interval) = paired(&compared.ours, &compared.theirs);
    Verdict {
        before: median(&compared.theirs) as u64,
        after: median(&compared.ours) as u64,
        ratio,
        interval,
        runs: compared.ours.len(),
        tried: 0,
        lost: 0,
    }
}

/// Programs whose kernels do not take less time in the network.
fn losers(
    tasks: &[TuningTask],
    kept: &BTreeMap<String, Prescription>,
    compared: &Compared,
) -> BTreeSet<String> {
    let (ours, theirs) = (kernel_times(&compared.our_steps), kernel_times(&compared.their_steps));
    let sum = |times: &BTreeMap<usize, Vec<u64>>, task: &TuningTask| -> Vec<u64> {
        let runs = times.values().map(Vec::len).min().unwrap_or(0);
        let of_run = |run: usize| {
            task.kernels.iter().filter_map(|kernel| times.get(kernel)).map(|own| own[run]).sum()
        };
        (0..runs).map(of_run).collect()
    };
    let lost = tasks.iter().filter(|task| {
        kept.contains_key(&task.digest) && paired(&sum(&ours, task), &sum(&theirs, task)).0 > GAIN
    });
    lost.map(|task| task.digest.clone()).collect()
}

/// Times of each run of each kernel, its steps and uses together, by the kernel's number.
fn kernel_times(steps: &[(String, Vec<u64>)]) -> BTreeMap<usize, Vec<u64>> {
    let mut times: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (symbol, own) in steps {
        // `hone_k7`, or `hone_k7_0` and so on for kernels of several functions.
        let number = symbol.strip_prefix("hone_k").and_then(|rest| rest.split('_').next());
        let Some(number) = number.and_then(|number| number.parse().ok()) else { continue };
        let sum = times.entry(number).or_insert_with(|| vec![0; own.len()]);
        sum.iter_mut().zip(own).for_each(|(sum, time)| *sum += time);
    }
    times
}

fn median(times: &[u64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_kernel_are_counted_together() {
        let steps = [
            ("hone_k0".to_owned(), vec![1, 2]),
            ("hone_k1_0".to_owned(), vec![10, 20]),
            ("hone_k1_1".to_owned(), vec![5, 5]),
            ("hone_k0".to_owned(), vec![3, 4]),
        ];
        let times = kernel_times(&steps);
        assert_eq!(times, BTreeMap::from([(0, vec![4, 6]), (1, vec![15, 25])]));
    }
}
