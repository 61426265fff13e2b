//! Operators whose shape is decided by values that a run brings: compiled for the shape that the model declares, with
//! a condition to which the run is held (`held.rs`). Places are computed from the values; elements are gathered.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::held::{members, subsets};
use crate::onnx::node::Node;
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, Gather, PadMode, ReduceFunction, UnaryFunction as U};
use hone_types::DataType;

/// Whether an input is there and its values are not known when compiling.
pub(super) fn is_open(builder: &Builder, node: &Node, place: usize) -> bool {
    node.optional(place)
        .is_some_and(|own| builder.tensor(own).is_none() && builder.tensor_type(own).elements() > 0)
}

/// The declared shape of a `Reshape`. Its input may also say 0 (as before) and, once, -1 (what is left).
pub(super) fn reshape(
    builder: &mut Builder,
    node: &mut Node,
    input: Operand,
) -> Result<Vec<usize>, NodeError> {
    let allow_zero = node.flag("allowzero", false)?;
    let (target, from) = (node.input(1)?, builder.shape(input));
    let count = builder.tensor_type(target).elements();
    let shape = node.declared(0).filter(|shape| shape.len() == count);
    let shape = shape.ok_or_else(|| builder.not_constant(node, 1))?;
    let allowed = shape.iter().enumerate().map(|(axis, extent)| {
        let mut values = vec![*extent as i64, -1];
        if !allow_zero && from.get(axis) == Some(extent) {
            values.push(0);
        }
        values
    });
    let allowed: Vec<Vec<i64>> = allowed.collect();
    builder.hold(node, 1, &allowed)?;
    let open = builder.with_scalar(B::Equal, target, -1.0)?;
    let open = builder.cast(open, DataType::I64)?;
    let open = builder.reduce(ReduceFunction::Sum, open, vec![0], false)?;
    let once = builder.with_scalar(B::LessEqual, open, 1.0)?;
    builder.require(once, "the shape has -1 more than once")?;
    Ok(shape)
}

/// The declared shape of an `Expand` that a run decides; `None` where it is known.
pub(super) fn expand(
    builder: &mut Builder,
    node: &Node,
    input: Operand,
) -> Result<Option<Vec<usize>>, NodeError> {
    if !is_open(builder, node, 1) {
        return Ok(None);
    }
    let from = builder.shape(input);
    let count = builder.tensor_type(node.input(1)?).elements();
    let shape = node.declared(0).filter(|shape| shape.len() == count.max(from.len()));
    let shape = shape.ok_or_else(|| builder.not_constant(node, 1))?;
    let ahead = shape.len() - from.len();
    let allowed = (shape.len() - count..shape.len()).map(|axis| {
        let extent = shape[axis];
        let own = axis.checked_sub(ahead).map_or(1, |own| from[own]);
        if own == extent { vec![extent as i64, 1] } else { vec![extent as i64] }
    });
    let allowed: Vec<Vec<i64>> = allowed.collect();
    builder.hold(node, 1, &allowed)?;
    Ok(Some(shape))
}

/// What the declared shape of a `Tile` says of the repetitions.
pub(super) fn repeats(from: &[usize], node: &Node) -> Option<Vec<Option<i64>>> {
    let shape = node.declared(0).filter(|shape| shape.len() == from.len())?;
    let repeats = from.iter().zip(&shape).map(|(own, extent)| match own {
        0 => Some(None),
        own => extent.is_multiple_of(*own).then_some(Some((extent / own) as i64)),
    });
    repeats.collect()
}

/// The shape of a `Squeeze` whose axes a run decides.
pub(super) fn squeezed(
    builder: &mut Builder,
    node: &Node,
    from: &[usize],
) -> Result<Vec<usize>, NodeError> {
    let target = node.declared(0).ok_or_else(|| builder.not_constant(node, 1))?;
    seen_with_ones(builder, node, from, &target)?;
    Ok(target)
}

/// The shape of an `Unsqueeze` whose axes a run decides.
pub(super) fn unsqueezed(
    builder: &mut Builder,
    node: &Node,
    from: &[usize],
) -> Result<Vec<usize>, NodeError> {
    let target = node.declared(0).ok_or_else(|| builder.not_constant(node, 1))?;
    seen_with_ones(builder, node, &target, from)?;
    Ok(target)
}

/// Holds the axes in input 1 to those of extent 1 without which `more` is `less`.
fn seen_with_ones(
    builder: &mut Builder,
    node: &Node,
    more: &[usize],
    less: &[usize],
) -> Result<(), NodeError> {
    let axes = node.input(1)?;
    let sets = subsets(more.len(), builder.tensor_type(axes).elements());
    let mut sets = sets.ok_or_else(|| builder.not_constant(node, 1))?;
    sets.retain(|set| {
        let named = members(*set);
        let left = more.iter().enumerate().filter(|(axis, _)| !named.contains(axis));
        named.iter().all(|axis| more[*axis] == 1) && left.map(|(_, own)| own).eq(less)
    });
    let key = builder.axes_key(axes, more.len())?;
    let name = node.input_names.get(1).cloned().unwrap_or_default();
    let message = format!("the axes in input '{name}' do not make {more:?} and {less:?} the same");
    builder.require_key(key, &sets, &message)
}

/// What `make` gives for the axis, of `rank`, that a run names in `place`.
pub(super) fn by_axis(
    builder: &mut Builder,
    place: Operand,
    rank: usize,
    make: &mut dyn FnMut(&mut Builder, usize) -> Step,
) -> Step {
    if builder.tensor_type(place).elements() != 1 {
        return Err(NodeError::invalid("an axis is no single number"));
    }
    let key = builder.axes_key(place, rank)?;
    let keys = subsets(rank, 1).unwrap_or_default();
    let message = format!("there is no such axis: there are {rank}");
    builder.choose(key, &keys, &message, &mut |builder, set| {
        make(builder, set.trailing_zeros() as usize)
    })
}

/// The triangle of matrices from a diagonal on that a run names.
pub(super) fn triangle(b: &mut Builder, x: Operand, diagonal: Operand, upper: bool) -> Step {
    let shape = b.shape(x);
    let Some((_, [rows, columns])) = shape.split_last_chunk::<2>() else {
        return Err(NodeError::invalid(format!("shape {shape:?} has no matrices")));
    };
    if b.tensor_type(diagonal).elements() != 1 {
        return Err(NodeError::invalid("the diagonal is no single number"));
    }
    let diagonal = b.cast(diagonal, DataType::I64)?;
    let diagonal = b.reshape(diagonal, vec![1, 1])?;
    // Beyond these all of a matrix is on one side; sums stay small.
    let (least, most) = (-(*rows as f64) - 1.0, *columns as f64 + 1.0);
    let diagonal = clamped(b, diagonal, least, most)?;
    let rows = counted(b, *rows)?;
    let rows = b.reshape(rows, vec![shape[shape.len() - 2], 1])?;
    let first = b.add(rows, diagonal)?;
    let columns = counted(b, *columns)?;
    let inside = b.binary(if upper { B::GreaterEqual } else { B::LessEqual }, columns, first)?;
    let zero = b.scalar(b.dtype(x), 0.0)?;
    b.select(inside, x, zero)
}

/// `start + index * step` for the declared number of indices, which must be that of the range.
pub(super) fn range(b: &mut Builder, node: &Node, longest: f64) -> Step {
    let operands = [node.input(0)?, node.input(1)?, node.input(2)?];
    let count = node.declared(0).filter(|shape| shape.len() == 1 && shape[0] as f64 <= longest);
    let count = count.ok_or_else(|| b.not_constant(node, 1))?[0];
    let dtype = b.dtype(operands[0]);
    // Sums of floats are rounded once.
    let wide = if dtype.is_float() { DataType::F64 } else { DataType::I64 };
    let mut bounds = Vec::new();
    for operand in operands {
        if b.tensor_type(operand).elements() != 1 {
            return Err(NodeError::invalid("a bound of the range is no single number"));
        }
        let operand = b.cast(operand, wide)?;
        bounds.push(b.reshape(operand, Vec::new())?);
    }
    let (start, limit, step) = (bounds[0], bounds[1], bounds[2]);
    let [first, last, by] = [start, limit, step].map(|own| b.cast(own, DataType::F64));
    let (last, by) = (last?, by?);
    let distance = b.subtract(last, first?)?;
    let actual = b.divide(distance, by)?;
    let actual = b.unary(U::Ceil, actual)?;
    let actual = b.with_scalar(B::Maximum, actual, 0.0)?;
    let same = b.with_scalar(B::Equal, actual, count as f64)?;
    b.require(same, format!("the range has not {count} elements, as the model declares"))?;
    let places = counted(b, count)?;
    let places = b.cast(places, wide)?;
    let steps = b.multiply(places, step)?;
    let values = b.add(start, steps)?;
    b.cast(values, dtype)
}

/// A `Slice` whose bounds, axes or steps a run decides; `None` where all are known, or nothing is declared.
pub(super) fn slice(
    b: &mut Builder,
    node: &Node,
    x: Operand,
) -> Result<Option<Operand>, NodeError> {
    if !(1..5).any(|place| is_open(b, node, place)) {
        return Ok(None);
    }
    let shape = b.shape(x);
    let Some(target) = node.declared(0).filter(|own| own.len() == shape.len()) else {
        return Ok(None);
    };
    let named = Named::new(b, node, (node.input(1)?, 3), shape.len())?;
    let extents: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
    let extent = b.integers(&extents)?;
    let one = b.scalar(DataType::I64, 1.0)?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let start = named.spread(b, node.input(1)?, zero)?;
    let end = named.spread(b, node.input(2)?, extent)?;
    let step = match node.optional(4) {
        Some(own) => named.spread(b, own, one)?,
        None => one,
    };
    let (below, above) = (b.scalar_with(B::Subtract, -1.0, extent)?, b.add(extent, one)?);
    let step = between(b, step, below, above)?;
    let moves = b.binary(B::Equal, step, zero)?;
    let moves = b.unary(U::Not, moves)?;
    b.require(moves, "a step is 0")?;
    let forward = b.binary(B::Greater, step, zero)?;
    let [start, end] = [start, end].map(|own| -> Step {
        let from_end = b.binary(B::Less, own, zero)?;
        let moved = b.add(own, extent)?;
        let own = b.select(from_end, moved, own)?;
        let up = between(b, own, zero, extent)?;
        let (least, last) = (b.scalar(DataType::I64, -1.0)?, b.subtract(extent, one)?);
        let down = between(b, own, least, last)?;
        b.select(forward, up, down)
    });
    let (start, end) = (start?, end?);
    let (ahead, back) = (b.subtract(end, start)?, b.subtract(start, end)?);
    let distance = b.select(forward, ahead, back)?;
    let distance = b.binary(B::Maximum, distance, zero)?;
    let length = b.unary(U::Abs, step)?;
    let length = b.binary(B::Maximum, length, one)?;
    let rest = b.subtract(length, one)?;
    let counted_up = b.add(distance, rest)?;
    let count = b.divide(counted_up, length)?;
    let expected: Vec<i64> = target.iter().map(|extent| *extent as i64).collect();
    let expected = b.integers(&expected)?;
    let same = b.binary(B::Equal, count, expected)?;
    b.require(same, format!("the slice has not the declared shape {target:?}"))?;
    let mut result = x;
    for (axis, extent) in target.iter().enumerate() {
        let [first, by] = [start, step].map(|own| one_of(b, own, axis));
        let places = counted(b, *extent)?;
        let places = b.multiply(places, by?)?;
        let places = b.add(places, first?)?;
        result = b.apply(Gather { axis }, &[result, places])?;
    }
    Ok(Some(result))
}

/// A `Pad` whose amounts, axes or value a run decides; `None` where all are known, or nothing is declared.
pub(super) fn pad(
    b: &mut Builder,
    node: &Node,
    x: Operand,
    mode: PadMode,
) -> Result<Option<Operand>, NodeError> {
    if !(1..4).any(|place| is_open(b, node, place)) {
        return Ok(None);
    }
    let shape = b.shape(x);
    let target = node.declared(0).filter(|own| own.len() == shape.len() && !shape.contains(&0));
    let Some(target) = target else { return Ok(None) };
    let pads = node.input(1)?;
    let count = b.tensor_type(pads).elements() / 2;
    let (begin, end) = (b.narrow(pads, 0, 0, count)?, b.narrow(pads, 0, count, count)?);
    let named = Named::new(b, node, (begin, 3), shape.len())?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let (begin, end) = (named.spread(b, begin, zero)?, named.spread(b, end, zero)?);
    let added = b.add(begin, end)?;
    let expected: Vec<i64> =
        shape.iter().zip(&target).map(|(own, extent)| *extent as i64 - *own as i64).collect();
    let expected = b.integers(&expected)?;
    let same = b.binary(B::Equal, added, expected)?;
    b.require(same, format!("what is padded has not the declared shape {target:?}"))?;
    let value = match node.optional(2) {
        Some(value) if b.tensor_type(value).elements() == 1 => b.reshape(value, Vec::new())?,
        Some(_) => return Err(NodeError::invalid("the value of the padding is no single number")),
        None => b.scalar(b.dtype(x), 0.0)?,
    };
    let mut result = x;
    for axis in 0..shape.len() {
        let first = one_of(b, begin, axis)?;
        let places = counted(b, target[axis])?;
        let places = b.subtract(places, first)?;
        let last = shape[axis] as f64 - 1.0;
        let inside = match mode {
            PadMode::Constant | PadMode::Edge => places,
            PadMode::Wrap => b.with_scalar(B::Modulo, places, last + 1.0)?,
            PadMode::Reflect if last == 0.0 => b.subtract(places, places)?,
            PadMode::Reflect => {
                let there = b.with_scalar(B::Modulo, places, 2.0 * last)?;
                let back = b.scalar_with(B::Subtract, 2.0 * last, there)?;
                b.binary(B::Minimum, there, back)?
            }
        };
        let nearest = clamped(b, inside, 0.0, last)?;
        result = b.apply(Gather { axis }, &[result, nearest])?;
        if mode == PadMode::Constant {
            let is_own = b.binary(B::Equal, places, nearest)?;
            let mut across = vec![1; shape.len()];
            across[axis] = target[axis];
            let is_own = b.reshape(is_own, across)?;
            result = b.select(is_own, result, value)?;
        }
    }
    Ok(Some(result))
}

/// Which of the axes of a tensor each element of a list is for.
struct Named {
    /// `[elements, axes]` of truth values.
    table: Operand,
    count: usize,
    rank: usize,
}

impl Named {
    /// By the axes in an input of a node, for a list; without it, the list's elements are for the first axes.
    fn new(
        b: &mut Builder,
        node: &Node,
        (list, place): (Operand, usize),
        rank: usize,
    ) -> Result<Self, NodeError> {
        let count = b.tensor_type(list).elements();
        let axes = match node.optional(place) {
            Some(axes) => b.cast(axes, DataType::I64)?,
            None => counted(b, count)?,
        };
        if b.tensor_type(axes).elements() != count || count > rank {
            return Err(NodeError::invalid("the lists of bounds and axes differ in length"));
        }
        let axes = b.reshape(axes, vec![count, 1])?;
        let all = counted(b, rank)?;
        let from_end = b.with_scalar(B::Subtract, all, rank as f64)?;
        let (front, back) = (b.binary(B::Equal, axes, all)?, b.binary(B::Equal, axes, from_end)?);
        let table = b.binary(B::Or, front, back)?;
        let bits = b.cast(table, DataType::I64)?;
        let of_element = b.reduce(ReduceFunction::Sum, bits, vec![1], false)?;
        let one = b.with_scalar(B::Equal, of_element, 1.0)?;
        b.require(one, format!("the axes are not all there: there are {rank}"))?;
        let of_axis = b.reduce(ReduceFunction::Sum, bits, vec![0], false)?;
        let once = b.with_scalar(B::LessEqual, of_axis, 1.0)?;
        b.require(once, "an axis is named twice")?;
        Ok(Self { table, count, rank })
    }

    /// A list's elements at the axes that they are for; `otherwise` at the others.
    fn spread(&self, b: &mut Builder, list: Operand, otherwise: Operand) -> Step {
        if b.tensor_type(list).elements() != self.count {
            return Err(NodeError::invalid("the lists of bounds differ in length"));
        }
        let list = b.cast(list, DataType::I64)?;
        let list = b.reshape(list, vec![self.count, 1])?;
        let list = b.expand(list, vec![self.count, self.rank])?;
        let zero = b.scalar(DataType::I64, 0.0)?;
        let own = b.select(self.table, list, zero)?;
        let own = b.reduce(ReduceFunction::Sum, own, vec![0], false)?;
        let bits = b.cast(self.table, DataType::I64)?;
        let there = b.reduce(ReduceFunction::Sum, bits, vec![0], false)?;
        let there = b.with_scalar(B::Greater, there, 0.0)?;
        b.select(there, own, otherwise)
    }
}

/// Most elements of a list of places.
const LONGEST: usize = 1 << 20;

/// 0, 1, 2, … as a list of `i64`.
pub(super) fn counted(b: &mut Builder, count: usize) -> Step {
    if count > LONGEST {
        return Err(NodeError::unsupported(format!("computing {count} places in a run")));
    }
    let places: Vec<i64> = (0..count as i64).collect();
    b.integers(&places)
}

/// One element of a list or of one number, as a list.
fn one_of(b: &mut Builder, list: Operand, place: usize) -> Step {
    match b.tensor_type(list).elements() {
        1 => b.reshape(list, vec![1]),
        _ => b.narrow(list, 0, place, 1),
    }
}

fn between(b: &mut Builder, own: Operand, least: Operand, most: Operand) -> Step {
    let own = b.binary(B::Maximum, own, least)?;
    b.binary(B::Minimum, own, most)
}

/// Nothing below `least` and nothing above `most`.
pub(super) fn clamped(b: &mut Builder, own: Operand, least: f64, most: f64) -> Step {
    let own = b.with_scalar(B::Maximum, own, least)?;
    b.with_scalar(B::Minimum, own, most)
}
