//! A model along whose dimension any size may come: at which sizes it is compiled, and what its artifact says of it.

use hone_artifact::{OpenDimension, PaddedDimension, PaddedLength};
use hone_graph::Port;
use hone_ops::{Graph, node_flops};
use hone_passes::{Independence, Length, PaddedAxis, PaddedGraph};
use hone_types::{DataType, TensorType};

/// What an artifact says of sizes that it was not compiled for.
#[derive(Clone, Debug, Default)]
pub struct DynamicDimensions {
    /// The dimension that the model maps over, where any size of it is served.
    pub open: Option<OpenDimension>,
    /// The dimension of which any size up to the graphs' is served; the graphs are then those of
    /// [`hone_passes::pad_dimension`].
    pub padded: Option<PaddedDimension>,
}

/// The size at which a graph is shown to map over a dimension: a prime, so that it is told from other extents.
pub const ANALYSED_SIZE: usize = 7;

/// Uses of each weight for a slice from which a larger size saves next to nothing: a kernel's register tiles are full.
const FULL_TILES: u64 = 64;
/// Uses below which a run takes as long as reading the weights, whatever its size.
const WEIGHT_BOUND: u64 = 16;
/// Operations of a slice below which the parts of a run other than its arithmetic count.
const LIGHT_FLOPS: u64 = 500_000_000;
/// Operations of a slice up to which the reference of several dozen slices takes seconds.
const MOST_FLOPS: u64 = 4_000_000_000;
/// The same for the reference of several hundred slices.
const MOST_FLOPS_OF_ALL: u64 = 150_000_000;
/// Nodes up to which code for many sizes is made in seconds.
const FEW_NODES: usize = 100;

/// The sizes to compile a graph at that maps over a dimension, of which it has `size`, ascending; at most `most`. 1 is
/// among them, so that any size is a sum of them.
///
/// A run at a composed size takes as long as its parts, so larger sizes are worth their code where a part costs more than
/// its share: where weights are read once for few multiply-adds, or a slice is little work.
pub fn sizes_of_open_dimension(graph: &Graph, size: usize, most: usize) -> Vec<usize> {
    let (flops, weights) = (flops(graph) / size as u64, weights(graph));
    let uses = flops / (2 * weights).max(1);
    let choices: [Vec<usize>; 3] =
        [(1..=16).chain([32]).collect(), vec![1, 2, 4, 8, 16], vec![1, 4]];
    let first = match (uses, flops) {
        (..WEIGHT_BOUND, ..MOST_FLOPS_OF_ALL) if graph.nodes().len() <= FEW_NODES => 0,
        (..FULL_TILES, ..MOST_FLOPS) | (_, ..LIGHT_FLOPS) => 1,
        _ => 2,
    };
    let fitting = choices.into_iter().skip(first).find(|sizes| sizes.len() <= most);
    fitting.unwrap_or_else(|| vec![1])
}

/// Floating-point operations of a run.
fn flops(graph: &Graph) -> u64 {
    let operations = graph.nodes().iter().map(|(_, node)| node_flops(graph, node));
    operations.fold(0, u64::saturating_add)
}

/// Elements of the constants that something is multiplied with, as far as their sizes tell.
fn weights(graph: &Graph) -> u64 {
    const SMALL: usize = 1024;
    let constants = graph.values().ids().filter_map(|value| graph.constant(value));
    let is_weight =
        |constant: &TensorType| constant.elements() >= SMALL && constant.dtype != DataType::I64;
    let sizes =
        constants.map(|constant| constant.tensor_type()).filter(|constant| is_weight(constant));
    sizes.map(|constant| constant.elements() as u64).sum()
}

/// What the artifact says of a dimension that a graph was shown to map over.
pub fn open_dimension(graph: &Graph, name: &str, proof: &Independence) -> OpenDimension {
    let axis = |port: &Port| proof.axis(port.value).map(|axis| axis as u32);
    OpenDimension {
        name: name.chars().filter(|character| !character.is_control()).collect(),
        inputs: graph.inputs().iter().map(axis).collect(),
        outputs: graph.outputs().iter().map(axis).collect(),
    }
}

/// The bounds to compile a model at that shall take sizes of a dimension from `least` to `most`, the largest first; at most
/// `count`. A run takes the time of the next bound, so each is about half of the one before.
pub fn bounds_of(least: usize, most: usize, count: usize) -> Vec<usize> {
    /// Bounds below save little: parts of a run other than its arithmetic count there.
    const SMALLEST: usize = 32;
    /// Sizes are multiples of the vectors and tiles that kernels are made of.
    const MULTIPLE: usize = 16;
    let mut bounds = vec![most];
    while let Some(bound) = bounds.last().map(|last| (last / 2).next_multiple_of(MULTIPLE)) {
        let is_useful = bound >= SMALLEST && bound >= least && bounds.last() > Some(&bound);
        if !is_useful || bounds.len() >= count {
            break;
        }
        bounds.push(bound);
    }
    bounds
}

/// What the artifact says of a dimension whose size is an input of its graphs, which were padded for multiples of a
/// number: its axis in each of the model's inputs, and in each output, and the sizes that are taken.
pub fn padded_dimension(
    name: &str,
    inputs: &[Option<usize>],
    padded: &PaddedGraph,
    multiple: usize,
) -> PaddedDimension {
    let axes =
        |all: &[Option<usize>]| all.iter().map(|axis| axis.map(|axis| axis as u32)).collect();
    let of_output = |output: &Option<PaddedAxis>| {
        let Length { multiplier, shift, divisor, extra, .. } = output.as_ref()?.length;
        let length = PaddedLength { multiplier, shift, divisor, extra };
        let size = PaddedLength { multiplier: 1, shift: 0, divisor: 1, extra: 0 };
        (length != size).then_some(length)
    };
    let lengths: Vec<Option<PaddedLength>> = padded.outputs.iter().map(of_output).collect();
    let has_length = lengths.iter().any(Option::is_some);
    PaddedDimension {
        name: name.chars().filter(|letter| !letter.is_control()).collect(),
        inputs: axes(inputs),
        outputs: axes(&padded.axes()),
        lengths: if has_length { lengths } else { Vec::new() },
        least: None,
        multiple: (multiple > 1).then_some(multiple as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_halves_of_each_other() {
        assert_eq!(bounds_of(1, 512, 8), [512, 256, 128, 64, 32]);
        assert_eq!(bounds_of(100, 512, 8), [512, 256, 128]);
        assert_eq!(bounds_of(1, 77, 8), [77, 48, 32]);
        assert_eq!(bounds_of(1, 512, 2), [512, 256]);
        assert_eq!(bounds_of(1, 9, 8), [9]);
    }
}
