//! Whether a program is a product that tensor cores compute, a convolution among them, and where its operands lie.

use super::factor::{Bound, Factor};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Expr, IteratorKind, Program, VarId,
};
use hone_types::DataType;

/// `result[batch.., row.., column..] = f(sum of a[batch.., row.., k..] * b[batch.., k.., column..])`, where rows, columns and
/// depth may have several axes each: those of pixels, of blocks of channels, of a window. A convolution's left operand
/// depends on rows and depth by sums of them, and is zero out of bounds.
pub(super) struct Form {
    /// The block that maps sums to results.
    pub(super) store: BlockId,
    /// The buffer of the sums.
    pub(super) sums: BufferId,
    /// What is multiplied.
    pub(super) factors: Factors,
    /// Axes of the rows and of the columns, outermost first.
    pub(super) across: [Vec<Axis>; 2],
    /// Axes that are neither, outermost first.
    pub(super) batch: Vec<Axis>,
    /// Extents of the depth's axes, outermost first. The last one is divided into tiles.
    pub(super) depth: Vec<usize>,
    /// The left one, which has the rows, and the right one, which has the columns.
    pub(super) operands: [Operand; 2],
    /// Out of these the left operand is zero.
    pub(super) bounds: Vec<Window>,
}

/// An axis of the results: an iterator, or one of the two parts that a quotient makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// The number of the iterator among those of the results.
    pub(super) iterator: usize,
    /// What a step along the axis adds to the iterator.
    pub(super) scale: usize,
    pub(super) extent: usize,
}

/// `low <= sum of row axes with factors + step * depth axis < high`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// By the row axes.
    pub(super) rows: Vec<i64>,
    /// The number of the depth's axis and its factor, where it depends on one.
    pub(super) depth: Option<(usize, i64)>,
    pub(super) low: i64,
    pub(super) high: i64,
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
    /// Distances of neighbours along the axes of the rows (of the left one) or columns (of the right one).
    pub(super) across: Vec<i64>,
    /// Distances of neighbours along the axes of the depth.
    pub(super) depth: Vec<i64>,
    /// Distances of neighbours along the axes of the batch.
    pub(super) batch: Vec<i64>,
}

impl Operand {
    /// The distance of neighbours along all axes of the rows or columns as one; `None` where it changes from one to the
    /// next.
    pub(super) fn distance(&self, axes: &[Axis]) -> Option<i64> {
        let mut steps = self.across.iter().zip(axes).rev();
        let (step, axis) = steps.next()?;
        let mut next = step * axis.extent as i64;
        for (outer, axis) in steps {
            if *outer != next {
                return None;
            }
            next *= axis.extent as i64;
        }
        Some(*step)
    }
}

/// An axis and the iterator that it is of, or the part of it that its quotient by `divisor` is.
struct Part {
    axis: Axis,
    var: VarId,
    divisor: usize,
}

impl Form {
    /// The form of a program that no primitive has been applied to; `None` where it is no such product. Products of `f32`
    /// count as such where `rounded` allows to leave out bits.
    pub(super) fn of(program: &Program, rounded: bool) -> Option<Self> {
        let [sum, store] = program.blocks_in_order()[..] else { return None };
        let (block, reader) = (&program.blocks[sum], &program.blocks[store]);
        let iterators = reads_alike(program, block, reader)?;
        let dtype = program.buffers[block.buffer].dtype;
        let pair = pair(program, block, dtype)?;
        let parts = parts(block, &iterators, &pair)?;
        let (left, right) = in_order(pair, &parts)?;
        let dtypes = [&left, &right].map(|factor| program.buffers[factor.buffer].dtype);
        let factors = Factors::of(dtypes, dtype, rounded)?;
        let of = |wanted: [bool; 2]| {
            let depends = |factor: &Factor, part: &Part| factor.along(part.var, part.divisor) != 0;
            let found = |part: &&Part| [depends(&left, part), depends(&right, part)] == wanted;
            parts.iter().filter(found).collect::<Vec<&Part>>()
        };
        let (rows, columns) = (of([true, false]), of([false, true]));
        let batch: Vec<&Part> = [of([true, true]), of([false, false])].concat();
        let depth = in_tiles(block, &left, &right)?;
        let steps = |factor: &Factor, parts: &[&Part]| -> Vec<i64> {
            parts.iter().map(|part| factor.along(part.var, part.divisor)).collect()
        };
        let operand = |factor: &Factor, across: &[&Part]| Operand {
            buffer: factor.buffer,
            start: factor.start,
            across: steps(factor, across),
            depth: depth.iter().map(|axis| factor.along(axis.var, 1)).collect(),
            batch: steps(factor, &batch),
        };
        if !right.bounds.is_empty() || rows.is_empty() || columns.is_empty() {
            return None;
        }
        let bounds = left.bounds.iter().map(|bound| windowed(bound, block, &rows, &depth));
        let axes = |parts: &[&Part]| parts.iter().map(|part| part.axis).collect();
        Some(Self {
            store,
            sums: block.buffer,
            factors,
            operands: [operand(&left, &rows), operand(&right, &columns)],
            bounds: bounds.collect::<Option<_>>()?,
            across: [axes(&rows), axes(&columns)],
            batch: axes(&batch),
            depth: depth.iter().map(|axis| axis.extent).collect(),
        })
    }

    /// Rows (0) or columns (1).
    pub(super) fn extent(&self, side: usize) -> usize {
        self.across[side].iter().map(|axis| axis.extent).product()
    }

    /// Products of matrices.
    pub(super) fn batches(&self) -> usize {
        self.batch.iter().map(|axis| axis.extent).product()
    }

    /// The extent that is divided into tiles of the depth.
    pub(super) fn inner(&self) -> usize {
        self.depth.last().copied().unwrap_or(1)
    }
}

/// What a block multiplies and sums from zero, in the type `dtype` of the sums.
fn pair(program: &Program, block: &Block, dtype: DataType) -> Option<[Factor; 2]> {
    let BlockBody::Reduce { combiner: Combiner::Sum, initial: Some(initial), value } = &block.body
    else {
        return None;
    };
    let zero = matches!(initial, Expr::Constant(value, _) if *value == 0.0);
    let Expr::Binary(BinaryOp::Multiply, left, right) = value else { return None };
    let pair = [Factor::of(program, left, dtype)?, Factor::of(program, right, dtype)?];
    zero.then_some(pair)
}

/// The spatial iterators of a sum of more than one step, which are `iterators` of the results, divided where a factor depends
/// on a quotient; outermost first. `None` where two divisors meet in one, or do not divide it.
fn parts(block: &Block, iterators: &[usize], pair: &[Factor; 2]) -> Option<Vec<Part>> {
    let spatial = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Spatial);
    let spatial = spatial.filter(|axis| axis.extent != 1);
    let (mut parts, mut divided) = (Vec::new(), 0);
    for (iterator, axis) in iterators.iter().copied().zip(spatial) {
        let mut divisors = pair.iter().filter_map(|factor| factor.divisor(axis.var));
        let first = divisors.next();
        let mut part = |scale: usize, extent: usize, divisor: usize| {
            parts.push(Part { axis: Axis { iterator, scale, extent }, var: axis.var, divisor });
        };
        match first {
            None => part(1, axis.extent, 1),
            Some(divisor) => {
                let scale = usize::try_from(divisor).ok()?;
                if divisors.any(|other| other != divisor) || !axis.extent.is_multiple_of(scale) {
                    return None;
                }
                divided += pair.iter().filter(|factor| factor.divisor(axis.var).is_some()).count();
                part(scale, axis.extent / scale, scale);
                part(1, scale, 1);
            }
        }
    }
    // Every quotient is one of these, and none is of a reduction's iterator or one of several of the same.
    let all = pair.iter().map(|factor| factor.divided().count()).sum::<usize>();
    (divided == all).then_some(parts)
}

/// The factors with the one first that has rows: the other one alone has the innermost axis that one of them alone has.
fn in_order(pair: [Factor; 2], parts: &[Part]) -> Option<(Factor, Factor)> {
    let [first, second] = pair;
    let last = parts.last()?;
    let has = |factor: &Factor| factor.along(last.var, last.divisor) != 0;
    match (has(&first), has(&second)) {
        (false, true) => Some((first, second)),
        (true, false) => Some((second, first)),
        _ => None,
    }
}

/// The axes of the depth with the one last along which an operand's elements are neighbours: it is divided into tiles.
fn in_tiles<'a>(
    block: &'a Block,
    left: &Factor,
    right: &Factor,
) -> Option<Vec<&'a hone_tensor::Iterator>> {
    let reduced = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Reduction);
    let mut depth: Vec<_> = reduced.filter(|axis| axis.extent != 1).collect();
    let neighbours = |axis: &&hone_tensor::Iterator| {
        left.along(axis.var, 1) == 1 || right.along(axis.var, 1) == 1
    };
    let position = depth.iter().rposition(neighbours).or(depth.len().checked_sub(1))?;
    let inner = depth.remove(position);
    depth.push(inner);
    Some(depth)
}

/// A bound by axes of rows and depth; `None` where it depends on others, or on the axis that is divided into tiles.
fn windowed(
    bound: &Bound,
    block: &Block,
    rows: &[&Part],
    depth: &[&hone_tensor::Iterator],
) -> Option<Window> {
    let mut window =
        Window { rows: vec![0; rows.len()], depth: None, low: bound.low, high: bound.high };
    for (var, factor) in &bound.terms {
        let outer = depth.split_last().map_or(&[][..], |(_, outer)| outer);
        if let Some(axis) = outer.iter().position(|axis| axis.var == *var) {
            let known = window.depth.replace((axis, *factor));
            known.is_none().then_some(())?;
            continue;
        }
        let whole = |part: &&Part| part.var == *var && part.divisor == 1 && part.axis.scale == 1;
        let known = block.iterators.iter().find(|axis| axis.var == *var)?;
        match rows.iter().position(|part| whole(part) && part.axis.extent == known.extent) {
            Some(row) => window.rows[row] = *factor,
            // It is always 0.
            None if known.extent == 1 => {}
            None => return None,
        }
    }
    Some(window)
}

/// Numbers of the iterators of `reader` that are those of the sums, of more than one step each, where it maps every sum to
/// one result; `None` where it does not.
fn reads_alike(program: &Program, block: &Block, reader: &Block) -> Option<Vec<usize>> {
    fn longer(iterators: &[hone_tensor::Iterator]) -> impl Iterator<Item = &hone_tensor::Iterator> {
        let spatial = iterators.iter().filter(|axis| axis.kind == IteratorKind::Spatial);
        spatial.filter(|axis| axis.extent != 1)
    }
    let alike = |indices: &[Expr], iterators: &[hone_tensor::Iterator]| {
        let short = |index: &Expr| {
            let mut iterators = iterators.iter();
            index.as_integer() == Some(0)
                || iterators.any(|axis| axis.extent == 1 && *index == Expr::Var(axis.var))
        };
        let indices = indices.iter().filter(|index| !short(index)).cloned();
        indices.eq(longer(iterators).map(|axis| Expr::Var(axis.var)))
    };
    let extents = longer(&block.iterators).map(|axis| axis.extent);
    let loads = reader.loads(block.buffer);
    let fits = matches!(reader.body, BlockBody::Map(_))
        && extents.eq(longer(&reader.iterators).map(|axis| axis.extent))
        && !loads.is_empty()
        && alike(&block.indices, &block.iterators)
        && loads.iter().all(|indices| alike(indices, &reader.iterators))
        && !matches!(program.buffers[block.buffer].role, hone_tensor::Role::Output(_));
    let numbers = reader.iterators.iter().enumerate().filter(|(_, axis)| axis.extent != 1);
    fits.then(|| numbers.map(|(number, _)| number).collect())
}
