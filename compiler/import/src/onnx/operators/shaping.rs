//! Operators that cut, pad or gather what is there: `CenterCropPad`, `Compress`, `MaxUnpool`; and `Det`.

use super::window::per_axis;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis, extents};
use hone_ops::{
    ArgReduce, BinaryFunction as B, Gather, GatherElements, PadMode, ScatterElements,
    ScatterReduction, UnaryFunction as U,
};
use hone_types::{DataType, Tensor};

/// `CenterCropPad`: the middle of an axis, or zeros on both of its sides.
pub(super) fn center_crop_pad(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = node.input(0)?;
    let shape = builder.shape(x);
    let named = node.ints("axes")?.unwrap_or_else(|| (0..shape.len() as i64).collect());
    let implied = named.iter().map(|own| {
        let own = axis(*own, shape.len()).ok()?;
        Some(Some(i64::try_from(node.declared_extent(0, own)?).ok()?))
    });
    let implied = implied.collect();
    let target = extents(&builder.integers_held(node, 1, implied)?, "shape")?;
    if named.len() != target.len() {
        return Err(NodeError::invalid(format!("{target:?} is no shape of axes {named:?}")));
    }
    let (mut begin, mut end) = (vec![0; shape.len()], vec![0; shape.len()]);
    for (place, wanted) in named.iter().zip(target) {
        let axis = axis(*place, shape.len())?;
        if shape[axis] > wanted {
            x = builder.narrow(x, axis, (shape[axis] - wanted) / 2, wanted)?;
        } else {
            let missing = wanted - shape[axis];
            (begin[axis], end[axis]) = ((missing / 2) as i64, missing.div_ceil(2) as i64);
        }
    }
    Ok(vec![builder.pad(x, begin, end, PadMode::Constant, 0.0)?])
}

/// `Compress`: the slices at which a condition, known when compiling, holds.
pub(super) fn compress(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = node.input(0)?;
    let condition = builder.integers_of(node, 1)?;
    let place = match node.int("axis")? {
        Some(place) => axis(place, builder.rank(x))?,
        None => {
            let elements = builder.tensor_type(x).elements();
            x = builder.reshape(x, vec![elements])?;
            0
        }
    };
    let extent = builder.shape(x)[place];
    let kept: Vec<i64> = (0..extent as i64)
        .zip(condition)
        .filter(|(_, holds)| *holds != 0)
        .map(|(at, _)| at)
        .collect();
    let kept = builder.integers(&kept)?;
    Ok(vec![builder.apply(Gather { axis: place }, &[x, kept])?])
}

/// `MaxUnpool`: what pooling kept, at the places that it came from; zero elsewhere.
pub(super) fn unpool(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, places) = (node.input(0)?, node.input(1)?);
    let shape = builder.shape(x);
    let axes = shape.len().saturating_sub(2);
    let kernel = per_axis(node, "kernel_shape", axes, 1)?;
    let strides = per_axis(node, "strides", axes, 1)?;
    let pads = per_axis(node, "pads", 2 * axes, 0)?;
    let mut own = Vec::new();
    for axis in 0..axes {
        let grown = shape[axis + 2].saturating_sub(1).saturating_mul(strides[axis]);
        let grown = grown.saturating_add(kernel[axis]);
        own.push(grown.saturating_sub(pads[axis] + pads[axes + axis]));
    }
    let whole = match node.optional(2) {
        Some(_) => extents(&builder.integers_held(node, 2, node.implied(0))?, "output_shape")?,
        None => [&shape[..2.min(shape.len())], &own[..]].concat(),
    };
    if axes == 0 || whole.len() != shape.len() {
        return Err(NodeError::invalid(format!("{whole:?} is no output of {shape:?}")));
    }
    let product = |shape: &[usize]| {
        let product = shape.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent));
        product.ok_or_else(|| NodeError::invalid(format!("shape {shape:?} is too large")))
    };
    let planes = product(&shape[..2])?;
    let inner = product(&own)?;
    let zero = builder.scalar(builder.dtype(x), 0.0)?;
    let count: usize = shape.iter().product();
    // Places count within an output of the size that pooling came from.
    let from = builder.expand(zero, vec![product(&[planes, inner])?])?;
    let (x, places) = (builder.reshape(x, vec![count])?, builder.reshape(places, vec![count])?);
    let scatter = ScatterElements::new(0, ScatterReduction::None);
    let flat = builder.apply(scatter, &[from, places, x])?;
    let result = builder.reshape(flat, [&shape[..2], &own[..]].concat())?;
    if whole[2..] == own[..] {
        return Ok(vec![result]);
    }
    let end = whole.iter().zip([&shape[..2], &own[..]].concat()).map(|(a, b)| *a as i64 - b as i64);
    let end: Vec<i64> = end.collect();
    Ok(vec![builder.pad(result, vec![0; whole.len()], end, PadMode::Constant, 0.0)?])
}

/// Largest matrix whose determinant is computed.
const LARGEST_MATRIX: usize = 32;

/// `Det`: by Gaussian elimination with the largest pivot of each column.
pub(super) fn determinant(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let x = node.input(0)?;
    let shape = b.shape(x);
    let Some((lead, [size, columns])) = shape.split_last_chunk::<2>() else {
        return Err(NodeError::invalid(format!("shape {shape:?} has no matrices")));
    };
    if size != columns || *size == 0 || *size > LARGEST_MATRIX {
        return Err(NodeError::unsupported(format!("the determinant of {size} by {columns}")));
    }
    let count: usize = lead.iter().product();
    let mut rest = b.reshape(x, vec![count, *size, *size])?;
    let one = b.scalar(b.dtype(x), 1.0)?;
    let mut product = b.expand(one, vec![count])?;
    for left in (1..=*size).rev() {
        let [pivot, factor] = eliminated(b, &mut rest, left, count)?;
        product = b.multiply(product, pivot)?;
        product = b.multiply(product, factor)?;
    }
    Ok(vec![b.reshape(product, lead.to_vec())?])
}

/// Takes the largest element of the first column as pivot and leaves what is below and right of it; gives the pivot
/// and the sign of the exchange.
fn eliminated(
    b: &mut Builder,
    rest: &mut Operand,
    left: usize,
    count: usize,
) -> Result<[Operand; 2], NodeError> {
    let dtype = b.dtype(*rest);
    let (one, minus) = (b.scalar(dtype, 1.0)?, b.scalar(dtype, -1.0)?);
    let column = b.narrow(*rest, 2, 0, 1)?;
    let column = b.reshape(column, vec![count, left])?;
    let magnitude = b.unary(U::Abs, column)?;
    let largest = ArgReduce { maximum: true, axis: 1, keep_axis: true, select_last: false };
    let place = b.apply(largest, &[magnitude])?;
    // The first row and the pivot's change places.
    let rows: Vec<i64> = (0..left as i64).collect();
    let rows = b.constant(Tensor::from_elements([1, left], &rows)?);
    let is_pivot = b.binary(B::Equal, rows, place)?;
    let zero = b.scalar(DataType::I64, 0.0)?;
    let moved = b.select(is_pivot, zero, rows)?;
    let is_first = b.with_scalar(B::Equal, rows, 0.0)?;
    let order = b.select(is_first, place, moved)?;
    let order = b.reshape(order, vec![count, left, 1])?;
    let order = b.expand(order, vec![count, left, left])?;
    let sorted = b.apply(GatherElements { axis: 1 }, &[*rest, order])?;
    let top = b.narrow(sorted, 1, 0, 1)?;
    let pivot = b.narrow(top, 2, 0, 1)?;
    let none = b.with_scalar(B::Equal, pivot, 0.0)?;
    let divisor = b.select(none, one, pivot)?;
    if left > 1 {
        let below = b.narrow(sorted, 1, 1, left - 1)?;
        let lead = b.narrow(below, 2, 0, 1)?;
        let factor = b.divide(lead, divisor)?;
        let right = b.narrow(below, 2, 1, left - 1)?;
        let top = b.narrow(top, 2, 1, left - 1)?;
        let taken = b.multiply(factor, top)?;
        *rest = b.subtract(right, taken)?;
    }
    let stays = b.with_scalar(B::Equal, place, 0.0)?;
    let sign: Step = b.select(stays, one, minus);
    Ok([b.reshape(pivot, vec![count])?, b.reshape(sign?, vec![count])?])
}
