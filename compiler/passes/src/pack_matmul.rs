//! Packs the right operand of matrix products: `[.., K, N]` becomes `[.., ceil(N / n), K, n]`, so
//! that a kernel reads it as one stream. A constant is packed now; another operand by nodes of its
//! own, where enough rows share it.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, MatMul, Op, OpError, Operator, Pack, PackedMatMul, Transpose};
use hone_types::{DataType, Tensor};
use std::collections::HashMap;

/// Rows from which packing an operand that is no constant is worth a pass over it.
const ROWS: usize = 16;

/// Packs right operands: constants in blocks of two vectors of `lanes` columns, others of one vector.
pub fn pack_matmul_operands(
    graph: &Graph,
    lanes: usize,
    working: DataType,
) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    // Constants that several products read are packed once.
    let mut packed_constants: HashMap<ValueId, ValueId> = HashMap::new();
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        if let Some((left, right, weights)) = packable(graph, node, working) {
            let packed = match packed_constants.get(&right) {
                Some(packed) => *packed,
                None => {
                    let packed = pack(weights, 2 * lanes).map_err(|source| {
                        PassError::Constant { node: node.name.clone(), source }
                    })?;
                    rewriter.constant(&node.name, packed)
                }
            };
            packed_constants.insert(right, packed);
            multiply(&mut rewriter, node, left, packed, weights.shape()[1])?;
        } else if let Some((left, right)) = worth_packing(graph, node, lanes, working) {
            let shape = &graph.tensor_type(right).shape;
            let columns = shape[shape.len() - 1];
            let packed = pack_by_nodes(&mut rewriter, node, right, shape.len(), lanes)?;
            multiply(&mut rewriter, node, left, packed, columns)?;
        } else {
            rewriter.copy(node)?;
        }
    }
    Ok(rewriter.finish())
}

/// Puts a product with a packed operand in a node's place.
fn multiply(
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    left: ValueId,
    packed: ValueId,
    columns: usize,
) -> Result<(), PassError> {
    let left = rewriter.value(left);
    let product = rewriter.add_simple(&node.name, PackedMatMul { columns }, &[left, packed])?;
    rewriter.replace(node.outputs[0], product);
    Ok(())
}

/// The operands of a product of two values whose right one, of as many axes and the same batch, is
/// not already one stream of whole vectors.
fn worth_packing(
    graph: &Graph,
    node: &Node<Op>,
    lanes: usize,
    working: DataType,
) -> Option<(ValueId, ValueId)> {
    node.operation.downcast::<MatMul>()?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let (a, b) = (graph.tensor_type(left), graph.tensor_type(right));
    let rank = a.rank();
    let fits = rank >= 2
        && rank == b.rank()
        && a.dtype == working
        && a.shape[..rank - 2] == b.shape[..rank - 2]
        && a.shape[rank - 2] >= ROWS;
    let columns = *b.shape.last()?;
    let streams = columns.is_multiple_of(lanes) && columns <= 4 * lanes;
    (fits && !streams && columns > lanes).then_some((left, right))
}

/// Adds nodes that pack an operand of `rank` axes.
fn pack_by_nodes(
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    right: ValueId,
    rank: usize,
    block: usize,
) -> Result<ValueId, PassError> {
    let mut permutation: Vec<usize> = (0..rank).collect();
    permutation.swap(rank - 2, rank - 1);
    let right = rewriter.value(right);
    let rows = rewriter.add_simple(&node.name, Transpose { permutation }, &[right])?;
    rewriter.add_simple(&node.name, Pack { axis: rank - 2, block }, &[rows])
}

/// The operands of a product that can be packed, and the constant `[K, N]` that the right one is.
fn packable<'a>(
    graph: &'a Graph,
    node: &Node<Op>,
    working: DataType,
) -> Option<(ValueId, ValueId, &'a Tensor)> {
    node.operation.downcast::<MatMul>()?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let weights = graph.constant(right)?;
    let fits = weights.shape().len() == 2
        && weights.dtype() == working
        && graph.constant(left).is_none()
        && graph.tensor_type(left).rank() >= 1;
    fits.then_some((left, right, weights))
}

fn pack(weights: &Tensor, block: usize) -> Result<Tensor, OpError> {
    let rows = Transpose { permutation: vec![1, 0] }.reference(&[Some(weights)])?;
    Ok(Pack { axis: 0, block }.reference(&[Some(&rows[0])])?.remove(0))
}
