//! Grouped convolutions whose groups end inside of blocks of channels, as several convolutions.
//!
//! A block of results needs the channels of those groups alone that it has channels of. Groups of 24 channels
//! in blocks of 16: the first block of results needs the first group, the second one two groups, the third one
//! the second group; then it begins again, a *period* of two groups later. Neighbouring blocks of a period
//! that need the same blocks of inputs are a *part*: one convolution that has the periods as its groups. Its
//! weights are zero where a block holds channels of other groups. Merging whole groups
//! ([`crate::merge_groups`]) multiplies by zeros twice as often.

use crate::layout::Layout;
use crate::packed_operands::pack_weights;
use crate::{PassError, merge_groups::GroupMerge};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Concat, Convolution, GroupInputs, Op, OpError, PackedConvolution, Reshape, Window, interleave,
};
use hone_types::{DataType, Tensor, TensorType};
use std::ops::Range;

/// Maximum convolutions that one is divided into.
const MOST_PARTS: usize = 12;

/// A grouped convolution, cut into parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupParts {
    /// Inputs and results of a group, in channels.
    channels: [usize; 2],
    /// Channels in a block.
    block: usize,
    /// Groups of a period, the fewest whose inputs and results fill blocks.
    period: usize,
    /// Number of groups.
    groups: usize,
    /// The parts of all whole periods, by results; then those of the last groups, which fill no period.
    parts: Vec<Part>,
}

/// Blocks of results that read the same blocks of inputs, in each of several periods.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The first group of the first period.
    group: usize,
    /// Periods that the part stands in.
    periods: usize,
    /// Blocks of inputs, counted from the period's first one.
    inputs: Range<usize>,
    /// Blocks of results, likewise.
    outputs: Range<usize>,
}

impl GroupParts {
    /// The parts of `groups` groups of so many inputs and results each, in blocks of `block` channels; `None`
    /// where `merge`, which is the other way to compute them, is about as good.
    pub(crate) fn of(
        groups: usize,
        channels: [usize; 2],
        block: usize,
        merge: Option<GroupMerge>,
    ) -> Option<Self> {
        let whole =
            |factor: &usize| channels.iter().all(|each| (factor * each).is_multiple_of(block));
        let period = (1..=block).find(whole)?;
        let mut parts = period_parts(0, groups / period, period, channels, block);
        let rest = groups % period;
        parts.extend(period_parts(groups - rest, usize::from(rest > 0), rest, channels, block));
        let cut = Self { channels, block, period, groups, parts };
        let worth = match merge.map(|merge| (merge.groups, merge.products(channels, block))) {
            None => true,
            // What is one group may become one of Winograd's, with less than half of the products.
            Some((1, products)) => 2 * cut.products() < products,
            Some((_, products)) => 5 * cut.products() < 4 * products,
        };
        (worth && cut.parts.len() <= MOST_PARTS).then_some(cut)
    }

    /// Pairs of a block of inputs and a block of results that are multiplied.
    fn products(&self) -> usize {
        let each = |part: &Part| part.periods * part.inputs.len() * part.outputs.len();
        self.parts.iter().map(each).sum()
    }

    /// Which groups' which rows a part computes: for each channel of its results the index of the row of
    /// weights and the first of the part's inputs that it reads; `None` past the last channel.
    fn rows(&self, part: &Part) -> impl Iterator<Item = Option<(usize, usize)>> {
        let [inputs, outputs] = self.channels;
        let (first, block) = (part.inputs.start * self.block, self.block);
        let (period, end, first_group) = (self.period, self.groups, part.group);
        let within = part.outputs.start * block..part.outputs.end * block;
        (0..part.periods).flat_map(move |index| {
            within.clone().map(move |channel| {
                let group = channel / outputs;
                let row = (first_group + index * period) * outputs + channel;
                (row < end * outputs).then(|| (row, group * inputs - first))
            })
        })
    }

    /// The weights of a part, `[O, C / g, K..]`, from those of the whole convolution.
    fn weights(&self, part: &Part, weights: &Tensor) -> Result<Tensor, OpError> {
        let [_, inputs, window @ ..] = weights.shape() else {
            return Err(OpError::Value("weights have two axes at least".to_string()));
        };
        let window_bytes = window.iter().product::<usize>() * weights.dtype().bytes();
        let depth = part.inputs.len() * self.block;
        let outputs = part.periods * part.outputs.len() * self.block;
        let part_type = TensorType::new(weights.dtype(), [&[outputs, depth], window].concat());
        let mut bytes = vec![0; part_type.bytes()];
        for (output, row) in self.rows(part).enumerate() {
            let Some((row, first)) = row else { continue };
            let source = &weights.bytes()[row * inputs * window_bytes..][..inputs * window_bytes];
            bytes[(output * depth + first) * window_bytes..][..source.len()]
                .copy_from_slice(source);
        }
        Ok(Tensor::from_bytes(part_type, bytes)?)
    }

    /// The bias of a part, packed.
    fn bias(&self, part: &Part, bias: &Tensor) -> Result<Tensor, OpError> {
        let element = bias.dtype().bytes();
        let mut bytes = Vec::new();
        for row in self.rows(part) {
            match row {
                Some((row, _)) => {
                    bytes.extend_from_slice(&bias.bytes()[row * element..][..element])
                }
                None => bytes.resize(bytes.len() + element, 0),
            }
        }
        let shape = vec![bytes.len() / element / self.block, self.block];
        Ok(Tensor::from_bytes(TensorType::new(bias.dtype(), shape), bytes)?)
    }
}

/// The parts of `periods` periods of `groups` groups each, the first of which is group `group`.
fn period_parts(
    group: usize,
    periods: usize,
    groups: usize,
    [inputs, outputs]: [usize; 2],
    block: usize,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    if periods == 0 {
        return parts;
    }
    for at in 0..(groups * outputs).div_ceil(block) {
        let last = ((at + 1) * block).min(groups * outputs) - 1;
        let read = at * block / outputs..last / outputs + 1;
        let read = read.start * inputs / block..(read.end * inputs).div_ceil(block);
        match parts.last_mut().filter(|part| part.inputs == read) {
            Some(part) => part.outputs.end = at + 1,
            None => parts.push(Part { group, periods, inputs: read, outputs: at..at + 1 }),
        }
    }
    parts
}

/// What a convolution in parts computes on.
pub(crate) struct PartOperands<'a> {
    /// Packed and padded.
    pub(crate) input: ValueId,
    /// `[O, C / g, K..]`.
    pub(crate) weights: &'a Tensor,
    /// `[O]`.
    pub(crate) bias: Option<&'a Tensor>,
    /// The type that the weights are interleaved in, for instructions that sum products of integers.
    pub(crate) narrow: Option<DataType>,
}

impl Layout<'_> {
    /// Adds a grouped convolution of a packed and padded input in parts: its packed result, with zeros as
    /// filler.
    pub(crate) fn convolve_parts(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        cut: &GroupParts,
        operands: PartOperands<'_>,
    ) -> Result<ValueId, PassError> {
        let PartOperands { input, weights, bias, narrow } = operands;
        let Window { strides, dilations, .. } = &convolution.window;
        let refused = |source| PassError::Constant { node: node.name.clone(), source };
        let mut results = Vec::new();
        for part in &cut.parts {
            let weights = cut.weights(part, weights);
            let weights = weights.and_then(|weights| pack_weights(&weights, cut.block, cut.block));
            let weights = match narrow {
                Some(narrow) => weights.and_then(|weights| interleave(&weights, narrow)),
                None => weights,
            };
            let weights = self.rewriter.constant(&node.name, weights.map_err(refused)?);
            let mut inputs = vec![Some(input), Some(weights)];
            if let Some(bias) = bias {
                let bias = cut.bias(part, bias).map_err(refused)?;
                inputs.push(Some(self.rewriter.constant(&node.name, bias)));
            }
            let first = part.group * cut.channels[0] / cut.block + part.inputs.start;
            let step = cut.period * cut.channels[0] / cut.block;
            let operation = PackedConvolution {
                strides: strides.clone(),
                dilations: dilations.clone(),
                groups: part.periods,
                inputs: Some(GroupInputs { first, step }),
                pads: None,
            };
            results.push(self.rewriter.add(&node.name, operation, &inputs)?[0]);
        }
        self.join_parts(node, cut, &results)
    }

    /// Joins the results of the parts in the order of their channels.
    fn join_parts(
        &mut self,
        node: &Node<Op>,
        cut: &GroupParts,
        results: &[ValueId],
    ) -> Result<ValueId, PassError> {
        let periods = cut.groups / cut.period;
        let in_periods = cut.parts.iter().take_while(|part| part.group == 0 && periods > 0).count();
        let (whole, rest) = results.split_at(in_periods);
        let mut joined = Vec::new();
        if periods > 1 && whole.len() > 1 {
            let mut split = Vec::new();
            for (part, result) in cut.parts.iter().zip(whole) {
                let mut shape = self.rewriter.target().tensor_type(*result).shape.clone();
                shape[1] = part.outputs.len();
                shape.insert(1, periods);
                split.push(self.rewriter.add_simple(&node.name, Reshape { shape }, &[*result])?);
            }
            let stacked = self.rewriter.add_simple(&node.name, Concat { axis: 2 }, &split)?;
            let mut shape = self.rewriter.target().tensor_type(stacked).shape.clone();
            let blocks = shape.remove(2);
            shape[1] *= blocks;
            joined.push(self.rewriter.add_simple(&node.name, Reshape { shape }, &[stacked])?);
        } else {
            joined.extend_from_slice(whole);
        }
        joined.extend_from_slice(rest);
        match joined[..] {
            [single] => Ok(single),
            _ => self.rewriter.add_simple(&node.name, Concat { axis: 1 }, &joined),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// First group, periods, blocks of inputs, blocks of results.
    type Listed = (usize, usize, Range<usize>, Range<usize>);

    fn parts(groups: usize, channels: [usize; 2]) -> Option<Vec<Listed>> {
        let merge = GroupMerge::of(groups, channels, 16);
        let cut = GroupParts::of(groups, channels, 16, merge)?;
        let part = |part: Part| (part.group, part.periods, part.inputs, part.outputs);
        Some(cut.parts.into_iter().map(part).collect())
    }

    #[test]
    fn results_that_need_the_same_inputs_are_a_part() {
        let whole = [(0, 2, 0..2, 0..1), (0, 2, 0..3, 1..2), (0, 2, 1..3, 2..3)];
        let rest = (4, 1, 0..2, 0..2);
        assert_eq!(parts(5, [24, 24]), Some([&whole[..], &[rest]].concat()));
        let long = vec![(0, 2, 0..11, 0..10), (0, 2, 0..21, 10..11), (0, 2, 10..21, 11..21)];
        assert_eq!(parts(4, [168, 168]), Some(long));
    }

    #[test]
    fn groups_that_are_merged_as_well_stay_whole() {
        assert_eq!(parts(4, [8, 8]), None);
        assert_eq!(parts(32, [4, 4]), None);
    }

    #[test]
    fn weights_stand_where_their_group_is() {
        let merge = GroupMerge::of(3, [2, 2], 4);
        let cut = GroupParts::of(3, [6, 6], 4, merge.filter(|_| false)).unwrap();
        let weights: Vec<f32> = (1..=108).map(|value| value as f32).collect();
        let weights = Tensor::from_elements([18, 6, 1], &weights).unwrap();
        // The second block of results has channels 4 and 5 of the first group and 0 and 1 of the second.
        let part = cut.weights(&cut.parts[1], &weights).unwrap();
        assert_eq!(part.shape(), [4, 12, 1]);
        let elements = part.elements::<f32>().unwrap();
        assert_eq!(elements[..13], [25., 26., 27., 28., 29., 30., 0., 0., 0., 0., 0., 0., 31.]);
        assert_eq!(elements[24..31], [0., 0., 0., 0., 0., 0., 37.]);
        let bias: Vec<f32> = (0..18).map(|value| value as f32).collect();
        let bias = Tensor::from_elements([18], &bias).unwrap();
        let last = cut.bias(cut.parts.last().unwrap(), &bias).unwrap();
        assert_eq!(last.elements::<f32>().unwrap(), [12., 13., 14., 15., 16., 17., 0., 0.]);
    }
}
