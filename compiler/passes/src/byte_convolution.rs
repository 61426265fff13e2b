//! Convolutions of unsigned bytes minus a zero point by constant signed bytes, on packed channels: the bytes
//! themselves are multiplied, by the instruction that sums fours of such products. Padding is the zero
//! point, so that it subtracts the same from every result: `sum (x - z) w = sum x w - z * sum w`.

use crate::PassError;
use crate::integer_products::minus_zero_point;
use crate::layout::Layout;
use crate::packed_operands::pack_weights;
use crate::quantized::is_byte;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Convolution, Graph, Op, OpError, Operator, Pack,
    PackedConvolution, Pad, PadMode, Window, interleave, products_of,
};
use hone_types::{DataType, Tensor};

/// The operands of such a convolution.
struct Bytes<'a> {
    bytes: ValueId,
    zero: i64,
    /// In 32 bits.
    weights: &'a Tensor,
}

impl<'a> Bytes<'a> {
    fn of(graph: &'a Graph, node: &Node<Op>, convolution: &Convolution) -> Option<Self> {
        let weights = graph.constant(node.inputs[1]?)?;
        let (extended, zero) = minus_zero_point(graph, node.inputs[0]?);
        let zero = match zero {
            None => 0,
            Some(zero) => {
                let zero = graph.constant(zero).filter(|zero| is_byte(zero))?;
                *zero.to_i64().first()?
            }
        };
        let cast = &graph.nodes()[graph.producer(extended)?];
        let bytes = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
        let fits = convolution.groups == 1
            && node.inputs.get(2).copied().flatten().is_none()
            && graph.tensor_type(bytes).dtype == DataType::U8
            && weights.dtype() == DataType::I32
            && weights.to_i64().iter().all(|weight| i8::try_from(*weight).is_ok());
        fits.then_some(Self { bytes, zero, weights })
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
    /// Rewrites a convolution of bytes; says whether it did.
    pub(crate) fn byte_convolution(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
    ) -> Result<bool, PassError> {
        let Some(operands) = Bytes::of(self.graph, node, convolution) else { return Ok(false) };
        let wrong = |source| PassError::Constant { node: node.name.clone(), source };
        let depth = products_of(DataType::I8).unwrap_or(1);
        let channels = self.shape(operands.bytes)[1];
        let block = self.block.min(channels.next_multiple_of(depth));
        let input = self.packed(operands.bytes, block, &node.name)?;
        let block = self.rewriter.target().tensor_type(input).shape.last().copied().unwrap_or(1);
        if !block.is_multiple_of(depth) {
            return Ok(false);
        }
        let input = self.padded(node, convolution, operands.zero, input)?;
        let weights = pack_weights(operands.weights, block, self.block).map_err(wrong)?;
        let weights = interleave(&weights, DataType::I8).map_err(wrong)?;
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

    fn padded(
        &mut self,
        node: &Node<Op>,
        convolution: &Convolution,
        zero: i64,
        input: ValueId,
    ) -> Result<ValueId, PassError> {
        if !convolution.window.is_padded() {
            return Ok(input);
        }
        let [begin, end] =
            [&convolution.window.pads_begin, &convolution.window.pads_end].map(|pads| {
                let pads = pads.iter().map(|pad| *pad as i64);
                [0, 0].into_iter().chain(pads).chain([0]).collect::<Vec<i64>>()
            });
        let pad = Pad { begin, end, mode: PadMode::Constant, value: zero as f64 };
        self.rewriter.add_simple(&node.name, pad, &[input])
    }
}
