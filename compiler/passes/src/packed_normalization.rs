//! Instance normalization on packed channels: both moments are reductions whose lanes are channels, and
//! the rest is one product and one sum for each element.

use crate::PassError;
use crate::filler::Filler;
use crate::layout::Layout;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, InstanceNormalization, Op, Pack, Reduce, ReduceFunction, Reshape,
    Unary, UnaryFunction,
};
use hone_types::Tensor;

/// Minimum epsilon whose root is clearly a number above zero.
const MIN_EPSILON: f64 = 1e-30;

impl Layout<'_> {
    /// Rewrites an instance normalization of a packed value; says whether it did. With `a = scale /
    /// sqrt(variance + epsilon)` it is `x * a + (bias - mean * a)`.
    pub(crate) fn instance_normalization(
        &mut self,
        node: &Node<Op>,
        normalization: &InstanceNormalization,
    ) -> Result<bool, PassError> {
        let [Some(input), Some(scale), Some(bias)] = node.inputs[..] else { return Ok(false) };
        let rank = self.shape(input).len();
        if !self.is_packed(input) || self.graph.tensor_type(input).dtype != self.working {
            return Ok(false);
        }
        // The scale's filler is zero, and so is the result's, where the deviation is a number above zero.
        let is_bounded = matches!(self.filler(input), Filler::Within(..));
        let filler = (is_bounded && normalization.epsilon >= MIN_EPSILON).then_some(Filler::ZERO);
        if self.finite(node, filler).is_none() {
            return Ok(false);
        }
        let x = self.packed(input, self.block, &node.name)?;
        let scale = self.per_channel(node, scale, rank)?;
        let bias = self.per_channel(node, bias, rank)?;
        let mean = self.mean(node, x, rank)?;
        let centered = self.binary_of(node, BinaryFunction::Subtract, x, mean)?;
        let squares = self.binary_of(node, BinaryFunction::Multiply, centered, centered)?;
        let variance = self.mean(node, squares, rank)?;
        let epsilon =
            Tensor::from_f64(self.working, [1], &[normalization.epsilon]).map_err(|error| {
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

    fn mean(&mut self, node: &Node<Op>, x: ValueId, rank: usize) -> Result<ValueId, PassError> {
        let axes = (2..rank).collect();
        let mean = Reduce { function: ReduceFunction::Mean, axes, keep_axes: true };
        self.rewriter.add_simple(&node.name, mean, &[x])
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
