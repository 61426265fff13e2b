//! Gradient-boosted regression trees that learn an order: within a group, what has the higher label shall
//! get the higher score.
//!
//! Each tree follows the gradient of a pairwise logistic loss (C. Burges and others, "Learning to Rank
//! using Gradient Descent", 2005; second derivatives as in T. Chen and C. Guestrin, "XGBoost", 2016).
//! Features are put into bins by their quantiles once. Nothing is random: equal samples give equal trees.

/// Number of trees.
const TREES: usize = 60;
/// Levels of a tree.
const DEPTH: usize = 5;
/// Learning rate: the fraction of a tree's prediction that counts.
const LEARNING_RATE: f64 = 0.15;
/// Bins of a feature.
const BINS: usize = 32;
/// L2 regularization, added to second derivatives: leaves of few samples predict little.
const REGULARIZATION: f64 = 1.0;
/// Minimum gain of a split.
const MIN_GAIN: f64 = 1e-6;

/// A node: a split, or a leaf with its prediction.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Split { feature: usize, threshold: f32, below: usize, above: usize },
    Leaf(f64),
}

/// A fitted ensemble. An empty one gives every sample the same score.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trees {
    trees: Vec<Vec<Node>>,
}

/// A sample of a group.
pub(crate) struct Row<'a> {
    pub(crate) features: &'a [f32],
    pub(crate) label: f64,
    pub(crate) group: usize,
    /// Score before the first tree: what is believed without samples.
    pub(crate) prior: f64,
}

impl Trees {
    /// Fits trees to samples; those of a group are neighbours.
    pub(crate) fn fit(rows: &[Row<'_>]) -> Self {
        let width = rows.first().map_or(0, |row| row.features.len());
        let edges: Vec<Vec<f32>> = (0..width).map(|feature| quantiles(rows, feature)).collect();
        let binned: Vec<Vec<u8>> = rows.iter().map(|row| bins(row.features, &edges)).collect();
        let mut scores: Vec<f64> = rows.iter().map(|row| row.prior).collect();
        let mut trees = Vec::with_capacity(TREES);
        for _ in 0..TREES {
            let gradients = gradients(rows, &scores);
            let mut builder =
                Builder { binned: &binned, edges: &edges, gradients: &gradients, nodes: vec![] };
            builder.grow((0..rows.len()).collect(), DEPTH);
            let tree = builder.nodes;
            for (score, row) in scores.iter_mut().zip(rows) {
                *score += predict(&tree, row.features);
            }
            trees.push(tree);
        }
        Self { trees }
    }

    /// What the trees add to the prior's score.
    pub(crate) fn score(&self, features: &[f32]) -> f64 {
        self.trees.iter().map(|tree| predict(tree, features)).sum()
    }
}

fn predict(tree: &[Node], features: &[f32]) -> f64 {
    let mut node = 0;
    loop {
        match tree.get(node) {
            Some(Node::Split { feature, threshold, below, above }) => {
                let value = features.get(*feature).copied().unwrap_or_default();
                node = if value <= *threshold { *below } else { *above };
            }
            Some(Node::Leaf(value)) => return *value,
            None => return 0.0,
        }
    }
}

/// Distinct values that divide a feature's samples evenly.
fn quantiles(rows: &[Row<'_>], feature: usize) -> Vec<f32> {
    let mut values: Vec<f32> = rows.iter().map(|row| row.features[feature]).collect();
    values.sort_unstable_by(f32::total_cmp);
    values.dedup();
    values.pop();
    match values.len() {
        few if few < BINS => values,
        many => (0..BINS - 1).map(|bin| values[bin * many / (BINS - 1)]).collect(),
    }
}

fn bins(features: &[f32], edges: &[Vec<f32>]) -> Vec<u8> {
    let bin = |(value, edges): (&f32, &Vec<f32>)| edges.partition_point(|edge| edge < value) as u8;
    features.iter().zip(edges).map(bin).collect()
}

/// For each sample the sums of first and second derivatives of the loss over its pairs.
fn gradients(rows: &[Row<'_>], scores: &[f64]) -> Vec<(f64, f64)> {
    let mut gradients = vec![(0.0, 0.0); rows.len()];
    let mut begin = 0;
    while begin < rows.len() {
        let group = rows[begin].group;
        let end = rows[begin..].iter().position(|row| row.group != group);
        let end = end.map_or(rows.len(), |length| begin + length);
        let pairs = ((end - begin).saturating_sub(1).max(1)) as f64;
        for one in begin..end {
            for other in begin..end {
                let ahead = rows[one].label - rows[other].label;
                // Pairs with nearly equal labels are noise.
                if ahead <= 0.01 {
                    continue;
                }
                let weight = ahead.min(1.0) / pairs;
                let wrong = 1.0 / (1.0 + (scores[one] - scores[other]).exp());
                let (first, second) = (weight * wrong, weight * wrong * (1.0 - wrong));
                gradients[one].0 += first;
                gradients[other].0 -= first;
                gradients[one].1 += second;
                gradients[other].1 += second;
            }
        }
        begin = end;
    }
    gradients
}

/// Grows one tree.
struct Builder<'a> {
    binned: &'a [Vec<u8>],
    edges: &'a [Vec<f32>],
    gradients: &'a [(f64, f64)],
    nodes: Vec<Node>,
}

impl Builder<'_> {
    /// Adds the node of some samples and what is below it; returns its index.
    fn grow(&mut self, samples: Vec<usize>, levels: usize) -> usize {
        let sum = samples.iter().fold((0.0, 0.0), |sum, sample| {
            (sum.0 + self.gradients[*sample].0, sum.1 + self.gradients[*sample].1)
        });
        let index = self.nodes.len();
        self.nodes.push(Node::Leaf(
            LEARNING_RATE * sum.0 / (sum.1 + REGULARIZATION) * leaf_scale(samples.len()),
        ));
        if levels == 0 || samples.len() < 4 {
            return index;
        }
        let Some((feature, bin)) = self.best_split(&samples, sum) else { return index };
        let threshold = self.edges[feature][bin];
        let (below, above): (Vec<usize>, Vec<usize>) = samples
            .into_iter()
            .partition(|sample| usize::from(self.binned[*sample][feature]) <= bin);
        let below = self.grow(below, levels - 1);
        let above = self.grow(above, levels - 1);
        self.nodes[index] = Node::Split { feature, threshold, below, above };
        index
    }

    /// The feature and bin after which to split, where that gains.
    fn best_split(&self, samples: &[usize], sum: (f64, f64)) -> Option<(usize, usize)> {
        let quality = |(first, second): (f64, f64)| first * first / (second + REGULARIZATION);
        let mut best = (MIN_GAIN, None);
        for (feature, edges) in self.edges.iter().enumerate() {
            let mut bins = [(0.0, 0.0, 0usize); BINS];
            for sample in samples {
                let bin = &mut bins[usize::from(self.binned[*sample][feature])];
                bin.0 += self.gradients[*sample].0;
                bin.1 += self.gradients[*sample].1;
                bin.2 += 1;
            }
            let mut below = (0.0, 0.0);
            let mut count = 0;
            for (bin, totals) in bins.iter().enumerate().take(edges.len()) {
                below = (below.0 + totals.0, below.1 + totals.1);
                count += totals.2;
                if count == 0 || count == samples.len() {
                    continue;
                }
                let above = (sum.0 - below.0, sum.1 - below.1);
                let gain = quality(below) + quality(above) - quality(sum);
                if gain > best.0 {
                    best = (gain, Some((feature, bin)));
                }
            }
        }
        best.1
    }
}

/// Leaves of one or two samples predict less.
fn leaf_scale(samples: usize) -> f64 {
    (samples as f64 / 3.0).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Samples whose label is a function of two of four features.
    fn samples(count: usize, seed: u64) -> Vec<(Vec<f32>, f64)> {
        let mut random = Random::new(seed);
        let sample = |_| {
            let features: Vec<f32> = (0..4).map(|_| random.unit() as f32).collect();
            let label = f64::from(features[1]) - f64::from((features[2] - 0.5).abs());
            (features, label)
        };
        (0..count).map(sample).collect()
    }

    fn rows(samples: &[(Vec<f32>, f64)]) -> Vec<Row<'_>> {
        let row = |index: usize| {
            let (features, label) = &samples[index];
            Row { features, label: *label, group: index / 50, prior: 0.0 }
        };
        (0..samples.len()).map(row).collect()
    }

    #[test]
    fn pairs_that_were_not_seen_are_put_in_order() {
        let seen = samples(200, 1);
        let trees = Trees::fit(&rows(&seen));
        let unseen = samples(100, 2);
        let (mut right, mut all) = (0, 0);
        for one in &unseen {
            for other in &unseen {
                if one.1 > other.1 + 0.1 {
                    all += 1;
                    right += u32::from(trees.score(&one.0) > trees.score(&other.0));
                }
            }
        }
        assert!(f64::from(right) > 0.85 * f64::from(all), "{right} of {all}");
    }

    #[test]
    fn equal_samples_give_equal_trees_and_none_give_none() {
        let seen = samples(120, 3);
        assert_eq!(Trees::fit(&rows(&seen)), Trees::fit(&rows(&seen)));
        assert_eq!(Trees::fit(&[]).score(&[1.0]), 0.0);
    }
}
