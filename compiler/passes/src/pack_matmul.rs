//! Packs the constant right operand of matrix products: `[K, N]` becomes `[ceil(N / n), K, n]`, so
//! that a kernel reads it as one stream.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{Graph, MatMul, Op, OpError, Operator, Pack, PackedMatMul, Transpose};
use hone_types::{DataType, Tensor};

/// Packs constant right operands in blocks of `block` columns.
pub fn pack_matmul_weights(graph: &Graph, block: usize) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match packable(graph, node) {
            None => rewriter.copy(node)?,
            Some((left, weights)) => {
                let columns = weights.shape()[1];
                let packed = pack(weights, block)
                    .map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
                let packed = rewriter.constant(&node.name, packed);
                let left = rewriter.value(left);
                let product =
                    rewriter.add_simple(&node.name, PackedMatMul { columns }, &[left, packed])?;
                rewriter.replace(node.outputs[0], product);
            }
        }
    }
    Ok(rewriter.finish())
}

/// The left operand and the constant `[K, N]` of a product that can be packed.
fn packable<'a>(graph: &'a Graph, node: &Node<Op>) -> Option<(ValueId, &'a Tensor)> {
    node.operation.downcast::<MatMul>()?;
    let (left, right) = (node.inputs[0]?, node.inputs[1]?);
    let weights = graph.constant(right)?;
    let fits = weights.shape().len() == 2
        && weights.dtype() == DataType::F32
        && graph.constant(left).is_none()
        && graph.tensor_type(left).rank() >= 1;
    fits.then_some((left, weights))
}

fn pack(weights: &Tensor, block: usize) -> Result<Tensor, OpError> {
    let rows = Transpose { permutation: vec![1, 0] }.reference(&[Some(weights)])?;
    Ok(Pack { axis: 0, block }.reference(&[Some(&rows[0])])?.remove(0))
}
