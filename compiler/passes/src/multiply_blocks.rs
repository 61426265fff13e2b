//! Products by weights of four or eight bits that share a scale in blocks, computed from these bits: `sum (x w s) = s * sum (x w)`
//! within a block. They take an eighth or a quarter of the memory of `f32`, and where few rows share them, a product takes the time in
//! which memory brings its weights.
//!
//! Where the left operand is bytes with a scale for each block of the same length, the sums of a block are of integers. Where
//! it is of floats, weights are converted in every run, for each tile of rows anew: this is done for few rows, and for more
//! the weights become floats when compiling.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, DequantizeBlocks, Graph, MatMul, Op, PackedBlockMatMul, Reshape,
    Transpose, WeightBits,
};
use hone_types::{DataType, Tensor};
use std::collections::HashMap;

/// Most rows of floats that are multiplied by weights in their bits.
const MAX_ROWS: usize = 4;

/// Vectors in a panel of columns, where there are as many.
const PANEL_VECTORS: usize = 4;

/// Computes products with blocks of weights from their bits, in panels of vectors of `lanes` columns; floats are of type
/// `working`.
pub fn multiply_blocks(graph: &Graph, lanes: usize, working: DataType) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    let mut packed: HashMap<(ValueId, DataType), Option<Packed>> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let found = Product::of(graph, node, working);
        let Some(product) = found else {
            rewriter.copy(node)?;
            continue;
        };
        // Weights that several products read are packed once; those that cannot be are tried once.
        let key = (product.weights.value, product.left_type());
        let operands = match packed.get(&key) {
            Some(operands) => *operands,
            None => product.weights.pack(&mut rewriter, node, lanes, product.left_type())?,
        };
        packed.insert(key, operands);
        match operands {
            Some(operands) => product.write(&mut rewriter, node, operands)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

/// A product by blocks of weights.
struct Product<'a> {
    left: Left,
    /// Shape of the left operand but for its last axis.
    outer: &'a [usize],
    weights: Weights<'a>,
}

/// The left operand.
#[derive(Clone, Copy)]
enum Left {
    /// Floats `[.., K]`.
    Floats(ValueId),
    /// Signed bytes `[.., B, L]`, and their scales `[.., B, 1]`.
    Bytes(ValueId, ValueId),
}

/// Constant weights, as [`DequantizeBlocks`] takes them.
struct Weights<'a> {
    /// What it gives.
    value: ValueId,
    bits: &'a Tensor,
    /// Bits of a weight.
    each: WeightBits,
    scales: &'a Tensor,
    zeros: Option<&'a Tensor>,
}

/// The operands of [`PackedBlockMatMul`] in the new graph.
#[derive(Clone, Copy)]
struct Packed {
    bits: ValueId,
    scales: ValueId,
    zeros: Option<ValueId>,
}

impl<'a> Product<'a> {
    fn of(graph: &'a Graph, node: &Node<Op>, working: DataType) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let weights = Weights::of(graph, right)?;
        let shape = &graph.tensor_type(left).shape;
        let (depth, outer) = shape.split_last()?;
        let whole = *depth == weights.depth() && !outer.is_empty();
        if !whole || graph.tensor_type(left).dtype != working {
            return None;
        }
        let blocks = [outer, &weights.blocks()].concat();
        let left = match bytes_of(graph, left, &blocks) {
            Some((bytes, scales)) => Left::Bytes(bytes, scales),
            None if outer.iter().product::<usize>() <= MAX_ROWS => Left::Floats(left),
            None => return None,
        };
        Some(Self { left, outer, weights })
    }

    fn left_type(&self) -> DataType {
        match self.left {
            Left::Bytes(..) => DataType::I8,
            Left::Floats(_) => self.weights.scales.dtype(),
        }
    }

    fn write(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        packed: Packed,
    ) -> Result<(), PassError> {
        let Packed { bits, scales, zeros } = packed;
        let blocks = [self.outer, &self.weights.blocks()].concat();
        let (left, left_scales) = match self.left {
            Left::Floats(left) => {
                let left = rewriter.value(left);
                let shape = Reshape { shape: blocks };
                (rewriter.add_simple(&node.name, shape, &[left])?, None)
            }
            Left::Bytes(bytes, scales) => {
                let (bytes, scales) = (rewriter.value(bytes), rewriter.value(scales));
                let shape = Reshape { shape: blocks[..blocks.len() - 1].to_vec() };
                (bytes, Some(rewriter.add_simple(&node.name, shape, &[scales])?))
            }
        };
        let operator =
            PackedBlockMatMul { columns: self.weights.bits.shape()[0], bits: self.weights.each };
        let inputs = [Some(left), Some(bits), Some(scales), left_scales, zeros];
        let product = rewriter.add(&node.name, operator, &inputs)?[0];
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }
}

/// What a matrix is that was transposed twice, as where a model stores its weights by columns and a product asks for them
/// transposed.
fn transposed_twice(graph: &Graph, value: ValueId) -> ValueId {
    let transposed = |value: ValueId| {
        let node = &graph.nodes()[graph.producer(value)?];
        let operator = node.operation.downcast::<Transpose>()?;
        (operator.permutation == [1, 0]).then_some(node.inputs[0]?)
    };
    transposed(value).and_then(transposed).unwrap_or(value)
}

impl<'a> Weights<'a> {
    fn of(graph: &'a Graph, value: ValueId) -> Option<Self> {
        let value = transposed_twice(graph, value);
        let node = &graph.nodes()[graph.producer(value)?];
        let each = node.operation.downcast::<DequantizeBlocks>()?.bits;
        let constant = |index: usize| {
            let input = node.inputs.get(index).copied().flatten();
            input.map(|input| graph.constant(input))
        };
        let (bits, scales) = (constant(0)??, constant(1)??);
        let zeros = match constant(2) {
            None => None,
            Some(zeros) => Some(zeros?),
        };
        Some(Self { value, bits, each, scales, zeros })
    }

    /// Blocks of a column, and elements of a block.
    fn blocks(&self) -> [usize; 2] {
        [self.bits.shape()[1], self.each.per_byte() * self.bits.shape()[2]]
    }

    fn depth(&self) -> usize {
        self.blocks().iter().product()
    }

    /// Adds them in the order in which they are multiplied; `None` where a block does not fill whole runs.
    fn pack(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        lanes: usize,
        left: DataType,
    ) -> Result<Option<Packed>, PassError> {
        let columns = self.bits.shape()[0];
        let mut width = PANEL_VECTORS * lanes;
        while width > lanes && width > columns {
            width /= 2;
        }
        let Some(bits) = PackedBlockMatMul::pack_bits(self.bits, self.each, width, left) else {
            return Ok(None);
        };
        let in_panels = |values: &Tensor| {
            PackedBlockMatMul::pack_blocks(values, width)
                .map_err(|source| PassError::Constant { node: node.name.clone(), source })
        };
        let (scales, zeros) = (in_panels(self.scales)?, self.zeros.map(in_panels).transpose()?);
        Ok(Some(Packed {
            bits: rewriter.constant(&node.name, bits),
            scales: rewriter.constant(&node.name, scales),
            zeros: zeros.map(|zeros| rewriter.constant(&node.name, zeros)),
        }))
    }
}

/// The signed bytes of this shape, and the scales of their blocks, whose products a value is in another shape.
fn bytes_of(graph: &Graph, value: ValueId, blocks: &[usize]) -> Option<(ValueId, ValueId)> {
    let made = |value: ValueId| graph.producer(value).map(|id| &graph.nodes()[id]);
    let reshape = made(value)?;
    reshape.operation.downcast::<Reshape>()?;
    let product = made(reshape.inputs[0]?)?;
    let binary = product.operation.downcast::<Binary>()?;
    if binary.function != BinaryFunction::Multiply {
        return None;
    }
    let mut per_block = blocks.to_vec();
    *per_block.last_mut()? = 1;
    let operands = (product.inputs[0]?, product.inputs[1]?);
    let orders = [operands, (operands.1, operands.0)];
    orders.into_iter().find_map(|(numbers, scales)| {
        let cast = made(numbers)?;
        cast.operation.downcast::<Cast>()?;
        let bytes = cast.inputs[0]?;
        let of = graph.tensor_type(bytes);
        let fits = of.dtype == DataType::I8
            && of.shape == blocks
            && graph.tensor_type(scales).shape == per_block;
        fits.then_some((bytes, scales))
    })
}
