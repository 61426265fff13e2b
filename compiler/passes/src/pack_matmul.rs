//! Packs the right operand of matrix products: `[.., K, N]` becomes `[.., ceil(N / n), K, n]`, so
//! that a kernel reads it contiguously, panel by panel. A constant is packed now; another operand by nodes that
//! run with the model, where enough rows share it. What has few rows or columns and is contiguous along the sum
//! already becomes dot products of rows.

use crate::recurrent_steps::change_steps;
use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{DotProducts, Graph, MatMul, Op, Pack, PackedMatMul, Reshape, Transpose};
use hone_types::{DataType, Tensor};
use std::collections::HashMap;

/// Rows from which packing an operand that is no constant is worth a pass over it.
const MIN_ROWS: usize = 16;

/// Packs right operands: constants in blocks of two vectors of `lanes` columns, others of two where they are
/// long and filled, else of one vector.
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
        if let Some(dots) = Dots::of(graph, node, working) {
            dots.multiply(&mut rewriter, node)?;
        } else if let Some((left, right, weights)) = packable(graph, node, working) {
            let packed = match packed_constants.get(&right) {
                Some(packed) => *packed,
                None => {
                    let packed = PackedMatMul::pack(weights, 2 * lanes).map_err(|source| {
                        PassError::Constant { node: node.name.clone(), source }
                    })?;
                    rewriter.constant(&node.name, packed)
                }
            };
            packed_constants.insert(right, packed);
            multiply(&mut rewriter, node, left, packed, weights.shape()[1])?;
        } else if let Some(transposed) = TransposedProduct::of(graph, node, lanes, working) {
            transposed.multiply(&mut rewriter, node, lanes)?;
        } else if let Some((left, right)) = worth_packing(graph, node, lanes, working) {
            let shape = &graph.tensor_type(right).shape;
            let columns = shape[shape.len() - 1];
            // Long panels map to the same sets of a cache: panels of two vectors are half as many.
            let is_long = shape[shape.len() - 2] >= LONG_PANEL;
            let twice = is_long && columns.is_multiple_of(2 * lanes);
            let block = if twice { 2 * lanes } else { lanes };
            let packed = pack_by_nodes(&mut rewriter, node, right, shape.len(), block)?;
            multiply(&mut rewriter, node, left, packed, columns)?;
        } else {
            rewriter.copy(node)?;
        }
    }
    Ok(rewriter.finish())
}

/// Rows of a step from which its weights are packed. A tile of fewer has more columns than a panel of two vectors: with
/// panels, an LSTM of one row takes 1.1 to 1.3 of the time on Zen 3.
pub(crate) const MIN_STEP_ROWS: usize = 4;

/// Packs the constant matrices that every step of a recurrence multiplies its rows by, in blocks of two vectors of `lanes`
/// columns. In the order in which a model stores them, a tile's columns lie a row of the matrix apart: where that is a
/// power of two all of them meet in the same sets of a cache.
pub fn pack_recurrent_weights(
    graph: &Graph,
    lanes: usize,
    working: DataType,
) -> Result<Graph, PassError> {
    change_steps(graph, &|step| {
        let is_packable = |node: &Node<Op>| {
            packable(step, node, working).is_some_and(|(left, ..)| {
                let rows = &step.tensor_type(left).shape;
                rows[..rows.len() - 1].iter().product::<usize>() >= MIN_STEP_ROWS
            })
        };
        match step.nodes().iter().any(|(_, node)| is_packable(node)) {
            true => pack_matmul_operands(step, lanes, working).map(Some),
            false => Ok(None),
        }
    })
}

/// Rows of a panel from which panels of two vectors are made: a product of 128 x 768 by 768 x 768 with panels
/// of one vector reached half of the peak; what panels of two vectors gain is not measured yet.
const LONG_PANEL: usize = 256;

/// Columns up to which a product is computed as dot products of rows: more fill a vector well enough.
const MAX_DOT_COLUMNS: usize = 4;

/// Elements of a row from which dot products of rows are worth it: adding up the lanes of a vector costs as
/// much as several vectors of products.
const MIN_DOT_LENGTH: usize = 32;

/// A product whose operands are both contiguous along the sum: few columns, or few rows
/// with a transposed matrix. The matrix is read once, where it would have to be transposed first.
struct Dots {
    /// The matrix `[.., N, K]`.
    matrix: ValueId,
    /// The few rows `[.., M, K]`, or columns `[.., K, M]`.
    few: ValueId,
    /// Whether `few` are columns, and the matrix is the left operand.
    are_columns: bool,
}

impl Dots {
    fn of(graph: &Graph, node: &Node<Op>, working: DataType) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let (a, b) = (graph.tensor_type(left), graph.tensor_type(right));
        let rank = a.rank();
        let alike = rank >= 2 && rank == b.rank() && a.shape[..rank - 2] == b.shape[..rank - 2];
        if !alike || a.dtype != working || a.shape[rank - 1] < MIN_DOT_LENGTH {
            return None;
        }
        let (rows, columns) = (a.shape[rank - 2], b.shape[rank - 1]);
        if columns <= MAX_DOT_COLUMNS && rows >= MIN_ROWS {
            return Some(Self { matrix: left, few: right, are_columns: true });
        }
        let matrix =
            transpose_source(graph, right).filter(|_| rows < MIN_ROWS && columns >= MIN_ROWS)?;
        Some(Self { matrix, few: left, are_columns: false })
    }

    fn multiply(&self, rewriter: &mut Rewriter, node: &Node<Op>) -> Result<(), PassError> {
        let (matrix, few) = (rewriter.value(self.matrix), rewriter.value(self.few));
        let product = match self.are_columns {
            true => {
                let rows = add_transpose(rewriter, node, few)?;
                rewriter.add_simple(&node.name, DotProducts {}, &[matrix, rows])?
            }
            false => {
                let product = rewriter.add_simple(&node.name, DotProducts {}, &[matrix, few])?;
                add_transpose(rewriter, node, product)?
            }
        };
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }
}

/// A product `A * Bt` of few rows with a large matrix that is stored as `B`: `B * At`, transposed, packs `A` where `B` would
/// have to be packed.
struct TransposedProduct {
    /// The matrix `[.., N, K]`.
    matrix: ValueId,
    /// The rows `[.., M, K]`.
    rows: ValueId,
}

/// How many times fewer elements have to be packed and transposed. With three times fewer, of 128 rows and a matrix of
/// 768 x 768, the product takes 0.88 of the time on an Emerald Rapids.
const MIN_SAVING: usize = 2;

impl TransposedProduct {
    fn of(graph: &Graph, node: &Node<Op>, lanes: usize, working: DataType) -> Option<Self> {
        let (rows, right) = worth_packing(graph, node, lanes, working)?;
        let matrix = transpose_source(graph, right)?;
        let shape = |value: ValueId| &graph.tensor_type(value).shape;
        let rank = shape(rows).len();
        let [m, k, n] = [shape(rows)[rank - 2], shape(rows)[rank - 1], shape(right)[rank - 1]];
        let moved = k.saturating_mul(m).saturating_add(m.saturating_mul(n));
        let saves = moved.saturating_mul(MIN_SAVING) <= k.saturating_mul(n);
        (saves && m.is_multiple_of(lanes)).then_some(Self { matrix, rows })
    }

    fn multiply(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        lanes: usize,
    ) -> Result<(), PassError> {
        let (matrix, rows) = (rewriter.value(self.matrix), rewriter.value(self.rows));
        let shape = &rewriter.target().tensor_type(rows).shape;
        let (axis, columns) = (shape.len() - 2, shape[shape.len() - 2]);
        let is_long = shape[axis + 1] >= LONG_PANEL;
        let twice = is_long && columns.is_multiple_of(2 * lanes);
        let block = if twice { 2 * lanes } else { lanes };
        let packed = rewriter.add_simple(&node.name, Pack { axis, block }, &[rows])?;
        let product =
            rewriter.add_simple(&node.name, PackedMatMul { columns }, &[matrix, packed])?;
        let product = add_transpose(rewriter, node, product)?;
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }
}

/// What a value is the transposition of, by its last two axes.
fn transpose_source(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let node = &graph.nodes()[graph.producer(value)?];
    let Transpose { permutation } = node.operation.downcast::<Transpose>()?;
    let mut swapped: Vec<usize> = (0..permutation.len()).collect();
    let last = swapped.len().checked_sub(2)?;
    swapped.swap(last, last + 1);
    node.inputs[0].filter(|_| *permutation == swapped)
}

/// Adds a node that swaps the last two axes of a matrix: another shape where one of them has extent 1.
fn add_transpose(
    rewriter: &mut Rewriter,
    node: &Node<Op>,
    value: ValueId,
) -> Result<ValueId, PassError> {
    let mut shape = rewriter.target().tensor_type(value).shape.clone();
    let rank = shape.len();
    if shape[rank - 2..].contains(&1) {
        shape.swap(rank - 2, rank - 1);
        return rewriter.add_simple(&node.name, Reshape { shape }, &[value]);
    }
    let mut permutation: Vec<usize> = (0..rank).collect();
    permutation.swap(rank - 2, rank - 1);
    rewriter.add_simple(&node.name, Transpose { permutation }, &[value])
}

/// Replaces a node by a product with a packed operand.
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
/// not already read contiguously in whole vectors.
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
        && a.shape[rank - 2] >= MIN_ROWS;
    let columns = *b.shape.last()?;
    let contiguous = columns.is_multiple_of(lanes) && columns <= 4 * lanes;
    (fits && !contiguous && columns > lanes).then_some((left, right))
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
