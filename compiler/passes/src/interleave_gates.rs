//! Brings the gates of neighbouring units of a recurrence together in the weights of its steps, so that a part of the
//! columns that a step multiplies is a part of its units: threads that divide the units then find what they need of a
//! product in what they have computed themselves.
//!
//! A product of `[rows, K]` with weights `[K, G * K]` has `G` gates for each of `K` units, gate by gate. The columns become
//! those of all gates of the first `block` units, then of the next ones, and the result is put back in the order of the model
//! by views, which cost nothing where it is read. Nothing is rounded otherwise.
//!
//! ```text
//! matmul(x, w)  =  reshape(transpose(reshape(matmul(x, w'), [rows, K / block, G, block])), [rows, G * K])
//! ```

use crate::pack_matmul::MIN_STEP_ROWS;
use crate::recurrent_steps::change_steps;
use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_machine::{NOMINAL_CACHE_BYTES_PER_NS, WAVE_THREAD_NANOSECONDS};
use hone_ops::{Graph, MatMul, Op, OpError, Operator, PackedMatMul, Reshape, Transpose};
use hone_types::Tensor;

/// Interleaves the gates of recurrences of which a step is worth two threads, in blocks of `block` units.
pub fn interleave_gates(graph: &Graph, block: usize) -> Result<Graph, PassError> {
    change_steps(graph, &|step| {
        let products = step.nodes().iter().filter_map(|(_, node)| Gates::of(step, node, block));
        let bytes: usize = products.map(|product| product.weights.tensor_type().bytes()).sum();
        let nanoseconds = bytes as u64 / NOMINAL_CACHE_BYTES_PER_NS;
        if nanoseconds < 2 * WAVE_THREAD_NANOSECONDS { Ok(None) } else { interleave(step, block) }
    })
}

/// A product with weights of several gates.
struct Gates<'a> {
    weights: &'a Tensor,
    units: usize,
    gates: usize,
}

impl<'a> Gates<'a> {
    fn of(step: &'a Graph, node: &Node<Op>, block: usize) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let weights = step.constant(right).filter(|_| step.constant(left).is_none())?;
        let [units, columns] = weights.shape()[..] else { return None };
        let gates = columns / units.max(1);
        let fits = columns == gates * units
            && units > block
            && units.is_multiple_of(block)
            && step.tensor_type(left).rank() == 2;
        fits.then_some(Self { weights, units, gates })
    }

    /// Columns of a panel of the interleaved weights, where few rows are multiplied: all gates of `block` units, or as many
    /// columns of one gate as keep a core busy.
    fn panel(&self, block: usize) -> Option<usize> {
        match self.gates {
            1 => Some(4 * block).filter(|panel| self.units.is_multiple_of(*panel)),
            gates => Some(gates * block),
        }
    }

    /// The weights with the gates of `block` units together.
    fn interleaved(&self, block: usize) -> Result<Tensor, OpError> {
        let Self { units, gates, .. } = *self;
        let apart = [units, gates, units / block, block];
        let together = Transpose { permutation: vec![0, 2, 1, 3] };
        let apart = reshape(&apart).reference(&[Some(self.weights)])?.remove(0);
        let together = together.reference(&[Some(&apart)])?.remove(0);
        Ok(reshape(&[units, units * gates]).reference(&[Some(&together)])?.remove(0))
    }
}

fn interleave(step: &Graph, block: usize) -> Result<Option<Graph>, PassError> {
    let mut rewriter = Rewriter::new(step);
    for (_, node) in step.nodes().iter() {
        let Some(product) = Gates::of(step, node, block) else {
            rewriter.copy(node)?;
            continue;
        };
        let name = &node.name;
        let weights = product
            .interleaved(block)
            .map_err(|source| PassError::Constant { node: name.clone(), source })?;
        let Gates { units, gates, .. } = product;
        let rows = step.tensor_type(node.outputs[0]).shape[0];
        let left = node.inputs[0].map(|left| rewriter.value(left));
        let panel = product.panel(block).filter(|_| rows < MIN_STEP_ROWS);
        let (operation, weights): (Op, Tensor) = match panel {
            Some(panel) => {
                let packed = PackedMatMul::pack(&weights, panel)
                    .map_err(|source| PassError::Constant { node: name.clone(), source })?;
                (PackedMatMul { columns: gates * units }.into(), packed)
            }
            None => (MatMul {}.into(), weights),
        };
        let weights = rewriter.constant(name, weights);
        let mut sums = rewriter.add(name, operation, &[left, Some(weights)])?[0];
        if gates > 1 {
            let views: [Op; 3] = [
                reshape(&[rows, units / block, gates, block]).into(),
                Transpose { permutation: vec![0, 2, 1, 3] }.into(),
                reshape(&[rows, gates * units]).into(),
            ];
            for view in views {
                sums = rewriter.add_simple(name, view, &[sums])?;
            }
        }
        rewriter.replace(node.outputs[0], sums);
    }
    Ok(Some(rewriter.finish()))
}

fn reshape(shape: &[usize]) -> Reshape {
    Reshape { shape: shape.to_vec() }
}
