//! The cost model: which of some candidates of one task is likely the faster.

use crate::features::{FEATURES, Features};
use crate::neural::Neural;
use crate::trees::{Row, Trees};
use std::collections::HashMap;

/// What a model learns from: the features of a candidate, its time over the untuned one's, and the task.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Features of the scheduled program.
    pub features: Features,
    /// Time over that of the untuned schedule; infinite for one that failed.
    pub ratio: f64,
    /// Digest of the task's program: only samples of one task are compared.
    pub task: String,
}

/// A judge of candidates: higher scores are expected to be faster. Scores of one task compare. Models that were told the
/// same in the same order give equal scores.
pub trait CostModel {
    /// Whether a sample tells what the model reads: of what does not, it learns nothing, and can say little.
    fn is_fit(&self, sample: &Sample) -> bool;
    /// Learns from all samples: those of the call before and what was measured since.
    fn learn(&mut self, samples: &[Sample]);
    /// The score of a candidate by its features.
    fn score(&self, features: &Features) -> f64;
}

pub(crate) type Make = fn() -> Box<dyn CostModel>;

/// The cost models by name, that which is taken without a choice first.
pub const COST_MODELS: [(&str, Make); 2] =
    [("trees", || Box::new(Learned::default())), ("neural", || Box::new(Neural::default()))];

/// The cost model of a name.
pub fn cost_model(name: &str) -> Option<Box<dyn CostModel>> {
    COST_MODELS.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// Gradient-boosted trees over the analytic prediction: they learn where the prediction is wrong.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    trees: Trees,
}

/// Maximum samples of a task that count, the latest ones: the number of pairs grows with the square.
const MAX_TASK_SAMPLES: usize = 160;

impl CostModel for Learned {
    fn is_fit(&self, sample: &Sample) -> bool {
        sample.features.counts.len() == FEATURES.len()
    }

    fn learn(&mut self, samples: &[Sample]) {
        let groups = by_task(samples, |sample| self.is_fit(sample));
        let rows: Vec<Row<'_>> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, samples)| samples.iter().map(move |sample| (group, *sample)))
            .map(|(group, sample)| Row {
                features: &sample.features.counts,
                label: speed(sample.ratio),
                group,
                prior: prior(&sample.features.counts),
            })
            .collect();
        self.trees = if rows.is_empty() { Trees::default() } else { Trees::fit(&rows) };
    }

    fn score(&self, features: &Features) -> f64 {
        prior(&features.counts) + self.trees.score(&features.counts)
    }
}

/// The samples of each task that are fit, the latest ones first and no more than [`MAX_TASK_SAMPLES`].
pub(crate) fn by_task(samples: &[Sample], is_fit: impl Fn(&Sample) -> bool) -> Vec<Vec<&Sample>> {
    let mut indices: HashMap<&str, usize> = HashMap::new();
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples.iter().rev() {
        let index = *indices.entry(&sample.task).or_insert(groups.len());
        if index == groups.len() {
            groups.push(Vec::new());
        }
        if groups[index].len() < MAX_TASK_SAMPLES && is_fit(sample) {
            groups[index].push(sample);
        }
    }
    groups
}

/// Speed over the untuned schedule's; 0 for what failed.
pub(crate) fn speed(ratio: f64) -> f64 {
    if ratio.is_finite() && ratio > 0.0 { 1.0 / ratio } else { 0.0 }
}

/// The analytic prediction as a score: the negative logarithm of predicted cycles.
pub(crate) fn prior(features: &[f32]) -> f64 {
    let index = FEATURES.iter().position(|name| *name == "predicted cycles");
    let cycles = index.and_then(|index| features.get(index)).copied().unwrap_or_default();
    -f64::from(cycles)
}
