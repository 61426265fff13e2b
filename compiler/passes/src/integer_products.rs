//! Products of integers by the instructions that sum several of them. Where the right operand is a constant of signed
//! bytes in 32 bits and the left one unsigned bytes extended to 32 bits, perhaps minus a zero point, the bytes
//! themselves are multiplied. What the zero point adds is one number for each column:
//! `(x - z) b = x b - z * (sum of b's column)`, whether `z` is a constant or computed. Where the left one is stored in
//! 16 bits ([`crate::narrow_integers`]), numbers of 16 bits are.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Graph, MatMul, Op, OpError, Operator, Pack, PackedMatMul,
    Reshape, Transpose, interleave, products_of,
};
use hone_types::{DataType, Tensor};

/// Multiplies integers by such instructions; `block` columns of the right operand lie side by side.
pub fn multiply_integers(graph: &Graph, block: usize) -> Result<Graph, PassError> {
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
    /// Unsigned bytes or integers of 16 bits `[.., M, K]`.
    left: ValueId,
    /// The type of the weights that it is multiplied by.
    narrow: DataType,
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
        let NarrowFactor { value: left, weights: narrow, zero } = NarrowFactor::of(graph, left)?;
        let fits = weights.dtype() == DataType::I32
            && weights.shape().len() == 2
            && weights.shape()[0].is_multiple_of(products_of(narrow)?)
            && are_signed_bytes(weights);
        fits.then_some(Self { left, narrow, zero, weights })
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
        let left = rewriter.value(self.left);
        let mut product =
            rewriter.add_simple(&node.name, PackedMatMul { columns }, &[left, packed])?;
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
        interleave(&packed[0], self.narrow)
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

/// What an instruction multiplies in place of integers of 32 bits.
pub(crate) struct NarrowFactor {
    /// Integers of 16 bits, or unsigned bytes.
    pub(crate) value: ValueId,
    /// The type of the weights that they are multiplied by.
    pub(crate) weights: DataType,
    /// The zero point: one number in 32 bits that is to be subtracted from them.
    pub(crate) zero: Option<ValueId>,
}

impl NarrowFactor {
    /// That of integers of 32 bits, where there is one.
    pub(crate) fn of(graph: &Graph, integers: ValueId) -> Option<Self> {
        if let Some(value) = extended_from(graph, integers, DataType::I16) {
            return Some(Self { value, weights: DataType::I16, zero: None });
        }
        let (extended, zero) = minus_zero_point(graph, integers);
        let value = extended_from(graph, extended, DataType::U8)?;
        Some(Self { value, weights: DataType::I8, zero })
    }
}

/// The value of type `from` that another one holds in 32 bits, if it is such a one.
pub(crate) fn extended_from(graph: &Graph, value: ValueId, from: DataType) -> Option<ValueId> {
    let node = &graph.nodes()[graph.producer(value)?];
    let narrow = node.operation.downcast::<Cast>().and(node.inputs[0])?;
    let fits =
        graph.tensor_type(value).dtype == DataType::I32 && graph.tensor_type(narrow).dtype == from;
    fits.then_some(narrow)
}

/// Whether all elements fit signed bytes.
pub(crate) fn are_signed_bytes(integers: &Tensor) -> bool {
    integers.to_i64().iter().all(|integer| i8::try_from(*integer).is_ok())
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
