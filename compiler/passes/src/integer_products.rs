//! Products of integers by the instructions that sum several of them. Where the right operand is a constant of
//! bytes in 32 bits and the left one unsigned bytes (for devices also signed ones) extended to 32 bits, perhaps minus a zero
//! point, the bytes themselves are multiplied. What the zero point adds is one number for each column:
//! `(x - z) b = x b - z * (sum of b's column)`, whether `z` is a constant or computed. Columns of unsigned bytes minus a
//! zero point do not fit signed bytes; they are moved by a number `c` each, and what that adds is one number for each
//! row: `x b = x (b - c) + c * (sum of x's row)`. Where the left one is stored in 16 bits ([`crate::narrow_integers`]),
//! numbers of 16 bits are multiplied.

use crate::{PassError, Rewriter};
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Cast, Graph, MatMul, Op, OpError, Operator, Pack, PackedMatMul, Reduce,
    ReduceFunction, Reshape, Transpose, interleave, interleave_by, products_of,
};
use hone_types::{DataType, Tensor};

/// Multiplies integers by such instructions; `block` columns of the right operand lie side by side.
pub fn multiply_integers(graph: &Graph, block: usize) -> Result<Graph, PassError> {
    run(graph, Form::Interleaved { block })
}

/// The same for devices that multiply bytes of both kinds by signed ones and copy `chunk` neighbours along the depth at once:
/// the right operand lies transposed, and products of other depths stay as they are.
pub fn multiply_device_integers(graph: &Graph, chunk: usize) -> Result<Graph, PassError> {
    run(graph, Form::Transposed { chunk })
}

/// How the right operand lies.
#[derive(Clone, Copy)]
enum Form {
    /// `block` columns beside each other, of each the products that an instruction sums.
    Interleaved { block: usize },
    /// Column by column, whose depth is a multiple of `chunk`.
    Transposed { chunk: usize },
}

impl Form {
    /// The left operands that are multiplied.
    fn bytes(self) -> Bytes {
        match self {
            Self::Interleaved { .. } => Bytes::Unsigned,
            Self::Transposed { .. } => Bytes::Any,
        }
    }
}

fn run(graph: &Graph, form: Form) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        match Product::of(graph, node, form) {
            Some(product) => product.write(&mut rewriter, node)?,
            None => rewriter.copy(node)?,
        }
    }
    Ok(rewriter.finish())
}

struct Product<'a> {
    form: Form,
    /// Bytes or integers of 16 bits `[.., M, K]`.
    left: ValueId,
    /// The axes of the left operand.
    rank: usize,
    /// The type of the weights that it is multiplied by.
    narrow: DataType,
    /// The zero point: one number in 32 bits that is subtracted from them.
    zero: Option<ValueId>,
    /// Bytes `[K, N]`, perhaps minus a zero point, in 32 bits.
    weights: &'a Tensor,
    /// For each column what is subtracted from its weights before they are narrowed.
    offsets: Vec<i32>,
}

impl<'a> Product<'a> {
    fn of(graph: &'a Graph, node: &Node<Op>, form: Form) -> Option<Self> {
        node.operation.downcast::<MatMul>()?;
        let (left, right) = (node.inputs[0]?, node.inputs[1]?);
        let weights = graph.constant(right)?;
        let NarrowFactor { value: left, weights: narrow, zero } =
            NarrowFactor::of(graph, left, form.bytes())?;
        let step = match form {
            Form::Interleaved { .. } => products_of(narrow)?,
            Form::Transposed { chunk } => chunk,
        };
        let fits = weights.dtype() == DataType::I32
            && weights.shape().len() == 2
            && weights.shape()[0].is_multiple_of(step);
        let offsets = column_offsets(weights, narrow).filter(|_| fits)?;
        let rank = graph.tensor_type(left).rank();
        Some(Self { form, left, rank, narrow, zero, weights, offsets })
    }

    fn write(&self, rewriter: &mut Rewriter, node: &Node<Op>) -> Result<(), PassError> {
        let constant = |tensor: Result<Tensor, OpError>| {
            tensor.map_err(|source| PassError::Constant { node: node.name.clone(), source })
        };
        let columns = self.weights.shape()[1];
        let packed = self.packed();
        let packed = rewriter.constant(&node.name, constant(packed)?);
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
        if self.offsets.iter().any(|offset| *offset != 0) {
            let moved = self.moved(rewriter, node, left)?;
            let add = Binary::new(BinaryFunction::Add);
            product = rewriter.add_simple(&node.name, add, &[product, moved])?;
        }
        rewriter.replace(node.outputs[0], product);
        Ok(())
    }

    /// The sum of each row of the left operand times what each column was moved by.
    fn moved(
        &self,
        rewriter: &mut Rewriter,
        node: &Node<Op>,
        left: ValueId,
    ) -> Result<ValueId, PassError> {
        let offsets = Tensor::from_elements([self.offsets.len()], &self.offsets);
        let offsets = offsets.map_err(OpError::from);
        let offsets =
            offsets.map_err(|source| PassError::Constant { node: node.name.clone(), source })?;
        let offsets = rewriter.constant(&node.name, offsets);
        let extend = Cast { to: DataType::I32 };
        let extended = rewriter.add_simple(&node.name, extend, &[left])?;
        let axes = vec![self.rank.saturating_sub(1)];
        let sum = Reduce { function: ReduceFunction::Sum, axes, keep_axes: true };
        let sums = rewriter.add_simple(&node.name, sum, &[extended])?;
        rewriter.add_simple(&node.name, Binary::new(BinaryFunction::Multiply), &[sums, offsets])
    }

    fn packed(&self) -> Result<Tensor, OpError> {
        let columns = self.offsets.len();
        let moved = self.weights.to_i64().into_iter().enumerate();
        let moved = moved.map(|(index, weight)| weight as i32 - self.offsets[index % columns]);
        let moved = Tensor::from_elements(self.weights.shape(), &moved.collect::<Vec<i32>>())?;
        let rows = Transpose { permutation: vec![1, 0] }.reference(&[Some(&moved)])?;
        let block = match self.form {
            Form::Interleaved { block } => block_of(columns, block),
            Form::Transposed { .. } => columns.max(1),
        };
        let packed = Pack { axis: 0, block }.reference(&[Some(&rows[0])])?;
        match self.form {
            Form::Interleaved { .. } => interleave(&packed[0], self.narrow),
            Form::Transposed { .. } => {
                interleave_by(&packed[0], self.narrow, self.weights.shape()[0])
            }
        }
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

/// Columns that lie side by side: `most`, or so many fewer that several blocks, or one without gaps, hold them all.
/// The columns of a single block with a gap are fewer than the lanes that an instruction computes.
fn block_of(columns: usize, most: usize) -> usize {
    let mut block = most;
    while block > columns && block > MIN_BLOCK {
        block /= 2;
    }
    block
}

/// Least columns that lie side by side: those of the narrowest vectors.
const MIN_BLOCK: usize = 4;

/// What is to be subtracted from each column's weights so that they fit the type `narrow`: nothing where they do.
/// `None` where the numbers of a column lie too far apart.
pub(crate) fn column_offsets(weights: &Tensor, narrow: DataType) -> Option<Vec<i32>> {
    let columns = *weights.shape().last()?;
    let mut ends = vec![(i64::MAX, i64::MIN); columns];
    for (index, weight) in weights.to_i64().into_iter().enumerate() {
        let (least, most) = &mut ends[index % columns];
        (*least, *most) = ((*least).min(weight), (*most).max(weight));
    }
    let offset = |(least, most): (i64, i64)| match narrow {
        DataType::I16 => (least >= -BYTES && most <= BYTES).then_some(0),
        _ if least >= i64::from(i8::MIN) && most <= i64::from(i8::MAX) => Some(0),
        _ => i32::try_from(least - i64::from(i8::MIN)).ok().filter(|_| most - least <= BYTES),
    };
    ends.into_iter().map(offset).collect()
}

/// The largest difference of two bytes: the most that a byte minus a zero point may be.
pub(crate) const BYTES: i64 = 255;

/// The bytes that a machine multiplies by signed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// Unsigned ones alone.
    Unsigned,
    /// Signed ones, too.
    Any,
}

impl Bytes {
    /// Such bytes that a value holds in 32 bits, and their type.
    pub(crate) fn extended(self, graph: &Graph, value: ValueId) -> Option<(ValueId, DataType)> {
        let types: &[DataType] = match self {
            Self::Unsigned => &[DataType::U8],
            Self::Any => &[DataType::U8, DataType::I8],
        };
        types.iter().find_map(|from| Some((extended_from(graph, value, *from)?, *from)))
    }
}

/// What an instruction multiplies in place of integers of 32 bits.
pub(crate) struct NarrowFactor {
    /// Integers of 16 bits, or bytes.
    pub(crate) value: ValueId,
    /// The type of the weights that they are multiplied by.
    pub(crate) weights: DataType,
    /// The zero point: one number in 32 bits that is to be subtracted from them.
    pub(crate) zero: Option<ValueId>,
}

impl NarrowFactor {
    /// That of integers of 32 bits, where there is one.
    pub(crate) fn of(graph: &Graph, integers: ValueId, bytes: Bytes) -> Option<Self> {
        if let Some(value) = extended_from(graph, integers, DataType::I16) {
            return Some(Self { value, weights: DataType::I16, zero: None });
        }
        let (extended, zero) = minus_zero_point(graph, integers);
        let (value, _) = bytes.extended(graph, extended)?;
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
