//! Convolutions on packed channels: direct, depthwise, by Winograd's filtering, in parts of groups.

use crate::PassError;
use crate::dilation::{batch_to_space, space_to_batch};
use crate::filled_groups::FilledGroups;
use crate::group_parts::PartOperands;
use crate::layout::Layout;
use crate::packed_operands::{
    Operands, PackedOperands, Weights, pack_depthwise_weights, pack_weights,
};
use crate::winograd::{Extents, Subject, decide_tile, dilations};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Convolution, LARGEST_BUFFER, MatMul, Op, OpError, Operator, Pack,
    PackedConvolution, PackedDepthwise, Pad, PadMode, Reshape, Window, WinogradInput,
    WinogradMultiply, WinogradOutput, winograd_weights,
};
use hone_types::Tensor;

/// What it may take more to pack an element in parts of vectors, in multiply-adds of one vector. It is assumed: 35 channels
/// took no longer in blocks of 12 than in blocks of 16 where they were joined of two values.
const PACKING_IN_PARTS: f64 = 3.0;

impl Layout<'_> {
    pub(crate) fn convolution(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let Some(operands) = Operands::of(self.graph, node, self.working) else {
            return Ok(false);
        };
        if !padded_fits(self.shape(operands.input), &convolution.window) {
            // Lowering refuses it by name.
            return Ok(false);
        }
        let (w, groups) = (operands.shape, convolution.groups);
        let channels = self.shape(operands.input)[1];
        let depthwise = groups > 1 && groups == channels && groups == w[0];
        let per_group = [w[1], w[0] / groups];
        let bias = operands.bias.map(Weights::constant);
        let filled = match depthwise {
            true => Some(FilledGroups::Whole),
            false => FilledGroups::of(groups, per_group, self.block, bias != Some(None)),
        };
        let merged;
        let (weights, groups) = match (filled, operands.weights.constant()) {
            (None, _) => return Ok(false),
            (Some(FilledGroups::Whole), _) => (operands.weights, groups),
            // Weights that are computed are not merged: that would write zeros in every run.
            (Some(_), None) => return Ok(false),
            (Some(FilledGroups::Merged(merge)), Some(weights)) => {
                merged = merge
                    .weights(weights, groups)
                    .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
                (Weights::Constant(&merged), merge.groups)
            }
            (Some(FilledGroups::Parts(cut)), Some(weights)) => {
                let input = self.packed(operands.input, self.block, &node.name)?;
                let input = self.padded_windows(node, &convolution.window, input, (0.0, &[]))?;
                let operands = PartOperands { input, weights, bias: bias.flatten(), narrow: None };
                let output = self.convolve_parts(node, convolution, &cut, operands)?;
                return Ok(self.finish(node, output));
            }
        };
        let convolution = &Convolution { groups, ..convolution.clone() };
        let row = self.tile_rows.and_then(|rows| rows.channels(self.graph, node, convolution));
        let block = match row {
            Some(row) => row,
            None if depthwise => self.block,
            None if groups == 1 => self.input_block(operands.input, w),
            // Weights of groups are packed for blocks of one size.
            None => self.block.min(channels.next_multiple_of(self.products)),
        };
        // Blocks of no more channels than a vector has lanes are all alike to a convolution without groups.
        let known = self.any_block_of(operands.input);
        let is_read = |found: &usize| groups == 1 && block.max(*found) <= self.block;
        let block = known.filter(is_read).unwrap_or(block);
        let mut input = self.packed(operands.input, block, &node.name)?;
        let tile = match weights.constant().filter(|_| !depthwise) {
            None => None,
            Some(weights) => self.winograd_tile(node, convolution, weights, block),
        };
        let dilations = tile.and_then(|_| dilations(convolution)).unwrap_or([1, 1]);
        let mut beyond = vec![0; convolution.window.strides.len()];
        if let Some(tile) = tile {
            // The last tiles are whole: what they compute beyond the result is left out of it.
            let extents = self.shape(node.outputs[0]).iter().rev();
            let last = beyond.iter_mut().rev().zip(extents).zip(dilations.iter().rev());
            for ((beyond, extent), dilation) in last {
                *beyond = extent.next_multiple_of(tile * dilation) - extent;
            }
        }
        if depthwise || !self.pads_within {
            input = self.padded_windows(node, &convolution.window, input, (0.0, &beyond))?;
        }
        let packed = PackedOperands { input, block, weights, bias: operands.bias };
        let output = if depthwise {
            self.depthwise(node, convolution, packed)?
        } else if let Some((tile, weights)) = tile.zip(weights.constant()) {
            self.winograd(node, (tile, dilations, &convolution.window), weights, packed)?
        } else {
            self.direct(node, convolution, packed)?
        };
        Ok(self.finish(node, output))
    }

    /// Channels in a block of what a dense convolution with such weights reads: a vector's lanes, or all where there are
    /// fewer. What has to be packed for convolutions alone goes in smaller blocks where those hold fewer filler channels,
    /// which a convolution multiplies like others, and where that saves more than packing in parts of vectors takes.
    fn input_block(&self, input: ValueId, weights: &[usize]) -> usize {
        let (channels, lanes) = (self.shape(input)[1], self.block);
        if channels <= lanes || channels.is_multiple_of(lanes) || !self.wanted.contains(&input) {
            return lanes.min(channels.next_multiple_of(self.products));
        }
        let multiplied = |block: usize| channels.next_multiple_of(block);
        let sizes =
            (lanes / 2 + 1..=lanes).rev().filter(|block| block.is_multiple_of(self.products));
        let best = sizes.min_by_key(|block| multiplied(*block)).unwrap_or(lanes);
        let window = weights[2..].iter().product::<usize>();
        let vectors = weights[0].div_ceil(lanes) * window;
        let saved = (multiplied(lanes) - multiplied(best)) * vectors;
        if saved as f64 > PACKING_IN_PARTS * channels as f64 { best } else { lanes }
    }

    /// A convolution of a window of one element of one image, as the product of its weights `[1, O, C]` with the channels
    /// `[1, C, P]` of all positions.
    pub(crate) fn product_of_plain(&mut self, node: &Node<Op>) -> Result<bool, PassError> {
        let Some(operands) = Operands::of(self.graph, node, self.working) else {
            return Ok(false);
        };
        let result = self.shape(node.outputs[0]).to_vec();
        let positions = result[2..].iter().product::<usize>();
        let reshape = |layout: &mut Self, value: ValueId, shape: &[usize]| {
            let shape = shape.to_vec();
            layout.rewriter.add_simple(&node.name, Reshape { shape }, &[value])
        };
        let [rows, depth] = [operands.shape[0], operands.shape[1]];
        let channels = self.plain(operands.input, &node.name)?;
        let channels = reshape(self, channels, &[1, depth, positions])?;
        let Some(weights) = node.inputs[1] else { return Ok(false) };
        let weights = self.plain(weights, &node.name)?;
        let weights = reshape(self, weights, &[1, rows, depth])?;
        let mut product = self.rewriter.add_simple(&node.name, MatMul {}, &[weights, channels])?;
        if let Some(bias) = node.inputs.get(2).copied().flatten() {
            let bias = self.plain(bias, &node.name)?;
            let bias = reshape(self, bias, &[1, rows, 1])?;
            let add = Binary::new(BinaryFunction::Add);
            product = self.rewriter.add_simple(&node.name, add, &[product, bias])?;
        }
        let product = reshape(self, product, &result)?;
        self.finish_plain(node, product);
        Ok(true)
    }

    /// A packed input with what a window reads around it, and so many elements `beyond` its end per spatial axis,
    /// none where `beyond` is shorter; all of them are `padding`.
    pub(crate) fn padded_windows(
        &mut self,
        node: &Node<Op>,
        window: &Window,
        input: ValueId,
        (padding, beyond): (f64, &[usize]),
    ) -> Result<ValueId, PassError> {
        match window_padding(window, padding, beyond) {
            Some(pad) => self.rewriter.add_simple(&node.name, pad, &[input]),
            None => Ok(input),
        }
    }

    fn depthwise(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let weights = match operands.weights {
            Weights::Constant(weights) => {
                self.packed_constant(node, pack_depthwise_weights(weights, self.block))?
            }
            Weights::Computed(weights) => {
                let shape = self.shape(weights);
                let shape = [&shape[..1], &shape[2..]].concat();
                let weights = self.plain(weights, &node.name)?;
                let filters =
                    self.rewriter.add_simple(&node.name, Reshape { shape }, &[weights])?;
                let pack = Pack { axis: 0, block: self.block };
                self.rewriter.add_simple(&node.name, pack, &[filters])?
            }
        };
        let Window { strides, dilations, .. } = convolution.window.clone();
        self.convolve(node, PackedDepthwise { strides, dilations }, weights, operands)
    }

    fn direct(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let result = if convolution.groups == 1 { self.result_block(node) } else { self.block };
        let weights = match operands.weights {
            Weights::Constant(weights) => {
                self.packed_constant(node, pack_weights(weights, operands.block, result))?
            }
            Weights::Computed(weights) => {
                let weights = self.plain(weights, &node.name)?;
                let pack = Pack { axis: 1, block: operands.block };
                let inputs = self.rewriter.add_simple(&node.name, pack, &[weights])?;
                let pack = Pack { axis: 0, block: result };
                self.rewriter.add_simple(&node.name, pack, &[inputs])?
            }
        };
        let window = &convolution.window;
        let Window { strides, dilations, pads_begin, pads_end } = window.clone();
        let pads = (self.pads_within && window.is_padded()).then_some([pads_begin, pads_end]);
        let groups = convolution.groups;
        self.convolve(
            node,
            PackedConvolution { strides, dilations, groups, inputs: None, pads },
            weights,
            operands,
        )
    }

    /// Adds a convolution of packed operands.
    fn convolve(
        &mut self,
        node: &Node<Op>,
        operation: impl Into<Op>,
        weights: ValueId,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let mut inputs = vec![Some(operands.input), Some(weights)];
        if let Some(bias) = operands.bias {
            let block = self.block_of_packed(weights);
            inputs.push(Some(self.packed_bias(node, bias, block)?));
        }
        Ok(self.rewriter.add(&node.name, operation, &inputs)?[0])
    }

    fn winograd_tile(
        &self,
        node: &Node<Op>,
        convolution: &Convolution,
        weights: &Tensor,
        block: usize,
    ) -> Option<usize> {
        let (weights, result) = (weights.shape(), self.shape(node.outputs[0]));
        let extents = Extents::of(convolution, weights, result, self.products)?;
        let whole = weights[1].is_multiple_of(block) && self.is_float(node.outputs[0]);
        let rates = self.rates.as_ref().filter(|_| whole)?;
        let subject = Subject { convolution, weights, result, block: self.block };
        decide_tile(&subject, extents, rates, self.decisions.map(|all| (all, node.name.as_str())))
    }

    /// A convolution in Winograd's three steps; of several images where it is dilated over two axes.
    fn winograd(
        &mut self,
        node: &Node<Op>,
        (tile, dilations, window): (usize, [usize; 2], &Window),
        weights: &Tensor,
        operands: PackedOperands,
    ) -> Result<ValueId, PassError> {
        let weights = winograd_weights(weights, tile, operands.block, self.block);
        let weights = self.packed_constant(node, weights)?;
        let (dilated, mut input) = (dilations != [1, 1], operands.input);
        if dilated {
            input = space_to_batch(&mut self.rewriter, &node.name, input, dilations)?;
        }
        let tiles = self.rewriter.add_simple(&node.name, WinogradInput { tile }, &[input])?;
        let outer = window.strides.len() - dilations.len();
        let multiply = WinogradMultiply {
            strides: window.strides[..outer].to_vec(),
            dilations: window.dilations[..outer].to_vec(),
        };
        let products = self.rewriter.add_simple(&node.name, multiply, &[tiles, weights])?;
        let mut inputs = vec![Some(products)];
        if let Some(bias) = operands.bias {
            inputs.push(Some(self.packed_bias(node, bias, self.block)?));
        }
        let shape = &self.shape(node.outputs[0])[2 + outer..];
        let kept = [shape[0], shape[1]];
        let spatial = [kept[0].div_ceil(dilations[0]), kept[1].div_ceil(dilations[1])];
        let sums = self.rewriter.add(&node.name, WinogradOutput { tile, spatial }, &inputs)?[0];
        match dilated {
            true => batch_to_space(&mut self.rewriter, &node.name, sums, dilations, kept),
            false => Ok(sums),
        }
    }

    fn packed_constant(
        &mut self,
        node: &Node<Op>,
        tensor: Result<Tensor, OpError>,
    ) -> Result<ValueId, PassError> {
        let tensor =
            tensor.map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        Ok(self.rewriter.constant(&node.name, tensor))
    }

    fn packed_bias(
        &mut self,
        node: &Node<Op>,
        bias: Weights,
        block: usize,
    ) -> Result<ValueId, PassError> {
        let pack = Pack { axis: 0, block };
        match bias {
            Weights::Constant(bias) => {
                let packed = pack.reference(&[Some(bias)]);
                self.packed_constant(node, packed.map(|mut packed| packed.remove(0)))
            }
            Weights::Computed(bias) => {
                let bias = self.plain(bias, &node.name)?;
                self.rewriter.add_simple(&node.name, pack, &[bias])
            }
        }
    }
}

/// Whether a padded input is no larger than a buffer may be.
fn padded_fits(shape: &[usize], window: &Window) -> bool {
    let pads = window.pads_begin.iter().zip(&window.pads_end);
    let pads = [None, None].into_iter().chain(pads.map(Some));
    let padded = shape.iter().zip(pads).try_fold(size_of::<f64>(), |bytes, (extent, pads)| {
        let (begin, end) = pads.map_or((0, 0), |(begin, end)| (*begin, *end));
        bytes.checked_mul(extent.checked_add(begin)?.checked_add(end)?.max(1))
    });
    padded.is_some_and(|bytes| bytes <= LARGEST_BUFFER)
}

/// What adds to a packed input what a window reads around it, and so many elements `beyond` its end per spatial axis.
/// `None` where that is nothing.
pub(crate) fn window_padding(window: &Window, value: f64, beyond: &[usize]) -> Option<Pad> {
    let [begin, mut end] = [&window.pads_begin, &window.pads_end]
        .map(|pads| [&[0, 0], pads.as_slice(), &[0]].concat())
        .map(|pads| pads.into_iter().map(|pad| pad as i64).collect::<Vec<_>>());
    for (end, beyond) in end[2..].iter_mut().zip(beyond) {
        *end += *beyond as i64;
    }
    let pads = begin.iter().chain(&end).any(|pad| *pad > 0);
    pads.then_some(Pad { begin, end, mode: PadMode::Constant, value })
}
