//! Instance and group normalization on packed channels: both moments are reductions whose lanes are channels,
//! of groups then the means of their channels' moments, and the rest is one product and one sum for each element.

use crate::PassError;
use crate::filler::Filler;
use crate::layout::Layout;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Expand, Op, Pack, Reduce, ReduceFunction, Reshape, Unary,
    UnaryFunction, Unpack,
};
use hone_types::Tensor;

/// Minimum epsilon whose root is clearly a number above zero.
const MIN_EPSILON: f64 = 1e-30;

impl Layout<'_> {
    /// Rewrites a normalization of each channel, or of `groups` groups of channels, of a packed value; says
    /// whether it did. With `a = scale / sqrt(variance + epsilon)` it is `x * a + (bias - mean * a)`.
    pub(crate) fn normalization(
        &mut self,
        node: &Node<Op>,
        groups: Option<usize>,
        epsilon: f64,
    ) -> Result<bool, PassError> {
        let [Some(input), Some(scale), Some(bias)] = node.inputs[..] else { return Ok(false) };
        let rank = self.shape(input).len();
        if !self.is_packed(input) || self.graph.tensor_type(input).dtype != self.working {
            return Ok(false);
        }
        // The scale's filler is zero, and so is the result's, where the deviation is a number above zero.
        let is_bounded = matches!(self.filler(input), Filler::Within(..));
        let filler = (is_bounded && epsilon >= MIN_EPSILON).then_some(Filler::ZERO);
        if self.finite(node, filler).is_none() {
            return Ok(false);
        }
        let x = self.packed(input, self.block, &node.name)?;
        let scale = self.per_channel(node, scale, rank)?;
        let bias = self.per_channel(node, bias, rank)?;
        let mean = self.mean(node, x, groups)?;
        let centered = self.binary_of(node, BinaryFunction::Subtract, x, mean)?;
        let squares = self.binary_of(node, BinaryFunction::Multiply, centered, centered)?;
        let variance = self.mean(node, squares, groups)?;
        let epsilon = Tensor::from_f64(self.working, [1], &[epsilon]).map_err(|error| {
            PassError::Constant { node: node.name.clone(), source: error.into() }
        })?;
        let epsilon = self.rewriter.constant(&node.name, epsilon);
        let positive = self.binary_of(node, BinaryFunction::Add, variance, epsilon)?;
        let root = Unary::new(UnaryFunction::Sqrt);
        let deviation = self.rewriter.add_simple(&node.name, root, &[positive])?;
        let factor = self.binary_of(node, BinaryFunction::Divide, scale, deviation)?;
        let moved = self.binary_of(node, BinaryFunction::Multiply, mean, factor)?;
        let offset = self.binary_of(node, BinaryFunction::Subtract, bias, moved)?;
        let scaled = self.binary_of(node, BinaryFunction::Multiply, x, factor)?;
        let output = self.binary_of(node, BinaryFunction::Add, scaled, offset)?;
        Ok(self.finish(node, output))
    }

    /// A list of the channels' numbers as `[1, C / c, 1.., c]`.
    fn per_channel(
        &mut self,
        node: &Node<Op>,
        list: ValueId,
        rank: usize,
    ) -> Result<ValueId, PassError> {
        let plain = self.plain(list, &node.name)?;
        let mut shape = vec![1; rank];
        shape[1] = self.shape(list).iter().product();
        let full = self.rewriter.add_simple(&node.name, Reshape { shape }, &[plain])?;
        self.rewriter.add_simple(&node.name, Pack { axis: 1, block: self.block }, &[full])
    }

    /// The mean of each channel, or of the group that it belongs to, of a packed value: `[N, C / c, 1.., c]`.
    fn mean(
        &mut self,
        node: &Node<Op>,
        x: ValueId,
        groups: Option<usize>,
    ) -> Result<ValueId, PassError> {
        let rank = self.rewriter.target().tensor_type(x).shape.len() - 1;
        let mean = |axes| Reduce { function: ReduceFunction::Mean, axes, keep_axes: true };
        let each = self.rewriter.add_simple(&node.name, mean((2..rank).collect()), &[x])?;
        let Some(groups) = groups else { return Ok(each) };
        // Channels of a group have equally many elements: the mean of their means is that of all.
        let shape = self.shape(node.outputs[0]);
        let (batch, channels) = (shape[0], shape[1]);
        let unpack = Unpack { axis: 1, extent: channels };
        let plain = self.rewriter.add_simple(&node.name, unpack, &[each])?;
        let grouped = vec![batch, groups, channels / groups];
        let reshape = Reshape { shape: grouped.clone() };
        let plain = self.rewriter.add_simple(&node.name, reshape, &[plain])?;
        let means = self.rewriter.add_simple(&node.name, mean(vec![2]), &[plain])?;
        let expand = Expand { shape: grouped };
        let means = self.rewriter.add_simple(&node.name, expand, &[means])?;
        let mut shape = vec![1; rank];
        (shape[0], shape[1]) = (batch, channels);
        let means = self.rewriter.add_simple(&node.name, Reshape { shape }, &[means])?;
        self.rewriter.add_simple(&node.name, Pack { axis: 1, block: self.block }, &[means])
    }

    fn binary_of(
        &mut self,
        node: &Node<Op>,
        function: BinaryFunction,
        left: ValueId,
        right: ValueId,
    ) -> Result<ValueId, PassError> {
        self.rewriter.add_simple(&node.name, Binary::new(function), &[left, right])
    }
}
