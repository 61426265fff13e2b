//! Whether a program is a product that tensor cores compute, and where its operands lie.

use crate::linear::{Linear, flatten};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Expr, IteratorKind, Program, VarId,
};
use hone_types::DataType;

/// `result[batch.., row, column] = f(sum of a[batch.., row, k] * b[batch.., k, column])`.
pub(super) struct Form {
    /// The block that maps sums to results.
    pub(super) store: BlockId,
    /// The buffer of the sums.
    pub(super) sums: BufferId,
    /// What is multiplied.
    pub(super) factors: Factors,
    /// Numbers of the rows' and of the columns' iterator.
    pub(super) axes: [usize; 2],
    /// Extents of rows, columns and depth.
    pub(super) extents: [usize; 3],
    /// Numbers and extents of the other iterators, outermost first.
    pub(super) batch: Vec<(usize, usize)>,
    /// The left one, which has the rows, and the right one, which has the columns.
    pub(super) operands: [Operand; 2],
}

/// What tensor cores multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factors {
    /// Float16, summed in `f32`.
    Half,
    /// Bfloat16, summed in `f32`.
    BFloat,
    /// `f32`, of which 10 bits of the fraction count, summed in `f32`.
    TensorFloat,
    /// Bytes, signed (of the left operand, of the right one) or not, summed in 32 bits.
    Bytes([bool; 2]),
}

impl Factors {
    /// Of operands of these types and sums of that one; `f32` only where `rounded` allows to leave bits out.
    fn of(operands: [DataType; 2], sum: DataType, rounded: bool) -> Option<Self> {
        let signed = |dtype| match dtype {
            DataType::I8 => Some(true),
            DataType::U8 => Some(false),
            _ => None,
        };
        match (operands, sum) {
            ([DataType::F16, DataType::F16], DataType::F32) => Some(Self::Half),
            ([DataType::BF16, DataType::BF16], DataType::F32) => Some(Self::BFloat),
            ([DataType::F32, DataType::F32], DataType::F32) if rounded => Some(Self::TensorFloat),
            ([left, right], DataType::I32) => Some(Self::Bytes([signed(left)?, signed(right)?])),
            _ => None,
        }
    }

    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Half | Self::BFloat => 2,
            Self::TensorFloat => 4,
            Self::Bytes(_) => 1,
        }
    }
}

/// Where an operand's elements lie, in elements.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) buffer: BufferId,
    /// The first element that is read.
    pub(super) start: i64,
    /// Distance of neighbours along rows (of the left one) or columns (of the right one).
    pub(super) across: i64,
    /// Distance of neighbours along the depth.
    pub(super) depth: i64,
    /// Distance of neighbours along each axis of the batch.
    pub(super) batch: Vec<i64>,
}

/// A factor of the sum, by the iterators it depends on.
struct Factor {
    buffer: BufferId,
    start: i64,
    steps: Vec<(VarId, i64)>,
}

impl Factor {
    fn step(&self, var: VarId) -> i64 {
        self.steps.iter().find(|(other, _)| *other == var).map_or(0, |(_, step)| *step)
    }
}

impl Form {
    /// The form of a program that no primitive has been applied to; `None` where it is no such product. Products of `f32`
    /// count as such where `rounded` allows to leave out bits.
    pub(super) fn of(program: &Program, rounded: bool) -> Option<Self> {
        let [sum, store] = program.blocks_in_order()[..] else { return None };
        let (block, reader) = (&program.blocks[sum], &program.blocks[store]);
        let BlockBody::Reduce { combiner: Combiner::Sum, initial: Some(initial), value } =
            &block.body
        else {
            return None;
        };
        let zero = matches!(initial, Expr::Constant(value, _) if *value == 0.0);
        if !zero || !reads_alike(program, block, reader) {
            return None;
        }
        let Expr::Binary(BinaryOp::Multiply, left, right) = value else { return None };
        let sum = program.buffers[block.buffer].dtype;
        let (left, right) = (factor(program, left, sum)?, factor(program, right, sum)?);
        let of_kind = |kind| block.iterators.iter().filter(move |axis| axis.kind == kind);
        let [depth] = of_kind(IteratorKind::Reduction).collect::<Vec<_>>()[..] else { return None };
        let spatial: Vec<_> = of_kind(IteratorKind::Spatial).collect();
        // The innermost axis of one factor alone: columns are the last axis of all.
        let only = |a: &Factor, b: &Factor| {
            let of_one =
                |axis: &&hone_tensor::Iterator| a.step(axis.var) != 0 && b.step(axis.var) == 0;
            spatial.iter().rposition(of_one)
        };
        let columns = spatial.len().checked_sub(1)?;
        let (left, right) = match only(&right, &left) == Some(columns) {
            true => (left, right),
            false => (right, left),
        };
        let rows = only(&left, &right).filter(|_| only(&right, &left) == Some(columns))?;
        let dtypes = [&left, &right].map(|factor| program.buffers[factor.buffer].dtype);
        let factors = Factors::of(dtypes, sum, rounded)?;
        let others = (0..spatial.len()).filter(|axis| *axis != rows && *axis != columns);
        let batch: Vec<(usize, usize)> = others.map(|axis| (axis, spatial[axis].extent)).collect();
        let operand = |factor: &Factor, axis: usize| Operand {
            buffer: factor.buffer,
            start: factor.start,
            across: factor.step(spatial[axis].var),
            depth: factor.step(depth.var),
            batch: batch.iter().map(|(axis, _)| factor.step(spatial[*axis].var)).collect(),
        };
        Some(Self {
            store,
            sums: block.buffer,
            factors,
            axes: [rows, columns],
            extents: [spatial[rows].extent, spatial[columns].extent, depth.extent],
            operands: [operand(&left, rows), operand(&right, columns)],
            batch,
        })
    }
}

/// Whether `reader` maps every sum to one result, over the same axes.
fn reads_alike(program: &Program, block: &Block, reader: &Block) -> bool {
    let spatial = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Spatial);
    let alike = |indices: &[Expr], iterators: &[&hone_tensor::Iterator]| {
        indices.len() == iterators.len()
            && indices.iter().zip(iterators).all(|(index, axis)| {
                *index == Expr::Var(axis.var) || (axis.extent == 1 && index.as_integer() == Some(0))
            })
    };
    let spatial: Vec<_> = spatial.collect();
    let read: Vec<_> = reader.iterators.iter().collect();
    let extents = spatial.iter().map(|axis| axis.extent).eq(read.iter().map(|axis| axis.extent));
    let loads = reader.loads(block.buffer);
    matches!(reader.body, BlockBody::Map(_))
        && extents
        && !loads.is_empty()
        && alike(&block.indices, &spatial)
        && loads.iter().all(|indices| alike(indices, &read))
        && !matches!(program.buffers[block.buffer].role, hone_tensor::Role::Output(_))
}

/// A load of the type of the sums, or widened to it, whose index is a sum of iterators.
fn factor(program: &Program, expr: &Expr, sum: DataType) -> Option<Factor> {
    let load = match expr {
        Expr::Cast(to, load) if *to == sum => load,
        other => other,
    };
    let Expr::Load(buffer, indices) = load else { return None };
    let linear = Linear::of(&flatten(indices, &program.buffers[*buffer].shape)?);
    let steps = linear.terms.iter().map(|(term, factor)| match term {
        Expr::Var(var) => Some((*var, *factor)),
        _ => None,
    });
    Some(Factor { buffer: *buffer, start: linear.constant, steps: steps.collect::<Option<_>>()? })
}
