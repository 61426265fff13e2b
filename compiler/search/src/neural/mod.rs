//! A neural cost model: a network over the loop nest (`network.rs`) that learns where the analytic prediction is wrong.
//!
//! It learns by pairs, as the trees do: of two candidates of a task, the faster one shall get the higher score (C. Burges and
//! others, "Learning to Rank using Gradient Descent", 2005). What is new since the last call is learned beside a draw of what
//! was known, from the weights there are, so that all calls of a search take time in proportion to its trials. Where most is
//! new, learning begins anew. Draws come from a fixed seed: models that were told the same in the same order are equal, bit for
//! bit.

mod adam;
mod encode;
mod network;

use crate::Random;
use crate::features::{FEATURES, Features};
use crate::model::{CostModel, Sample, by_task, prior, speed};
use adam::Adam;
use encode::{Input, Scales};
use network::{Kept, WEIGHTS, backward, forward, initial};

/// Where draws begin.
const SEED: u64 = 0x6e65_7374;
/// Tasks of a step.
const TASKS: usize = 4;
/// Candidates of each of them: pairs grow with the square.
const CANDIDATES: usize = 16;
/// How often a sample is looked at when learning begins, on average.
const VISITS: usize = 40;
/// Most looks at samples when learning begins, which bounds its time.
const MOST_VISITS: usize = 120_000;
/// Fewest: a few samples are looked at more often.
const LEAST_VISITS: usize = 4_000;
/// How often a sample that came later is looked at, and as often others beside it.
const LATER_VISITS: usize = 16;
/// Learning begins anew where samples are this many times what it last began with.
const ANEW: usize = 2;
/// Learning rates at the beginning and at the end.
const RATES: (f32, f32) = (3e-3, 2e-4);
/// The rate of what comes later.
const LATER_RATE: f32 = 5e-4;

/// A network over the analytic prediction.
#[derive(Clone, Debug, Default)]
pub struct Neural {
    learned: Option<Network>,
    /// Samples of the last call.
    known: usize,
}

#[derive(Clone, Debug)]
struct Network {
    scales: Scales,
    weights: Vec<f32>,
    adam: Adam,
    random: Random,
    /// Samples with which it began.
    began: usize,
}

/// A sample as the network learns from it.
struct Example {
    input: Input,
    prior: f32,
    label: f32,
}

impl CostModel for Neural {
    fn is_fit(&self, sample: &Sample) -> bool {
        sample.features.counts.len() == FEATURES.len() && !sample.features.nest.is_empty()
    }

    fn learn(&mut self, samples: &[Sample]) {
        let mut tasks = by_task(samples, |sample| self.is_fit(sample));
        // One candidate has nothing to be compared with.
        tasks.retain(|task| task.len() > 1);
        let fit = tasks.iter().map(Vec::len).sum::<usize>();
        let new = samples.len().saturating_sub(self.known);
        let shrank = samples.len() < self.known;
        self.known = samples.len();
        if fit == 0 {
            self.learned = None;
            return;
        }
        let began = self.learned.as_ref().map_or(0, |network| network.began);
        if shrank || samples.len() > ANEW * began {
            let all: Vec<&Sample> = tasks.iter().flatten().copied().collect();
            let network = self.learned.insert(Network::new(Scales::of(&all), samples.len()));
            let tasks = network.examples(&tasks);
            let visits = (VISITS * fit).clamp(LEAST_VISITS, MOST_VISITS);
            network.train(&tasks, visits, &|done| RATES.0 * (RATES.1 / RATES.0).powf(done));
        } else if let Some(network) = self.learned.as_mut().filter(|_| new > 0) {
            let tasks = network.examples(&tasks);
            network.train(&tasks, 2 * LATER_VISITS * new, &|_| LATER_RATE);
        }
    }

    fn score(&self, features: &Features) -> f64 {
        let known = self.learned.as_ref().filter(|_| !features.nest.is_empty());
        let added = known.map_or(0.0, |network| {
            forward(&network.weights, &network.scales.encode(features), &mut Kept::default())
        });
        prior(&features.counts) + f64::from(added)
    }
}

impl Network {
    fn new(scales: Scales, began: usize) -> Self {
        let mut random = Random::new(SEED);
        let weights = initial(&mut random);
        Self { scales, weights, adam: Adam::new(WEIGHTS), random, began }
    }

    fn examples(&self, tasks: &[Vec<&Sample>]) -> Vec<Vec<Example>> {
        let example = |sample: &&Sample| Example {
            input: self.scales.encode(&sample.features),
            prior: prior(&sample.features.counts) as f32,
            label: speed(sample.ratio) as f32,
        };
        tasks.iter().map(|task| task.iter().map(example).collect()).collect()
    }

    /// Takes steps until so many samples were looked at; `rate` is the learning rate after a share of them.
    fn train(&mut self, tasks: &[Vec<Example>], visits: usize, rate: &dyn Fn(f32) -> f32) {
        let mut gradient = vec![0.0; WEIGHTS];
        let mut kept: Vec<Kept> = (0..CANDIDATES).map(|_| Kept::default()).collect();
        let mut done = 0;
        while done < visits {
            gradient.fill(0.0);
            for _ in 0..TASKS {
                let Some(task) = self.random.pick(tasks) else { return };
                let drawn = draw(task, &mut self.random);
                self.add_gradient(&drawn, &mut kept, &mut gradient);
                done += drawn.len();
            }
            let rate = rate(done as f32 / visits as f32);
            self.adam.step(&mut self.weights, &gradient, rate);
        }
    }

    /// Adds the gradient of the loss over all pairs of some candidates of a task.
    fn add_gradient(&self, drawn: &[&Example], kept: &mut [Kept], gradient: &mut [f32]) {
        let scores: Vec<f32> = drawn
            .iter()
            .zip(&mut *kept)
            .map(|(one, kept)| one.prior + forward(&self.weights, &one.input, kept))
            .collect();
        let slopes = slopes(drawn, &scores);
        for ((one, kept), slope) in drawn.iter().zip(kept).zip(slopes) {
            if slope != 0.0 {
                backward(&self.weights, &one.input, kept, slope, gradient);
            }
        }
    }
}

/// Up to [`CANDIDATES`] samples of a task, none twice.
fn draw<'a>(task: &'a [Example], random: &mut Random) -> Vec<&'a Example> {
    let mut all: Vec<&Example> = task.iter().collect();
    let count = all.len().min(CANDIDATES);
    for index in 0..count {
        let other = index + random.below(all.len() - index);
        all.swap(index, other);
    }
    all.truncate(count);
    all
}

/// How the loss grows with each score: logistic over all pairs, weighted by how much the speeds differ.
fn slopes(drawn: &[&Example], scores: &[f32]) -> Vec<f32> {
    let mut slopes = vec![0.0; drawn.len()];
    let each = 1.0 / (drawn.len().saturating_sub(1).max(1)) as f32;
    for one in 0..drawn.len() {
        for other in 0..drawn.len() {
            let ahead = drawn[one].label - drawn[other].label;
            // Pairs with nearly equal labels are noise.
            if ahead > 0.01 {
                let wrong = 1.0 / (1.0 + (scores[one] - scores[other]).exp());
                let slope = ahead.min(1.0) * each * wrong;
                slopes[one] -= slope;
                slopes[other] += slope;
            }
        }
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::{BLOCK, BLOCK_VALUES, LOOP_VALUES, Nest, Node};

    /// A candidate whose counts say nothing and whose loop nest everything: a loop of few rounds outside of one of many is
    /// fast, and slow the other way around.
    fn sample(random: &mut Random, task: &str) -> Sample {
        let extents = [random.below(160) as u16, random.below(160) as u16];
        let of_loop = |depth: u16| {
            let mut values = vec![0; LOOP_VALUES.len()];
            values[0] = extents[usize::from(depth)];
            Node { depth, kind: 0, values }
        };
        let block = Node {
            depth: 2,
            kind: BLOCK,
            values: vec![random.below(50) as u16; BLOCK_VALUES.len()],
        };
        let nest = Nest::of(vec![of_loop(0), of_loop(1), block]);
        let features = Features { counts: vec![1.0; FEATURES.len()], nest };
        let inner = f64::from(extents[1]) - f64::from(extents[0]);
        Sample { features, ratio: (-inner / 200.0).exp(), task: task.to_owned() }
    }

    fn samples(count: usize, seed: u64) -> Vec<Sample> {
        let mut random = Random::new(seed);
        (0..count).map(|index| sample(&mut random, ["one", "other"][index % 2])).collect()
    }

    /// Share of pairs of one task in the right order.
    fn right(model: &Neural, samples: &[Sample]) -> f64 {
        let (mut right, mut all) = (0, 0);
        for one in samples {
            for other in samples.iter().filter(|other| one.ratio < 0.95 * other.ratio) {
                all += 1;
                right += u32::from(model.score(&one.features) > model.score(&other.features));
            }
        }
        f64::from(right) / f64::from(all)
    }

    fn bits(model: &Neural, samples: &[Sample]) -> Vec<u64> {
        samples.iter().map(|one| model.score(&one.features).to_bits()).collect()
    }

    #[test]
    fn which_loop_is_inside_is_learned_from_the_nest_alone() {
        let mut model = Neural::default();
        model.learn(&samples(200, 1));
        let found = right(&model, &samples(60, 2));
        assert!(found > 0.9, "{found}");
    }

    #[test]
    fn equal_records_give_equal_scores_bit_for_bit() {
        let (seen, unseen) = (samples(90, 3), samples(20, 4));
        let taught = |rounds: &[usize]| {
            let mut model = Neural::default();
            rounds.iter().for_each(|count| model.learn(&seen[..*count]));
            bits(&model, &unseen)
        };
        assert_eq!(taught(&[90]), taught(&[90]));
        assert_eq!(taught(&[50, 70, 90]), taught(&[50, 70, 90]));
        assert_ne!(taught(&[50, 70, 90]), taught(&[50]));
        // Nothing new teaches nothing.
        assert_eq!(taught(&[60, 60]), taught(&[60]));
    }

    #[test]
    fn what_comes_later_is_learned_without_beginning_anew() {
        let (seen, unseen) = (samples(160, 5), samples(60, 6));
        let mut model = Neural::default();
        model.learn(&seen[..96]);
        let began = model.learned.as_ref().map(|network| network.began);
        let before = right(&model, &unseen);
        for count in [112, 128, 144, 160] {
            model.learn(&seen[..count]);
        }
        assert_eq!(model.learned.as_ref().map(|network| network.began), began);
        let after = right(&model, &unseen);
        assert!(after > 0.9 && after > before - 0.02, "{before} before, {after} after");
    }

    #[test]
    fn without_nests_the_analytic_prediction_judges() {
        let mut model = Neural::default();
        let mut old = samples(40, 7);
        old.iter_mut().for_each(|one| one.features.nest = Nest::default());
        model.learn(&old);
        assert!(model.learned.is_none());
        model.learn(&samples(40, 8));
        let counts = &old[0].features.counts;
        assert_eq!(model.score(&old[0].features), prior(counts));
        assert_ne!(model.score(&samples(1, 9)[0].features), prior(counts));
        assert_eq!(Neural::default().score(&samples(1, 9)[0].features), prior(counts));
    }
}
