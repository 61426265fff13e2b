//! Convolutions of integers by constant signed bytes, on packed channels, by the instructions that sum several products.
//! Of unsigned bytes minus a zero point the bytes themselves are multiplied, and padding is the zero point, so that it
//! subtracts the same from every result: `sum (x - z) w = sum x w - z * sum w`. Integers that are stored in 16 bits
//! ([`crate::narrow_integers`]) have their zero point subtracted already.

use crate::PassError;
use crate::integer_products::{NarrowFactor, are_signed_bytes};
use crate::layout::Layout;
use crate::packed_operands::pack_weights;
use crate::quantized::is_byte;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Convolution, Graph, Op, OpError, Operator, Pack, PackedConvolution,
    Window, interleave, products_of,
};
use hone_types::{DataType, Tensor};

/// The operands of such a convolution.
struct Factors<'a> {
    /// Unsigned bytes or integers of 16 bits.
    integers: ValueId,
    /// The type of the weights that they are multiplied by.
    narrow: DataType,
    /// What is subtracted from the integers.
    zero: i64,
    /// In 32 bits.
    weights: &'a Tensor,
}

impl<'a> Factors<'a> {
    fn of(graph: &'a Graph, node: &Node<Op>, convolution: &Convolution) -> Option<Self> {
        let weights = graph.constant(node.inputs[1]?)?;
        let factor = NarrowFactor::of(graph, node.inputs[0]?)?;
        let zero = match factor.zero {
            None => 0,
            Some(zero) => {
                let zero = graph.constant(zero).filter(|zero| is_byte(zero))?;
                *zero.to_i64().first()?
            }
        };
        let fits = convolution.groups == 1
            && node.inputs.get(2).copied().flatten().is_none()
            && weights.dtype() == DataType::I32
            && are_signed_bytes(weights);
        fits.then_some(Self { integers: factor.value, narrow: factor.weights, zero, weights })
    }

    /// What the zero point adds to each result: `[1, O / o, 1.., o]`.
    fn offsets(&self, block: usize) -> Result<Tensor, OpError> {
        let shape = self.weights.shape();
        let each = shape[1..].iter().product::<usize>().max(1);
        let weights = self.weights.to_i64();
        let sum = |filter: &[i64]| filter.iter().sum::<i64>().wrapping_mul(self.zero) as i32;
        let sums: Vec<i32> = weights.chunks_exact(each).map(sum).collect();
        let sums = Tensor::from_elements([sums.len()], &sums)?;
        let packed = Pack { axis: 0, block }.reference(&[Some(&sums)])?.remove(0);
        let mut full = vec![1; shape.len() + 1];
        (full[1], full[shape.len()]) = (packed.shape()[0], block);
        Ok(packed.reshaped(full)?)
    }
}

impl Layout<'_> {
    /// Rewrites a convolution of integers; says whether it did.
    pub(crate) fn integer_convolution(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let Some(operands) = Factors::of(self.graph, node, convolution) else { return Ok(false) };
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let depth = products_of(operands.narrow).unwrap_or(1);
        let channels = self.shape(operands.integers)[1];
        let block = self.block.min(channels.next_multiple_of(depth));
        let input = self.packed(operands.integers, block, &node.name)?;
        let block = self.rewriter.target().tensor_type(input).shape.last().copied().unwrap_or(1);
        if !block.is_multiple_of(depth) {
            return Ok(false);
        }
        let padding = (operands.zero as f64, &[][..]);
        let input = self.padded_windows(node, &convolution.window, input, padding)?;
        let weights = pack_weights(operands.weights, block, self.block).map_err(wrong)?;
        let weights = interleave(&weights, operands.narrow).map_err(wrong)?;
        let weights = self.rewriter.constant(&node.name, weights);
        let Window { strides, dilations, .. } = convolution.window.clone();
        let operation = PackedConvolution { strides, dilations, groups: 1, inputs: None };
        let mut sums = self.rewriter.add_simple(&node.name, operation, &[input, weights])?;
        if operands.zero != 0 {
            let offsets = operands.offsets(self.block).map_err(wrong)?;
            let offsets = self.rewriter.constant(&node.name, offsets);
            let take = Binary::new(BinaryFunction::Subtract);
            sums = self.rewriter.add_simple(&node.name, take, &[sums, offsets])?;
        }
        Ok(self.finish(node, sums))
    }
}
