//! The network: an embedding of every block and loop of the nest, from the inside out, and a score of the whole.
//!
//! A block's embedding is a layer over its numbers. A loop adds up the embeddings of what it repeats, as a set, and adds a
//! layer over that sum and its own numbers to it (recursive networks over loop nests: R. Baghdadi and others, "A Deep Learning
//! Based Cost Model for Automatic Code Optimization", 2021; sums over sets: M. Zaheer and others, "Deep Sets", 2017). The sum
//! over the whole nest and the features of the program give the score by two layers more. All sums have a fixed order: equal
//! weights and inputs give equal scores, bit for bit.

use super::encode::{Encoded, Input, LOOP, OF_BLOCK, WHOLE};
use crate::Random;

/// Numbers of an embedding.
pub(super) const WIDTH: usize = 32;
/// Slope of an activation below zero.
const LEAK: f32 = 0.1;

type Embedding = [f32; WIDTH];

/// Weights of a layer in those of the network: a row of [`WIDTH`] for each input, and one that is always added.
#[derive(Clone, Copy)]
struct Layer {
    begin: usize,
    inputs: usize,
}

const BLOCKS: Layer = Layer { begin: 0, inputs: OF_BLOCK };
const LOOPS: Layer = BLOCKS.followed_by(LOOP + WIDTH);
const PROGRAM: Layer = LOOPS.followed_by(WHOLE + WIDTH);
const HIDDEN: Layer = PROGRAM.followed_by(WIDTH);
/// The last weights: what each number of the last layer counts.
const OUTPUT: usize = HIDDEN.end();
/// All of them.
pub(super) const WEIGHTS: usize = OUTPUT + WIDTH;

impl Layer {
    const fn end(self) -> usize {
        self.begin + (self.inputs + 1) * WIDTH
    }

    const fn followed_by(self, inputs: usize) -> Self {
        Self { begin: self.end(), inputs }
    }

    fn rows(self, weights: &[f32]) -> &[Embedding] {
        weights[self.begin..self.end()].as_chunks().0
    }

    fn rows_mut(self, weights: &mut [f32]) -> &mut [Embedding] {
        weights[self.begin..self.end()].as_chunks_mut().0
    }

    /// The layer before its activation, of inputs in two parts.
    fn apply(self, weights: &[f32], values: &[f32], below: &[f32]) -> Embedding {
        let rows = self.rows(weights);
        let mut sum = rows[self.inputs];
        for (input, row) in values.iter().chain(below).zip(rows) {
            add(&mut sum, *input, row);
        }
        sum
    }

    /// Adds the gradient of the layer's weights, and gives that of the inputs below, where there are any.
    fn back(
        self,
        (weights, gradient): (&[f32], &mut [f32]),
        (values, below): (&[f32], &[f32]),
        slope: &Embedding,
    ) -> Embedding {
        let rows = self.rows_mut(gradient);
        for (input, row) in values.iter().chain(below).chain(&[1.0]).zip(rows) {
            add(row, *input, slope);
        }
        let mut slopes = [0.0; WIDTH];
        let rows = &self.rows(weights)[values.len()..self.inputs];
        for (below, row) in slopes.iter_mut().zip(rows) {
            *below = dot(row, slope);
        }
        slopes
    }
}

/// What is kept of a candidate's evaluation for the gradient.
#[derive(Default)]
pub(super) struct Kept {
    /// Sums of what each node repeats, and what its layer gave before the activation.
    nodes: Vec<(Embedding, Embedding)>,
    whole: Embedding,
    program: Embedding,
    hidden: Embedding,
}

/// Weights to begin with; the last ones are zero, so that nothing is added to a score before something was learned.
pub(super) fn initial(random: &mut Random) -> Vec<f32> {
    let mut weights = vec![0.0; WEIGHTS];
    for layer in [BLOCKS, LOOPS, PROGRAM, HIDDEN] {
        // So wide that activations keep their size (K. He and others, "Delving Deep into Rectifiers", 2015).
        let bound = (3.0 / layer.inputs as f64).sqrt();
        let rows = &mut layer.rows_mut(&mut weights)[..layer.inputs];
        rows.iter_mut()
            .flatten()
            .for_each(|weight| *weight = (bound * random.signed_unit()) as f32);
    }
    weights
}

/// What the network adds to a candidate's score.
pub(super) fn forward(weights: &[f32], input: &Input, kept: &mut Kept) -> f32 {
    kept.nodes.clear();
    kept.nodes.resize(input.nodes.len(), ([0.0; WIDTH], [0.0; WIDTH]));
    kept.whole = [0.0; WIDTH];
    for (index, (parent, node)) in input.nodes.iter().enumerate().rev() {
        let below = kept.nodes[index].0;
        let (layer, mut embedding) = match node {
            Encoded::Block(values) => (BLOCKS.apply(weights, values, &[]), [0.0; WIDTH]),
            Encoded::Loop(values) => (LOOPS.apply(weights, values, &below), below),
        };
        kept.nodes[index].1 = layer;
        add(&mut embedding, 1.0, &activated(&layer));
        let sum = match parent {
            Some(parent) => &mut kept.nodes[*parent].0,
            None => &mut kept.whole,
        };
        add(sum, 1.0, &embedding);
    }
    kept.program = PROGRAM.apply(weights, &input.whole, &kept.whole);
    kept.hidden = HIDDEN.apply(weights, &activated(&kept.program), &[]);
    dot(&activated(&kept.hidden), output(weights))
}

/// Adds to `gradient` what a change of each weight changes of the score that [`forward`] gave, times `slope`.
pub(super) fn backward(
    weights: &[f32],
    input: &Input,
    kept: &Kept,
    slope: f32,
    gradient: &mut [f32],
) {
    let last = activated(&kept.hidden);
    last.iter().zip(&mut gradient[OUTPUT..]).for_each(|(value, sum)| *sum += slope * value);
    let hidden = output(weights).map(|weight| slope * weight);
    let hidden = through(&kept.hidden, &hidden);
    let program = activated(&kept.program);
    let program = HIDDEN.back((weights, &mut *gradient), (&[], &program), &hidden);
    let program = through(&kept.program, &program);
    let inputs = (&input.whole[..], &kept.whole[..]);
    let whole = PROGRAM.back((weights, &mut *gradient), inputs, &program);
    // Slopes of what each loop repeats.
    let mut inside = vec![[0.0; WIDTH]; input.nodes.len()];
    for (index, (parent, node)) in input.nodes.iter().enumerate() {
        let outer = parent.map_or(whole, |parent| inside[parent]);
        let (below, layer) = &kept.nodes[index];
        let slope = through(layer, &outer);
        match node {
            Encoded::Block(values) => {
                BLOCKS.back((weights, &mut *gradient), (values, &[]), &slope);
            }
            Encoded::Loop(values) => {
                inside[index] = LOOPS.back((weights, &mut *gradient), (values, below), &slope);
                add(&mut inside[index], 1.0, &outer);
            }
        }
    }
}

fn output(weights: &[f32]) -> &Embedding {
    &weights[OUTPUT..].as_chunks().0[0]
}

fn add(sum: &mut Embedding, factor: f32, row: &Embedding) {
    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * value);
}

/// A sum of products: eight sums, which lanes of a vector can hold, and then those of each half.
fn dot(one: &Embedding, other: &Embedding) -> f32 {
    let mut sums = [0.0f32; 8];
    for (one, other) in one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += one[lane] * other[lane];
        }
    }
    let half: [f32; 4] = std::array::from_fn(|lane| sums[lane] + sums[lane + 4]);
    (half[0] + half[2]) + (half[1] + half[3])
}

fn activated(layer: &Embedding) -> Embedding {
    layer.map(|value| if value > 0.0 { value } else { LEAK * value })
}

/// A slope behind an activation, before it.
fn through(layer: &Embedding, slope: &Embedding) -> Embedding {
    std::array::from_fn(|index| if layer[index] > 0.0 { slope[index] } else { LEAK * slope[index] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(random: &mut Random) -> Input {
        let mut numbers = || random.normal();
        let mut block = || Encoded::Block(std::array::from_fn(|_| numbers()));
        let blocks = [block(), block(), block()];
        let mut numbers = || random.normal();
        let mut outer = || Encoded::Loop(std::array::from_fn(|_| numbers()));
        let [first, second, third] = blocks;
        let nodes = vec![
            (None, outer()),
            (Some(0), outer()),
            (Some(1), first),
            (Some(0), second),
            (None, third),
        ];
        Input { nodes, whole: std::array::from_fn(|_| random.normal()) }
    }

    #[test]
    fn gradients_are_what_changes_of_weights_change() {
        let mut random = Random::new(5);
        let mut weights = initial(&mut random);
        weights[OUTPUT..].iter_mut().for_each(|weight| *weight = random.normal());
        let (input, mut kept) = (input(&mut random), Kept::default());
        forward(&weights, &input, &mut kept);
        let mut gradient = vec![0.0; WEIGHTS];
        backward(&weights, &input, &kept, 1.0, &mut gradient);
        let size = gradient.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        // Every layer, and every part of its inputs.
        for index in (0..WEIGHTS).step_by(61).chain(OUTPUT..WEIGHTS) {
            let at = |change: f32| {
                let mut changed = weights.clone();
                changed[index] += change;
                f64::from(forward(&changed, &input, &mut Kept::default()))
            };
            let measured = (at(1e-2) - at(-1e-2)) / 2e-2;
            let off = (measured - f64::from(gradient[index])).abs();
            assert!(off < 0.02 * f64::from(size), "{index}: {measured} {}", gradient[index]);
        }
    }

    #[test]
    fn the_order_of_loops_side_by_side_does_not_matter_and_their_nesting_does() {
        let mut random = Random::new(6);
        let mut weights = initial(&mut random);
        weights[OUTPUT..].iter_mut().for_each(|weight| *weight = random.normal());
        let score = |nodes| {
            let input = Input { nodes, whole: [0.0; WHOLE] };
            forward(&weights, &input, &mut Kept::default())
        };
        let of_loop = |value: f32| Encoded::Loop([value; LOOP]);
        let block = |value: f32| Encoded::Block([value; OF_BLOCK]);
        let beside = |one: f32, other: f32| {
            vec![
                (None, of_loop(one)),
                (Some(0), block(one)),
                (None, of_loop(other)),
                (Some(2), block(other)),
            ]
        };
        let (one, other) = (score(beside(0.5, -1.0)), score(beside(-1.0, 0.5)));
        assert!((one - other).abs() < 1e-4 * one.abs(), "{one} {other}");
        let inside = vec![
            (None, of_loop(0.5)),
            (Some(0), block(0.5)),
            (Some(0), of_loop(-1.0)),
            (Some(2), block(-1.0)),
        ];
        let inside = score(inside);
        assert!((inside - one).abs() > 1e-2, "{inside} {one}");
    }

    #[test]
    fn nothing_is_added_before_something_was_learned() {
        let mut random = Random::new(7);
        let weights = initial(&mut random);
        assert_eq!(forward(&weights, &input(&mut random), &mut Kept::default()), 0.0);
    }
}
