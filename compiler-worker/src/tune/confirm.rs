//! The last word: schedules that won alone replace others only where they win in the network, beside the
//! artifact that compilations make so far, in one interleaved run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use hone_artifact::request::Input;
use hone_driver::{DataType, Prescription, Target, TuningTask};
use serde::Serialize;

use super::measuring::Measuring;
use super::protocol::{Compare, Compared, StepTimes};
use super::statistics::paired;
use super::store::{Recorded, schedules_apart};
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

/// The steps of an artifact that one record is about.
pub(super) enum Part<'a> {
    /// Those of kernels, by number.
    Kernels(&'a [usize]),
    /// Those that compute any of some nodes, by name.
    Nodes(&'a [String]),
}

impl Part<'_> {
    fn has(&self, step: &StepTimes) -> bool {
        match self {
            // `hone_k7`, or `hone_k7_0` and so on for kernels of several functions.
            Self::Kernels(kernels) => step
                .kernel
                .strip_prefix("hone_k")
                .and_then(|rest| rest.split('_').next()?.parse().ok())
                .is_some_and(|number| kernels.contains(&number)),
            Self::Nodes(nodes) => step.nodes.iter().any(|node| nodes.contains(node)),
        }
    }
}

/// Nanoseconds of each run that the steps of a part take together.
pub(super) fn of_part(steps: &[StepTimes], part: &Part<'_>) -> Vec<u64> {
    let own: Vec<&StepTimes> = steps.iter().filter(|step| part.has(step)).collect();
    let runs = own.iter().map(|step| step.times.len()).min().unwrap_or(0);
    (0..runs).map(|run| own.iter().map(|step| step.times[run]).sum()).collect()
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

    /// Nanoseconds of each task in a run of the network, all its uses together, without schedules of records.
    pub(super) fn task_times(
        &self,
        device: &mut Measuring<'_>,
        (tasks, so_far): (&[TuningTask], &Recorded),
        seconds: f64,
    ) -> Result<Vec<f64>> {
        let path = self.artifact("unscheduled", &schedules_apart(so_far).1)?;
        let compared = device.compare(&Compare { ours: path.clone(), theirs: path, seconds })?;
        let of_task = |task: &TuningTask| {
            median(&of_part(&compared.our_steps, &Part::Kernels(&task.kernels)))
        };
        Ok(tasks.iter().map(of_task).collect())
    }

    /// The network with recorded schedules beside the untuned one.
    pub(super) fn against_untuned(
        &self,
        device: &mut Measuring<'_>,
        kept: &Recorded,
        seconds: f64,
    ) -> Result<Verdict> {
        let theirs = self.artifact("untuned", &Recorded::default())?;
        let ours = self.artifact("kept", kept)?;
        Ok(verdict(&device.compare(&Compare { ours, theirs, seconds })?))
    }

    /// Which of `proposed` win in the network against `so_far`, none where it is not faster for sure; and what
    /// each round of comparing said, the last of them about those that are kept. `part` says which steps each is about.
    pub(super) fn winners<'p>(
        &self,
        device: &mut Measuring<'_>,
        part: &dyn Fn(&str) -> Option<Part<'p>>,
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
            let losers = losers(part, &kept, &compared);
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

/// Those whose steps do not take less time in the network.
fn losers<'p>(
    part: &dyn Fn(&str) -> Option<Part<'p>>,
    kept: &BTreeMap<String, Prescription>,
    compared: &Compared,
) -> BTreeSet<String> {
    let is_lost = |key: &&String| {
        part(key).is_some_and(|part| {
            let [ours, theirs] =
                [&compared.our_steps, &compared.their_steps].map(|steps| of_part(steps, &part));
            paired(&ours, &theirs).0 > GAIN
        })
    };
    kept.keys().filter(is_lost).cloned().collect()
}

pub(super) fn median(times: &[u64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_kernel_and_by_node() {
        let step = |kernel: &str, nodes: &[&str], times: &[u64]| StepTimes {
            kernel: kernel.to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            times: times.to_vec(),
        };
        let steps = [
            step("hone_k0", &["a"], &[1, 2]),
            step("hone_k1_0", &["b", "c"], &[10, 20]),
            step("hone_k1_1", &["b", "c"], &[5, 5]),
            step("hone_k0", &["d"], &[3, 4]),
        ];
        assert_eq!(of_part(&steps, &Part::Kernels(&[0])), [4, 6]);
        assert_eq!(of_part(&steps, &Part::Kernels(&[1])), [15, 25]);
        assert_eq!(of_part(&steps, &Part::Kernels(&[0, 1])), [19, 31]);
        let nodes = ["c".to_owned(), "d".to_owned()];
        assert_eq!(of_part(&steps, &Part::Nodes(&nodes)), [18, 29]);
        assert!(of_part(&steps, &Part::Nodes(&[])).is_empty());
    }
}
