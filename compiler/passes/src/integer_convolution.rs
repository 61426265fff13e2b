//! Convolutions of integers by constant bytes, on packed channels, by the instructions that sum several products.
//! Of unsigned bytes minus a zero point (for devices also of signed ones) the bytes themselves are multiplied, and padding is
//! the zero point, so that it subtracts the same from every result: `sum (x - z) w = sum x w - z * sum w`, whether `z` is a constant or computed.
//! Filters of unsigned bytes minus a zero point do not fit signed bytes; they are moved by a number `c` each, and what
//! that adds is `c` times the sum of the window, which one more filter gives: `sum x w = sum x (w - c) + c * sum x`.
//! Integers that are stored in 16 bits ([`crate::narrow_integers`]) have their zero point subtracted already.

use crate::PassError;
use crate::filled_groups::FilledGroups;
use crate::group_parts::PartOperands;
use crate::integer_products::{Bytes, NarrowFactor, column_offsets};
use crate::layout::Layout;
use crate::layout_convolution::window_padding;
use crate::packed_operands::pack_weights;
use crate::quantized::{fits, sums_channels};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Convolution, Graph, Op, OpError, Operator, Pack, PackedConvolution,
    Reshape, Transpose, Window, interleave_by, products_of,
};
use hone_types::{DataType, Tensor};

/// The operands of such a convolution.
struct Factors<'a> {
    /// Bytes or integers of 16 bits.
    integers: ValueId,
    /// The type of the weights that they are multiplied by.
    narrow: DataType,
    /// What is subtracted from the integers.
    zero: Zero,
    /// In 32 bits.
    weights: &'a Tensor,
    /// For each filter what is subtracted from its weights before they are narrowed.
    offsets: Vec<i32>,
    /// How its groups fill blocks of channels.
    filled: FilledGroups,
}

/// A zero point.
#[derive(Clone, Copy)]
enum Zero {
    Constant(i64),
    /// One number in 32 bits that holds a byte, and this byte.
    Computed(ValueId, ValueId),
}

impl<'a> Factors<'a> {
    fn of(
        graph: &'a Graph,
        node: &Node<Op>,
        convolution: &Convolution,
        (bytes, block): (Bytes, usize),
    ) -> Option<Self> {
        let weights = graph.constant(node.inputs[1]?)?;
        let factor = NarrowFactor::of(graph, node.inputs[0]?, bytes)?;
        let dtype = graph.tensor_type(factor.value).dtype;
        let zero = match factor.zero {
            None => Zero::Constant(0),
            Some(zero) => match graph.constant(zero) {
                Some(known) => {
                    Zero::Constant(*known.to_i64().first().filter(|_| fits(known, dtype))?)
                }
                None => {
                    let (byte, other) = bytes.extended(graph, zero)?;
                    Zero::Computed(zero, Some(byte).filter(|_| other == dtype)?)
                }
            },
        };
        let groups = convolution.groups;
        let fits = sums_channels(weights.shape(), groups, bytes)
            && node.inputs.get(2).copied().flatten().is_none()
            && weights.dtype() == DataType::I32;
        let offsets = filter_offsets(weights, factor.weights).filter(|_| fits)?;
        let channels = [weights.shape()[1], weights.shape()[0] / groups];
        let filled = FilledGroups::of(groups, channels, block, true)?;
        Some(Self {
            integers: factor.value,
            narrow: factor.weights,
            zero,
            weights,
            offsets,
            filled,
        })
    }

    /// The filters moved so that they fit the narrow type.
    fn moved(&self) -> Result<Tensor, OpError> {
        let each = self.each();
        let moved = self.weights.to_i64().into_iter().enumerate();
        let moved = moved.map(|(index, weight)| weight as i32 - self.offsets[index / each]);
        Ok(Tensor::from_elements(self.weights.shape(), &moved.collect::<Vec<i32>>())?)
    }

    /// Weights of a filter.
    fn each(&self) -> usize {
        self.weights.shape()[1..].iter().product::<usize>().max(1)
    }

    /// What the zero point adds to each result, for each unit of it: the sums of the filters.
    fn sums(&self) -> Vec<i32> {
        let weights = self.weights.to_i64();
        let sum = |filter: &[i64]| filter.iter().sum::<i64>() as i32;
        weights.chunks_exact(self.each()).map(sum).collect()
    }

    /// A number for each filter as `[1, O / o, 1.., o]`.
    fn by_filter(&self, numbers: &[i32], block: usize) -> Result<Tensor, OpError> {
        let rank = self.weights.shape().len();
        let numbers = Tensor::from_elements([numbers.len()], numbers)?;
        let packed = Pack { axis: 0, block }.reference(&[Some(&numbers)])?.remove(0);
        let mut full = vec![1; rank + 1];
        (full[1], full[rank]) = (packed.shape()[0], block);
        Ok(packed.reshaped(full)?)
    }
}

/// As [`column_offsets`], for filters `[O, C, K..]`.
pub(crate) fn filter_offsets(weights: &Tensor, narrow: DataType) -> Option<Vec<i32>> {
    let filters = *weights.shape().first()?;
    let each = weights.shape()[1..].iter().product::<usize>();
    let rows = weights.reshaped([filters, each]).ok()?;
    let columns = Transpose { permutation: vec![1, 0] }.reference(&[Some(&rows)]).ok()?.pop()?;
    column_offsets(&columns, narrow)
}

impl Layout<'_> {
    /// Rewrites a convolution of integers; says whether it did.
    pub(crate) fn integer_convolution(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let bytes = if self.is_device() { Bytes::Any } else { Bytes::Unsigned };
        let Some(operands) = Factors::of(self.graph, node, convolution, (bytes, self.block)) else {
            return Ok(false);
        };
        let depth = match self.is_device() {
            true => self.products,
            false => products_of(operands.narrow).unwrap_or(1),
        };
        let channels = self.shape(operands.integers)[1];
        let row = self.tile_rows.and_then(|rows| rows.channels(self.graph, node, convolution));
        let block = row.unwrap_or(self.block.min(channels.next_multiple_of(depth)));
        // Of a device's blocks all hold chunks: none is packed again.
        let known = self.any_block_of(operands.integers).filter(|_| self.is_device());
        let block = known.unwrap_or(block);
        let input = self.packed(operands.integers, block, &node.name)?;
        let block = self.rewriter.target().tensor_type(input).shape.last().copied().unwrap_or(1);
        if !block.is_multiple_of(depth) {
            return Ok(false);
        }
        let input = match operands.zero {
            Zero::Constant(0) if self.pads_within => input,
            Zero::Constant(zero) => {
                self.padded_windows(node, &convolution.window, input, (zero as f64, &[][..]))?
            }
            Zero::Computed(_, byte) => self.padded_with(node, &convolution.window, input, byte)?,
        };
        let mut sums = self.convolve_narrow(node, convolution, (input, block), &operands)?;
        let out = self.filter_block(node, convolution);
        sums = self.less_zero_point(node, sums, (&operands, out))?;
        Ok(self.finish(node, sums))
    }

    /// Filters in a block of a convolution: groups have blocks of one size.
    fn filter_block(&self, node: &Node<Op>, convolution: &Convolution) -> usize {
        if convolution.groups == 1 { self.result_block(node) } else { self.block }
    }

    /// The sums of the products of the integers themselves.
    fn convolve_narrow(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        (input, block): (ValueId, usize),
        operands: &Factors<'_>,
    ) -> Result<ValueId, PassError> {
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let moved = operands.moved().map_err(wrong)?;
        let sums = self.convolve_by(node, convolution, (input, block), operands, &moved)?;
        if operands.offsets.iter().all(|offset| *offset == 0) {
            return Ok(sums);
        }
        // A block of equal filters of ones, so that the sum of a window stands in every lane; of groups a filter for each
        // result.
        let out = self.filter_block(node, convolution);
        let filters = if convolution.groups == 1 { out } else { operands.weights.shape()[0] };
        let shape = [&[filters], &operands.weights.shape()[1..]].concat();
        let ones = vec![1i32; shape.iter().product()];
        let ones = Tensor::from_elements(shape, &ones).map_err(OpError::from).map_err(wrong)?;
        let windows = self.convolve_by(node, convolution, (input, block), operands, &ones)?;
        let offsets = operands.by_filter(&operands.offsets, out).map_err(wrong)?;
        let offsets = self.rewriter.constant(&node.name, offsets);
        let multiply = Binary::new(BinaryFunction::Multiply);
        let moved = self.rewriter.add_simple(&node.name, multiply, &[windows, offsets])?;
        let add = Binary::new(BinaryFunction::Add);
        self.rewriter.add_simple(&node.name, add, &[sums, moved])
    }

    fn convolve_by(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        (input, block): (ValueId, usize),
        operands: &Factors<'_>,
        weights: &Tensor,
    ) -> Result<ValueId, PassError> {
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let (merged, groups);
        let weights = match &operands.filled {
            FilledGroups::Whole => {
                groups = convolution.groups;
                weights
            }
            FilledGroups::Merged(merge) => {
                merged = merge.weights(weights, convolution.groups).map_err(wrong)?;
                groups = merge.groups;
                &merged
            }
            FilledGroups::Parts(cut) => {
                let narrow = Some(operands.narrow);
                let operands = PartOperands { input, weights, bias: None, narrow };
                return self.convolve_parts(node, convolution, cut, operands);
            }
        };
        let out = self.filter_block(node, convolution);
        let weights = pack_weights(weights, block, out).map_err(wrong)?;
        let depth = match self.is_device() {
            true => block,
            false => products_of(operands.narrow).unwrap_or(1),
        };
        let weights = interleave_by(&weights, operands.narrow, depth).map_err(wrong)?;
        let weights = self.rewriter.constant(&node.name, weights);
        let window = &convolution.window;
        let Window { strides, dilations, pads_begin, pads_end } = window.clone();
        let within = self.pads_within && matches!(operands.zero, Zero::Constant(0));
        let pads = (within && window.is_padded()).then_some([pads_begin, pads_end]);
        let operation = PackedConvolution { strides, dilations, groups, inputs: None, pads };
        self.rewriter.add_simple(&node.name, operation, &[input, weights])
    }

    /// The sums less what the zero point adds.
    fn less_zero_point(
        &mut self,
        node: &Node<Op>,
        sums: ValueId,
        (operands, out): (&Factors<'_>, usize),
    ) -> Result<ValueId, PassError> {
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let mut each = operands.sums();
        let zero = match operands.zero {
            Zero::Constant(0) => return Ok(sums),
            Zero::Constant(zero) => {
                each.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(zero as i32));
                None
            }
            Zero::Computed(zero, _) => Some(zero),
        };
        let each = operands.by_filter(&each, out).map_err(wrong)?;
        let mut offsets = self.rewriter.constant(&node.name, each);
        if let Some(zero) = zero {
            let zero = self.plain(zero, &node.name)?;
            let zero = self.rewriter.add_simple(&node.name, Reshape { shape: vec![1] }, &[zero])?;
            let multiply = Binary::new(BinaryFunction::Multiply);
            offsets = self.rewriter.add_simple(&node.name, multiply, &[offsets, zero])?;
        }
        let take = Binary::new(BinaryFunction::Subtract);
        self.rewriter.add_simple(&node.name, take, &[sums, offsets])
    }

    /// As [`Layout::padded_windows`], with a byte that is computed.
    fn padded_with(
        &mut self,
        node: &Node<Op>,
        window: &Window,
        input: ValueId,
        byte: ValueId,
    ) -> Result<ValueId, PassError> {
        let Some(pad) = window_padding(window, 0.0, &[]) else { return Ok(input) };
        let byte = self.plain(byte, &node.name)?;
        self.rewriter.add_simple(&node.name, pad, &[input, byte])
    }
}
