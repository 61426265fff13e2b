//! The cost model: which of some candidates of one task is likely the faster.

use crate::features::FEATURES;
use crate::trees::{Row, Trees};

/// What a model learns from: the features of a candidate, its time over the untuned one's, and the task.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Features of the scheduled program.
    pub features: Vec<f32>,
    /// Time over that of the untuned schedule; infinite for one that failed.
    pub ratio: f64,
    /// Digest of the task's program: only samples of one task are compared.
    pub task: String,
}

/// A judge of candidates: higher scores are expected to be faster. Scores of one task compare.
pub trait CostModel {
    /// Learns from all samples, anew.
    fn learn(&mut self, samples: &[Sample]);
    /// The score of a candidate by its features.
    fn score(&self, features: &[f32]) -> f64;
}

/// Gradient-boosted trees over the analytic prediction: they learn where the prediction is wrong.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    trees: Trees,
}

/// Maximum samples of a task that count, the latest ones: the number of pairs grows with the square.
const MAX_TASK_SAMPLES: usize = 160;

impl CostModel for Learned {
    fn learn(&mut self, samples: &[Sample]) {
        let mut groups: Vec<(&str, Vec<&Sample>)> = Vec::new();
        for sample in samples.iter().rev() {
            let known = groups.iter().position(|(task, _)| *task == sample.task);
            let group = known.unwrap_or_else(|| {
                groups.push((&sample.task, Vec::new()));
                groups.len() - 1
            });
            if groups[group].1.len() < MAX_TASK_SAMPLES && sample.features.len() == FEATURES.len() {
                groups[group].1.push(sample);
            }
        }
        let rows: Vec<Row<'_>> = groups
            .iter()
            .enumerate()
            .flat_map(|(group, (_, samples))| samples.iter().map(move |sample| (group, *sample)))
            .map(|(group, sample)| Row {
                features: &sample.features,
                label: speed(sample.ratio),
                group,
                prior: prior(&sample.features),
            })
            .collect();
        self.trees = if rows.is_empty() { Trees::default() } else { Trees::fit(&rows) };
    }

    fn score(&self, features: &[f32]) -> f64 {
        prior(features) + self.trees.score(features)
    }
}

/// Speed over the untuned schedule's; 0 for what failed.
fn speed(ratio: f64) -> f64 {
    if ratio.is_finite() && ratio > 0.0 { 1.0 / ratio } else { 0.0 }
}

/// The analytic prediction as a score: the negative logarithm of predicted cycles.
fn prior(features: &[f32]) -> f64 {
    let index = FEATURES.iter().position(|name| *name == "predicted cycles");
    let cycles = index.and_then(|index| features.get(index)).copied().unwrap_or_default();
    -f64::from(cycles)
}
