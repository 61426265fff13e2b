//! The nodes between convolutions, on packed channels, that compute channel by channel.

use crate::PassError;
use crate::filler::Filler;
use crate::layout::Layout;
use crate::packed_operands::OperandForm;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, Concat, Op, Pack, PackedPool, Pad, PadMode, Pool, PoolKind, Reduce, Reshape, Resize,
    ResizeMode, Slice, Unary,
};

/// More than interpolation by cubics over three axes can magnify an element.
const MAX_GAIN: f64 = 64.0;

impl Layout<'_> {
    pub(crate) fn cast(&mut self, node: &Node<Op>) -> Result<bool, PassError> {
        let Some((old, block)) = self.packed_input(node) else { return Ok(false) };
        let [from, to] = [old, node.outputs[0]].map(|value| self.graph.tensor_type(value).dtype);
        let Some(filler) = self.finite(node, self.filler(old).cast(from, to)) else {
            return Ok(false);
        };
        let input = self.packed(old, block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &[input])?;
        Ok(self.finish_with(node, output, filler))
    }

    /// A node's first input, where it is packed, and the channels in a block of it.
    fn packed_input(&self, node: &Node<Op>) -> Option<(ValueId, usize)> {
        let input = node.inputs[0]?;
        Some((input, self.block_of(input)?))
    }

    pub(crate) fn unary(&mut self, node: &Node<Op>, unary: &Unary) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        let dtype = self.graph.tensor_type(input).dtype;
        let filler = Filler::unary(unary.function, self.filler(input), dtype);
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let input = self.packed(input, block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &[input])?;
        Ok(self.finish_with(node, output, filler))
    }

    pub(crate) fn binary(&mut self, node: &Node<Op>, binary: &Binary) -> Result<bool, PassError> {
        let (Some(left), Some(right)) = (node.inputs[0], node.inputs[1]) else { return Ok(false) };
        let output_shape = self.shape(node.outputs[0]);
        let whole =
            [left, right].map(|old| self.block_of(old).filter(|_| self.shape(old) == output_shape));
        let fits = |old: ValueId| self.operand_form(old, output_shape).is_some();
        let block = match whole {
            // One of them is packed again.
            [Some(a), Some(b)] if a != b => self.result_block(node),
            [Some(block), _] | [None, Some(block)] => block,
            [None, None] => return Ok(false),
        };
        if !fits(left) || !fits(right) {
            return Ok(false);
        }
        let dtype = self.graph.tensor_type(left).dtype;
        let [a, b] = [left, right].map(|old| self.operand_filler(old, output_shape));
        let filler = Filler::binary(binary.function, a, b, dtype);
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let left = self.packed_operand(left, output_shape, block, &node.name)?;
        let right = self.packed_operand(right, output_shape, block, &node.name)?;
        let output =
            self.rewriter.add_simple(&node.name, node.operation.clone(), &[left, right])?;
        Ok(self.finish_with(node, output, filler))
    }

    /// What the filler lanes of a packed node read of an operand.
    fn operand_filler(&self, old: ValueId, output: &[usize]) -> Filler {
        match self.operand_form(old, output) {
            // It is packed anew, with another axis as its channels.
            Some(OperandForm::PerChannel(_)) if self.shape(old).len() < output.len() => {
                Filler::ZERO
            }
            Some(OperandForm::PerChannel(_)) => self.filler(old),
            _ => self.graph.constant(old).map_or(Filler::Finite, |constant| {
                let values = constant.to_f64();
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                Filler::Within(low, high)
            }),
        }
    }

    /// How an operand that broadcasts to `output` is given to a packed node.
    fn operand_form(&self, old: ValueId, output: &[usize]) -> Option<OperandForm> {
        let shape = self.shape(old);
        if output.len() < 3 || shape.len() > output.len() {
            return None;
        }
        let mut full = vec![1; output.len() - shape.len()];
        full.extend_from_slice(shape);
        if full.iter().all(|extent| *extent == 1) {
            return Some(OperandForm::Scalar);
        }
        if full[1] == 1 {
            return Some(OperandForm::PerPosition(full));
        }
        (full[1] == output[1]).then_some(OperandForm::PerChannel(full))
    }

    fn packed_operand(
        &mut self,
        old: ValueId,
        output: &[usize],
        block: usize,
        node: &str,
    ) -> Result<ValueId, PassError> {
        match self.operand_form(old, output) {
            Some(OperandForm::PerChannel(full)) if self.shape(old).len() < output.len() => {
                let plain = self.plain(old, node)?;
                let full = self.rewriter.add_simple(node, Reshape { shape: full }, &[plain])?;
                self.rewriter.add_simple(node, Pack { axis: 1, block }, &[full])
            }
            Some(OperandForm::PerChannel(_)) => self.packed(old, block, node),
            Some(OperandForm::PerPosition(mut full)) => {
                full.push(1);
                let plain = self.plain(old, node)?;
                self.rewriter.add_simple(node, Reshape { shape: full }, &[plain])
            }
            Some(OperandForm::Scalar) | None => {
                let plain = self.plain(old, node)?;
                self.rewriter.add_simple(node, Reshape { shape: vec![1] }, &[plain])
            }
        }
    }

    pub(crate) fn pool(&mut self, node: &Node<Op>, pool: &Pool) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        if node.outputs.len() != 1 {
            return Ok(false);
        }
        let dtype = self.graph.tensor_type(input).dtype;
        let filler = match pool.kind {
            PoolKind::Maximum => Some(self.filler(input)),
            PoolKind::Average => self.filler(input).or(Filler::ZERO).rounded(dtype),
            // Powers of the elements are summed before the root is taken.
            PoolKind::Lp(_) => (self.filler(input) == Filler::ZERO).then_some(Filler::ZERO),
        };
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let input = self.packed(input, block, &node.name)?;
        let Pool { kind, kernel, window, count_padding } = pool.clone();
        let packed = PackedPool { kind, kernel, window, count_padding };
        let output = self.rewriter.add_simple(&node.name, packed, &[input])?;
        Ok(self.finish_with(node, output, filler))
    }

    pub(crate) fn reduce(&mut self, node: &Node<Op>, reduce: &Reduce) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        let spatial = reduce.axes.iter().all(|axis| (2..self.shape(input).len()).contains(axis));
        if !spatial {
            return Ok(false);
        }
        let (count, dtype) = (
            reduce.axes.iter().map(|axis| self.shape(input)[*axis]).product(),
            self.graph.tensor_type(input).dtype,
        );
        let filler = Filler::reduce(reduce.function, self.filler(input), count, dtype);
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let input = self.packed(input, block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, reduce.clone(), &[input])?;
        Ok(self.finish_with(node, output, filler))
    }

    /// Spatial axes of extent 1 that come or go: one-dimensional convolutions of some exporters are two-dimensional ones
    /// between such.
    pub(crate) fn reshape(
        &mut self,
        node: &Node<Op>,
        reshape: &Reshape,
    ) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        let (from, to) = (self.shape(input), &reshape.shape[..]);
        if from.len() < 3 || to.len() < 3 {
            return Ok(false);
        }
        let long = |shape: &[usize]| -> Vec<usize> {
            shape[2..].iter().copied().filter(|extent| *extent != 1).collect()
        };
        if from[..2] != to[..2] || long(from) != long(to) {
            return Ok(false);
        }
        let filler = self.filler(input);
        let packed = self.packed(input, block, &node.name)?;
        let whole = self.rewriter.target().tensor_type(packed).shape.clone();
        let shape = [&whole[..2], &to[2..], &whole[whole.len() - 1..]].concat();
        let output = self.rewriter.add_simple(&node.name, Reshape { shape }, &[packed])?;
        Ok(self.finish_with(node, output, filler))
    }

    pub(crate) fn concat(&mut self, node: &Node<Op>, concat: &Concat) -> Result<bool, PassError> {
        let inputs: Vec<ValueId> = node.inputs.iter().copied().flatten().collect();
        let is_packed = |input: &&ValueId| self.block_of(**input).is_some();
        let packed = inputs.iter().filter(is_packed).count();
        let whole =
            inputs.iter().all(|input| self.fills_blocks(*input) && self.shape(*input).len() > 2);
        // Parts that lie otherwise and come from smaller images are packed before they are enlarged.
        let enlarged = |input: &&ValueId| is_packed(input) || self.is_enlarged(**input);
        let all = self.is_wanted_packed(node) && inputs.iter().filter(enlarged).count() > 1;
        if concat.axis != 1 || !whole || packed * 2 < inputs.len().max(1) && !all {
            return Ok(false);
        }
        let row = self.result_block(node);
        let fills_rows = inputs.iter().all(|input| self.shape(*input)[1].is_multiple_of(row));
        let block = if fills_rows { row } else { self.block };
        let mut parts = Vec::with_capacity(inputs.len());
        for input in inputs {
            parts.push(self.packed(input, block, &node.name)?);
        }
        let output = self.rewriter.add_simple(&node.name, concat.clone(), &parts)?;
        Ok(self.finish(node, output))
    }

    /// Whole blocks of channels, and any part of an image.
    pub(crate) fn slice(&mut self, node: &Node<Op>, slice: &Slice) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        let Some(blocks) = slice_of_blocks(slice, self.shape(input), block) else {
            return Ok(false);
        };
        let filler = self.filler(input);
        let input = self.packed(input, block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, blocks, &[input])?;
        Ok(self.finish_with(node, output, filler))
    }

    pub(crate) fn resize(&mut self, node: &Node<Op>, resize: &Resize) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        let shape = self.shape(input);
        let spatial =
            shape.len() > 2 && resize.sizes[..2] == shape[..2] && resize.region.is_empty();
        let enlarges = || self.is_wanted_packed(node) && self.is_enlarged(node.outputs[0]);
        let block = match self.block_of(input) {
            Some(block) => block,
            None if enlarges() => self.block,
            None => return Ok(false),
        };
        if !spatial {
            return Ok(false);
        }
        let dtype = self.graph.tensor_type(input).dtype;
        let filler = match resize.mode {
            ResizeMode::Nearest { .. } => Some(self.filler(input)),
            _ => self.filler(input).scaled(MAX_GAIN, dtype),
        };
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let packed = self.packed(input, block, &node.name)?;
        let mut resize = resize.clone();
        resize.sizes[1] = self.rewriter.target().tensor_type(packed).shape[1];
        resize.sizes.push(block);
        resize.scales.push(1.0);
        let output = self.rewriter.add_simple(&node.name, resize, &[packed])?;
        Ok(self.finish_with(node, output, filler))
    }

    /// Whether a value is a smaller image enlarged, whose channels fill their blocks.
    fn is_enlarged(&self, value: ValueId) -> bool {
        let Some(node) = self.graph.producer(value).map(|id| &self.graph.nodes()[id]) else {
            return false;
        };
        let from = node.inputs.first().copied().flatten();
        let is_smaller = from.is_some_and(|from| {
            let elements = |value| self.graph.tensor_type(value).elements();
            self.fills_blocks(from) && elements(from) < elements(value)
        });
        is_smaller && node.operation.downcast::<Resize>().is_some()
    }

    pub(crate) fn pad(&mut self, node: &Node<Op>, pad: &Pad) -> Result<bool, PassError> {
        let Some((input, block)) = self.packed_input(node) else { return Ok(false) };
        let spatial = pad.begin.len() > 2
            && pad.begin[..2].iter().chain(&pad.end[..2]).all(|amount| *amount == 0);
        if !spatial {
            return Ok(false);
        }
        let padding = match pad.mode {
            PadMode::Constant => Filler::Within(pad.value, pad.value),
            PadMode::Reflect | PadMode::Edge | PadMode::Wrap => self.filler(input),
        };
        let dtype = self.graph.tensor_type(input).dtype;
        let filler = self.filler(input).or(padding).rounded(dtype);
        let Some(filler) = self.finite(node, filler) else { return Ok(false) };
        let input = self.packed(input, block, &node.name)?;
        let mut pad = pad.clone();
        pad.begin.push(0);
        pad.end.push(0);
        let output = self.rewriter.add_simple(&node.name, pad, &[input])?;
        Ok(self.finish_with(node, output, filler))
    }
}

/// What a slice of a value of shape `[N, C, X..]` is of the value packed in blocks `[N, C / block, X.., block]`. `None`
/// where it cuts blocks, or changes the order of channels.
pub(crate) fn slice_of_blocks(slice: &Slice, shape: &[usize], block: usize) -> Option<Slice> {
    let [start, extent] = [*slice.starts.get(1)?, *slice.extents.get(1)?];
    let is_all = start == 0 && extent == shape[1];
    let is_whole = start.is_multiple_of(block) && extent.is_multiple_of(block);
    if shape.len() < 3 || slice.steps[1] != 1 || extent == 0 || !is_all && !is_whole {
        return None;
    }
    let mut blocks = slice.clone();
    blocks.starts[1] = start / block;
    blocks.extents[1] = extent.div_ceil(block);
    blocks.starts.push(0);
    blocks.steps.push(1);
    blocks.extents.push(block);
    Some(blocks)
}
