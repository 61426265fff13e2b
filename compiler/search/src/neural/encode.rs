//! What the network reads of a candidate: numbers of about mean 0 and deviation 1, and the shape of its loop nest.

use crate::features::{FEATURES, Features};
use crate::model::Sample;
use crate::nest::{BLOCK, BLOCK_VALUES, LOOP_KINDS, LOOP_VALUES, Node};

/// Numbers of a loop: its kind, one of several, and its values.
pub(super) const LOOP: usize = LOOP_KINDS + LOOP_VALUES.len();
/// Numbers of a block.
pub(super) const OF_BLOCK: usize = BLOCK_VALUES.len();
/// Numbers of the whole program.
pub(super) const WHOLE: usize = FEATURES.len();
/// Farthest from the mean that a number may be, in deviations: what is far from all that was seen is not believed.
const FARTHEST: f32 = 4.0;

/// A node of the nest.
#[derive(Clone, Debug)]
pub(super) enum Encoded {
    Loop([f32; LOOP]),
    Block([f32; OF_BLOCK]),
}

/// A candidate as the network reads it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// Nodes with the place of the loop around each; a loop before what it repeats.
    pub(super) nodes: Vec<(Option<usize>, Encoded)>,
    /// Features of the whole program.
    pub(super) whole: [f32; WHOLE],
}

/// Mean and deviation of every number.
#[derive(Clone, Debug)]
pub(super) struct Scales {
    of_loop: [(f32, f32); LOOP_VALUES.len()],
    block: [(f32, f32); OF_BLOCK],
    whole: [(f32, f32); WHOLE],
}

impl Scales {
    /// Those of some samples.
    pub(super) fn of(samples: &[&Sample]) -> Self {
        let nodes = |is_block: bool| {
            let all = samples.iter().flat_map(|sample| sample.features.nest.nodes());
            all.filter(move |node| (node.kind == BLOCK) == is_block)
        };
        let values = |is_block: bool| nodes(is_block).map(|node| node.values.iter().map(octaves));
        Self {
            of_loop: moments(values(false)),
            block: moments(values(true)),
            whole: moments(samples.iter().map(|one| one.features.counts.iter().copied())),
        }
    }

    /// A candidate as the network reads it.
    pub(super) fn encode(&self, features: &Features) -> Input {
        let mut open: Vec<usize> = Vec::new();
        let mut nodes = Vec::with_capacity(features.nest.nodes().len());
        for (index, node) in features.nest.nodes().iter().enumerate() {
            open.truncate(usize::from(node.depth));
            nodes.push((open.last().copied(), self.node(node)));
            if node.kind < BLOCK {
                open.push(index);
            }
        }
        Input { nodes, whole: scaled(features.counts.iter().copied(), &self.whole) }
    }

    fn node(&self, node: &Node) -> Encoded {
        let values = node.values.iter().map(octaves);
        if node.kind == BLOCK {
            return Encoded::Block(scaled(values, &self.block));
        }
        let mut all = [0.0; LOOP];
        all[usize::from(node.kind)] = 1.0;
        all[LOOP_KINDS..].copy_from_slice(&scaled(values, &self.of_loop));
        Encoded::Loop(all)
    }
}

/// A value of a node as a logarithm.
fn octaves(value: &u16) -> f32 {
    f32::from(*value) / 16.0
}

/// Mean and deviation of each column. One that never changes has no deviation, and any other value of it is not believed.
fn moments<const N: usize>(
    rows: impl Iterator<Item = impl Iterator<Item = f32>>,
) -> [(f32, f32); N] {
    let (mut count, mut sums) = (0.0f64, [(0.0f64, 0.0f64); N]);
    for row in rows {
        count += 1.0;
        for (sum, value) in sums.iter_mut().zip(row) {
            let value = f64::from(value);
            *sum = (sum.0 + value, sum.1 + value * value);
        }
    }
    let count = count.max(1.0);
    sums.map(|(sum, squares)| {
        let mean = sum / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        (mean as f32, deviation as f32)
    })
}

fn scaled<const N: usize>(
    values: impl Iterator<Item = f32>,
    moments: &[(f32, f32); N],
) -> [f32; N] {
    let mut all = [0.0; N];
    for ((slot, value), (mean, deviation)) in all.iter_mut().zip(values).zip(moments) {
        // Less than a hundredth of an octave is rounding.
        if *deviation > 0.01 {
            *slot = ((value - mean) / deviation).clamp(-FARTHEST, FARTHEST);
        }
    }
    all
}
