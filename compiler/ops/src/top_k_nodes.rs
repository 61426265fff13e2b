//! The largest elements of long lines, by the largest of each block.
//!
//! Of blocks that are ordered by their largest element, the first `k` hold the `k` largest of the line:
//! an element of another block has `k` before it. So the search over `n` elements becomes one over
//! `n / b` blocks and one over the `k * b` elements of the blocks found, each of which may be divided
//! again. Blocks found are put in the order of the line, so that of equal elements the earlier one still
//! comes first. What is not a number is larger than every number; among blocks of the smallest it counts as infinity.

use crate::recurrent_nodes::Nodes;
use crate::{
    Binary, BinaryFunction, Gather, GatherElements, Pad, PadMode, Reduce, ReduceFunction, Reshape,
    Select, TopK, Transpose, Unary, UnaryFunction,
};
use hone_graph::{InferError, ValueId};
use hone_tensor::{Combiner, Expr};
use hone_types::Tensor;

/// Lines that are short enough to compare every element with every other.
pub(crate) const SHORT: usize = 128;

/// Elements in a line for each one that is wanted, from which blocks are worth it.
const SPARSE: usize = 8;

/// Whether a line is divided into blocks.
pub(crate) fn is_divided(extent: usize, k: usize) -> bool {
    k > 0 && extent > SHORT && extent / SPARSE >= k
}

/// Elements of a block, by the comparisons that the search over blocks and the one over candidates take.
/// Where some would be left over, the line is copied to be filled up.
fn block_of(extent: usize, k: usize) -> usize {
    let search = |extent: usize| match is_divided(extent, k) {
        true => DIVIDED * extent,
        false => extent.saturating_mul(extent),
    };
    let time = |block: &usize| {
        let copied = if extent.is_multiple_of(*block) { 0 } else { COPIED * extent };
        search(extent.div_ceil(*block)) + search(k * block) + copied
    };
    let ideal = (extent / k).isqrt().max(2);
    (ideal.div_ceil(2).max(2)..=2 * ideal).min_by_key(time).unwrap_or(ideal)
}

/// What each element of a line that is divided again counts as, in comparisons: measured, a search of 100
/// in 1,600 takes as long as comparing 400 elements with each other twice.
const DIVIDED: usize = 200;

/// What copying an element counts as, in comparisons.
const COPIED: usize = 4;

/// Nodes for the `k` first elements of lines, and their places.
pub(crate) fn divide(
    nodes: &mut Nodes<'_>,
    x: ValueId,
    own: &TopK,
) -> Result<[ValueId; 2], InferError> {
    let shape = nodes.graph.tensor_type(x).shape.clone();
    let rank = shape.len();
    let mut permutation: Vec<usize> = (0..rank).collect();
    permutation.swap(own.axis, rank - 1);
    let is_last = own.axis + 1 == rank;
    let turned = |nodes: &mut Nodes<'_>, value: ValueId| match is_last {
        true => Ok(value),
        false => nodes.add(Transpose { permutation: permutation.clone() }, &[value]),
    };
    let lines = turned(nodes, x)?;
    let mut result = nodes.graph.tensor_type(lines).shape.clone();
    let extent = shape[own.axis];
    let count = shape.iter().product::<usize>() / extent.max(1);
    let lines = nodes.reshape(lines, &[count, extent])?;
    let found = find(nodes, lines, own.k, own.largest)?;
    result[rank - 1] = own.k;
    let mut outputs = found;
    for output in &mut outputs {
        let whole = nodes.reshape(*output, &result)?;
        *output = turned(nodes, whole)?;
    }
    Ok(outputs)
}

/// The first `k` of lines `[lines, extent]` and their places `[lines, k]`.
fn find(
    nodes: &mut Nodes<'_>,
    x: ValueId,
    k: usize,
    largest: bool,
) -> Result<[ValueId; 2], InferError> {
    let own = nodes.graph.tensor_type(x).clone();
    let (lines, extent) = (own.shape[0], own.shape[1]);
    if !is_divided(extent, k) {
        return select(nodes, x, k, largest);
    }
    // What is no number comes last among the smallest: it hides no number of its block, and no filler precedes it.
    let skips_nan = own.dtype.is_float() && !largest;
    let block = block_of(extent, k);
    let blocks = extent.div_ceil(block);
    let mut x = x;
    if blocks * block != extent {
        let end = vec![0, (blocks * block - extent) as i64];
        let combiner = if largest { Combiner::Maximum } else { Combiner::Minimum };
        let Expr::Constant(mut value, _) = combiner.identity(own.dtype) else {
            return Err(no_least());
        };
        if skips_nan {
            value = f64::NAN;
        }
        let pad = Pad { begin: vec![0, 0], end, mode: PadMode::Constant, value };
        x = nodes.add(pad, &[x])?;
    }
    let parts = nodes.reshape(x, &[lines, blocks, block])?;
    let function = if largest { ReduceFunction::Maximum } else { ReduceFunction::Minimum };
    let mut numbers = parts;
    if skips_nan {
        let is_nan = nodes.add(Unary::new(UnaryFunction::IsNan), &[parts])?;
        let infinity = nodes.number(f64::INFINITY)?;
        numbers = nodes.add(Select {}, &[is_nan, infinity, parts])?;
    }
    let firsts = nodes.add(Reduce { function, axes: vec![2], keep_axes: false }, &[numbers])?;
    let [_, found] = find(nodes, firsts, k, largest)?;
    let [found, _] = select(nodes, found, k, false)?;
    let mut rows = found;
    if lines > 1 {
        let first: Vec<i64> = (0..lines).map(|line| (line * blocks) as i64).collect();
        let first = constant(nodes, &[lines, 1], &first)?;
        rows = nodes.add(Binary::new(BinaryFunction::Add), &[found, first])?;
    }
    let all = nodes.add(Reshape { shape: vec![lines * blocks, block] }, &[x])?;
    let candidates = nodes.add(Gather { axis: 0 }, &[all, rows])?;
    let candidates = nodes.reshape(candidates, &[lines, k * block])?;
    let [values, places] = find(nodes, candidates, k, largest)?;
    let size = constant(nodes, &[1, 1], &[block as i64])?;
    let which = nodes.add(Binary::new(BinaryFunction::Divide), &[places, size])?;
    let skipped = nodes.add(Binary::new(BinaryFunction::Multiply), &[which, size])?;
    let within = nodes.add(Binary::new(BinaryFunction::Subtract), &[places, skipped])?;
    let number = nodes.add(GatherElements { axis: 1 }, &[found, which])?;
    let start = nodes.add(Binary::new(BinaryFunction::Multiply), &[number, size])?;
    let place = nodes.add(Binary::new(BinaryFunction::Add), &[start, within])?;
    Ok([values, place])
}

/// The first `k` of lines by comparing all with all.
fn select(
    nodes: &mut Nodes<'_>,
    x: ValueId,
    k: usize,
    largest: bool,
) -> Result<[ValueId; 2], InferError> {
    let outputs = nodes.graph.add_node(nodes.name, TopK::new(k, 1, largest).into(), &[Some(x)])?;
    match outputs[..] {
        [values, places] => Ok([values, places]),
        _ => Err(no_least()),
    }
}

fn constant(nodes: &mut Nodes<'_>, shape: &[usize], values: &[i64]) -> Result<ValueId, InferError> {
    let tensor =
        Tensor::from_elements(shape, values).map_err(|error| InferError::new(error.to_string()))?;
    Ok(nodes.graph.add_constant(nodes.name, tensor))
}

fn no_least() -> InferError {
    InferError::new(format!("{} cannot be divided", TopK::NAME))
}
