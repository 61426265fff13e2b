//! Large windows of pooling, one axis after the other. The largest of a rectangle is the largest of its rows' largest,
//! and its mean, of the whole window or of what lies inside of the input, that of its rows' means: along each axis as many
//! elements count in all rows. A window of 7×7 elements then reads 14 for each result in place of 49.

use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Graph, Op, Pool, PoolKind, Window};

/// Elements read per result that storing a result in between and reading it again takes as long as. It is assumed. Means of 7×7
/// elements of 32 packed channels of 80×80 took 0.7 of the time in two kernels on Zen 4, one thread.
const READS_OF_STORING: f64 = 4.0;

/// Pools over one axis at a time where fewer elements are read so.
pub fn separate_pools(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some((pools, input)) = separated(graph, node).zip(node.inputs[0]) else {
            rewriter.copy(node)?;
            continue;
        };
        let mut value = rewriter.value(input);
        for pool in pools {
            value = rewriter.add_simple(&node.name, pool, &[value])?;
        }
        rewriter.replace(node.outputs[0], value);
    }
    Ok(rewriter.finish())
}

/// The pools of single axes that a node is equal to, in the order of the axes; `None` where they would not be faster.
fn separated(graph: &Graph, node: &Node<Op>) -> Option<Vec<Pool>> {
    let pool = node.operation.downcast::<Pool>()?;
    let input = graph.tensor_type(node.inputs[0]?);
    if matches!(pool.kind, PoolKind::Lp(_)) || node.outputs.len() != 1 {
        return None;
    }
    let axes: Vec<usize> =
        (0..pool.kernel.len()).filter(|axis| !is_identity(pool, *axis)).collect();
    if axes.len() < 2 {
        return None;
    }
    let output = &graph.tensor_type(node.outputs[0]).shape;
    let results = output.iter().product::<usize>() as f64;
    let mut shape = input.shape.clone();
    let mut reads = 0.0;
    for axis in &axes {
        shape[axis + 2] = output[axis + 2];
        reads +=
            shape.iter().product::<usize>() as f64 * (pool.kernel[*axis] as f64 + READS_OF_STORING);
    }
    let whole = results * (pool.kernel.iter().product::<usize>() as f64 + READS_OF_STORING);
    (reads < whole).then(|| axes.into_iter().map(|axis| along(pool, axis)).collect())
}

/// Whether a window holds one element along an axis, for each element.
fn is_identity(pool: &Pool, axis: usize) -> bool {
    let Window { strides, pads_begin, pads_end, .. } = &pool.window;
    pool.kernel[axis] == 1 && strides[axis] == 1 && pads_begin[axis] + pads_end[axis] == 0
}

/// A pool over one of its axes alone.
fn along(pool: &Pool, axis: usize) -> Pool {
    let mut kernel = vec![1; pool.kernel.len()];
    let mut window = Window::plain(kernel.len());
    kernel[axis] = pool.kernel[axis];
    window.strides[axis] = pool.window.strides[axis];
    window.dilations[axis] = pool.window.dilations[axis];
    window.pads_begin[axis] = pool.window.pads_begin[axis];
    window.pads_end[axis] = pool.window.pads_end[axis];
    Pool { kernel, window, ..pool.clone() }
}
