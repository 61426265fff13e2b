//! Products of bytes: where the right operand is a constant of signed bytes in 32 bits and the left one
//! unsigned bytes extended to 32 bits, perhaps minus a zero point, the bytes themselves are multiplied, by
//! the instruction that sums fours of such products. What the zero point adds is one number for each
//! column: `(x - z) b = x b - z * (sum of b's column)`, whether `z` is a constant or computed.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Graph, MatMul, Op, OpError, Operator, Pack, PackedMatMul,
    Reshape, Transpose, interleave, products_of,
};
use hone_types::{DataType, Tensor};

/// Multiplies bytes as bytes; `block` columns of the right operand lie side by side.
pub fn multiply_bytes(graph: &Graph, block: usize) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match Product::of(graph, node) {
            Some(product) => product.write(&mut rewriter, node, block)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

struct Product<'a> {
    /// Unsigned bytes `[.., M, K]`.
    bytes: ValueId,
    /// The zero point: one number in 32 bits that is subtracted from them.
    zero: Option<ValueId>,
    /// Signed bytes `[K, N]`, in 32 bits.
    weights: &'a Tensor,
}

impl<'a> Product<'a> {
    fn of(graph: &'a Graph, node: &Node<Op>) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let weights = graph.constant(right)?;
        let whole = products_of(DataType::I8)?;
        let fits = weights.dtype() == DataType::I32
            && weights.shape().len() == 2
            && weights.shape()[0].is_multiple_of(whole)
            && weights.to_i64().iter().all(|weight| i8::try_from(*weight).is_ok());
        if !fits {
            return None;
        }
        let (extended, zero) = minus_zero_point(graph, left);
        let cast = graph.producer(extended).map(|id| &graph.nodes()[id])?;
        let bytes = cast.operation.downcast::<Cast>().and(cast.inputs[0])?;
        (graph.tensor_type(bytes).dtype == DataType::U8).then_some(Self { bytes, zero, weights })
    }

    fn write(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        block: usize,
    ) -> Result<(), PassError> {
        let constant = |tensor: Result<Tensor, OpError>| {
            tensor.map_err(|source| PassError::Constant { node: node.name.clone(), source })
        };
        let packed = rewriter.constant(&node.name, constant(self.packed(block))?);
        let columns = self.weights.shape()[1];
        let bytes = rewriter.value(self.bytes);
        let mut product =
            rewriter.add_simple(&node.name, PackedMatMul { columns }, &[bytes, packed])?;
        if let Some(zero) = self.zero {
            let sums = rewriter.constant(&node.name, constant(self.sums())?);
            let zero = rewriter.value(zero);
            let zero = rewriter.add_simple(&node.name, Reshape { shape: vec![1] }, &[zero])?;
            let times = Binary::new(BinaryFunction::Multiply);
            let offsets = rewriter.add_simple(&node.name, times, &[sums, zero])?;
            let take = Binary::new(BinaryFunction::Subtract);
            product = rewriter.add_simple(&node.name, take, &[product, offsets])?;
        }
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }

    fn packed(&self, block: usize) -> Result<Tensor, OpError> {
        let rows = Transpose { permutation: vec![1, 0] }.reference(&[Some(self.weights)])?;
        let packed = Pack { axis: 0, block }.reference(&[Some(&rows[0])])?;
        interleave(&packed[0], DataType::I8)
    }

    /// The sum of each column.
    fn sums(&self) -> Result<Tensor, OpError> {
        let columns = self.weights.shape()[1];
        let mut sums = vec![0i32; columns];
        for (index, weight) in self.weights.to_i64().into_iter().enumerate() {
            let sum = &mut sums[index % columns];
            *sum = sum.wrapping_add(weight as i32);
        }
        Ok(Tensor::from_elements([columns], &sums)?)
    }
}

/// A value from which a single number is subtracted, and that number; else the value itself.
pub(crate) fn minus_zero_point(graph: &Graph, value: ValueId) -> (ValueId, Option<ValueId>) {
    let split = || {
        let node = &graph.nodes()[graph.producer(value)?];
        let binary = node.operation.downcast::<Binary>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let kept = graph.tensor_type(left).shape == graph.tensor_type(value).shape;
        let one = graph.tensor_type(right).elements() == 1;
        (binary.function == BinaryFunction::Subtract && one && kept).then_some((left, Some(right)))
    };
    split().unwrap_or((value, None))
}
