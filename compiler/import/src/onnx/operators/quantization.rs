//! Numbers as multiples of a scale: `x = (q - zero point) * scale`, with `q` of a few bits.

use super::convolution;
use super::few_bits::dequantized_blocks;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::narrow::{NarrowType, Rounding};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{BinaryFunction as B, ReduceFunction, UnaryFunction as U};
use hone_types::DataType;

/// Smallest and largest number of an integer type that numbers are rounded to.
fn range(dtype: DataType) -> Result<[f64; 2], NodeError> {
    match dtype {
        DataType::U8 => Ok([0.0, 255.0]),
        DataType::I8 => Ok([-128.0, 127.0]),
        DataType::U16 => Ok([0.0, 65_535.0]),
        DataType::I16 => Ok([-32_768.0, 32_767.0]),
        _ => Err(NodeError::invalid(format!("numbers are not quantized to {dtype}"))),
    }
}

/// A scale or zero point in a form that broadcasts to `shape`: one number, one along `along`, or one for
/// each `block` elements along it.
pub(super) fn spread(
    b: &mut Builder,
    own: Operand,
    shape: &[usize],
    along: i64,
    block: usize,
) -> Step {
    let extents = b.shape(own);
    if extents.iter().product::<usize>() == 1 {
        return b.reshape(own, vec![]);
    }
    let along = axis(along, shape.len())?;
    // A block that is longer than the axis ends with it.
    let block = block.min(shape[along].max(1));
    if block == 0 {
        let mut full = vec![1; shape.len()];
        full[along] = extents.iter().product();
        return b.reshape(own, full);
    }
    let fits = extents.len() == shape.len() && extents[along] == shape[along].div_ceil(block);
    if !fits {
        let message = format!("{} does not fit {shape:?} in blocks of {block}", b.tensor_type(own));
        return Err(NodeError::invalid(message));
    }
    let (outer, inner) = extents.split_at(along + 1);
    let apart = b.reshape(own, [outer, &[1], inner].concat())?;
    let repeated = b.expand(apart, [outer, &[block], inner].concat())?;
    let mut whole = extents;
    whole[along] = whole[along].saturating_mul(block);
    let whole = b.reshape(repeated, whole)?;
    b.narrow(whole, along, 0, shape[along])
}

/// `saturate(round(x / scale) + zero)` of type `dtype`; in `f32`, the zero point too.
pub(super) fn rounded(
    b: &mut Builder,
    scaled: Operand,
    zero: Option<Operand>,
    dtype: DataType,
) -> Step {
    let within = range(dtype)?;
    rounded_within(b, scaled, zero, dtype, within)
}

/// The same within bounds of its own.
fn rounded_within(
    b: &mut Builder,
    scaled: Operand,
    zero: Option<Operand>,
    dtype: DataType,
    [least, most]: [f64; 2],
) -> Step {
    let mut moved = b.unary(U::Round, scaled)?;
    if let Some(zero) = zero {
        let zero = b.cast(zero, DataType::F32)?;
        moved = b.add(moved, zero)?;
    }
    // The conversion saturates at the bounds of the type.
    if range(dtype)? == [least, most] {
        return b.cast(moved, dtype);
    }
    let above = b.with_scalar(B::Maximum, moved, least)?;
    let within = b.with_scalar(B::Minimum, above, most)?;
    b.cast(within, dtype)
}

/// `x - zero` in 32 bits.
pub(super) fn centered(b: &mut Builder, x: Operand, zero: Option<Operand>) -> Step {
    let wide = b.cast(x, DataType::I32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let zero = b.cast(zero, DataType::I32)?;
    b.subtract(wide, zero)
}

/// The type that attribute `output_dtype` names, if it does.
fn asked_type(node: &mut Node) -> Result<Option<(DataType, Option<NarrowType>)>, NodeError> {
    let number = node.int_or("output_dtype", 0)?;
    let number = i32::try_from(number).unwrap_or(-1);
    if number == 0 {
        return Ok(None);
    }
    crate::onnx::tensor::carrier_type(number).map(Some).map_err(NodeError::Invalid)
}

/// Attributes `axis` and `block_size`.
fn places(node: &mut Node) -> Result<(i64, usize), NodeError> {
    let (axis, block) = (node.int_or("axis", 1)?, node.int_or("block_size", 0)?);
    let block = usize::try_from(block)
        .map_err(|_| NodeError::invalid(format!("block_size {block} is negative")))?;
    Ok((axis, block))
}

/// `QuantizeLinear`.
pub(super) fn quantize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let ((axis, block), asked) = (places(node)?, asked_type(node)?);
    let saturate = node.flag("saturate", true)?;
    // What is computed in below.
    node.ignore(&["precision"]);
    let shape = builder.shape(x);
    let zero = node.optional(2);
    let of_zero = zero.map(|zero| (builder.dtype(zero), builder.narrow_type(zero)));
    let (dtype, narrow) = of_zero.or(asked).unwrap_or((DataType::U8, None));
    let x = builder.cast(x, DataType::F32)?;
    let scale = builder.numbers(scale)?;
    let scale = builder.cast(scale, DataType::F32)?;
    let scale = spread(builder, scale, &shape, axis, block)?;
    let zero = zero.map(|zero| spread(builder, zero, &shape, axis, block)).transpose()?;
    let scaled = builder.divide(x, scale)?;
    let Some(narrow) = narrow else { return Ok(vec![rounded(builder, scaled, zero, dtype)?]) };
    let result = match narrow.range() {
        Some(within) => rounded_within(builder, scaled, zero, dtype, within)?,
        // The zero point of floats is zero.
        None => builder.narrowed(scaled, narrow, saturate, Rounding::Nearest)?,
    };
    builder.set_narrow(result, narrow);
    Ok(vec![result])
}

/// `DequantizeLinear`.
pub(super) fn dequantize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let ((axis, block), asked) = (places(node)?, asked_type(node)?);
    let shape = builder.shape(x);
    let scale = builder.numbers(scale)?;
    let to = asked.map_or(builder.dtype(scale), |(dtype, _)| dtype);
    let zero = node.optional(2);
    if block > 0
        && shape.len() == 2
        && let Some(numbers) = dequantized_blocks(builder, x, (scale, zero), (axis, block))?
    {
        return Ok(vec![builder.cast(numbers, to)?]);
    }
    let scale = builder.cast(scale, DataType::F32)?;
    let scale = spread(builder, scale, &shape, axis, block)?;
    let zero = zero.map(|zero| spread(builder, zero, &shape, axis, block)).transpose()?;
    if builder.narrow_type(x).is_some_and(|narrow| !narrow.is_integer()) {
        let number = builder.numbers(x)?;
        let product = builder.multiply(number, scale)?;
        return Ok(vec![builder.cast(product, to)?]);
    }
    // Not folded here, so that products are still seen to be of bytes.
    let x = if builder.rank(x) > 1 { builder.as_computed(x) } else { x };
    let centered = centered(builder, x, zero)?;
    let number = builder.cast(centered, DataType::F32)?;
    let product = builder.multiply(number, scale)?;
    Ok(vec![builder.cast(product, to)?])
}

/// `DynamicQuantizeLinear`: to bytes, with the scale and zero point that the tensor's own range needs.
pub(super) fn quantize_dynamically(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let axes: Vec<usize> = (0..builder.rank(x)).collect();
    let least = builder.reduce(ReduceFunction::Minimum, x, axes.clone(), false)?;
    let least = builder.with_scalar(B::Minimum, least, 0.0)?;
    let most = builder.reduce(ReduceFunction::Maximum, x, axes, false)?;
    let most = builder.with_scalar(B::Maximum, most, 0.0)?;
    let span = builder.subtract(most, least)?;
    let scale = builder.with_scalar(B::Divide, span, 255.0)?;
    // Nothing but zeros has no range: any scale does.
    let none = builder.with_scalar(B::Equal, scale, 0.0)?;
    let one = builder.scalar(DataType::F32, 1.0)?;
    let divisor = builder.select(none, one, scale)?;
    let negated = builder.unary(U::Negate, least)?;
    let first = builder.divide(negated, divisor)?;
    let zero = rounded(builder, first, None, DataType::U8)?;
    let scaled = builder.divide(x, divisor)?;
    let y = rounded(builder, scaled, Some(zero), DataType::U8)?;
    Ok(vec![y, scale, zero])
}

/// `scale * scale of weights / scale of the result`, with which sums of products become results.
fn factor(b: &mut Builder, scales: [Operand; 3]) -> Step {
    let [x, w, y] = scales;
    let [x, w, y] =
        [b.cast(x, DataType::F32)?, b.cast(w, DataType::F32)?, b.cast(y, DataType::F32)?];
    let product = b.multiply(x, w)?;
    b.divide(product, y)
}

/// `QLinearMatMul`: inputs and result with a scale and a zero point each; the sums are exact.
pub(super) fn matmul(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (a, b) = (node.input(0)?, node.input(3)?);
    let (a_shape, b_shape) = (builder.shape(a), builder.shape(b));
    let of_rows = |builder: &mut Builder, own| spread(builder, own, &a_shape, -2, 0);
    let (a_scale, a_zero) = (of_rows(builder, node.input(1)?)?, of_rows(builder, node.input(2)?)?);
    let of_columns = |builder: &mut Builder, own| spread(builder, own, &b_shape, -1, 0);
    let (b_scale, b_zero) =
        (of_columns(builder, node.input(4)?)?, of_columns(builder, node.input(5)?)?);
    let [left, right] = [(a, a_zero), (b, b_zero)];
    let left = centered(builder, left.0, Some(left.1))?;
    let right = centered(builder, right.0, Some(right.1))?;
    let sums = builder.matmul(left, right)?;
    let sums = builder.cast(sums, DataType::F32)?;
    let factor = factor(builder, [a_scale, b_scale, node.input(6)?])?;
    let scaled = builder.multiply(sums, factor)?;
    let zero = node.input(7)?;
    let dtype = builder.dtype(zero);
    Ok(vec![rounded(builder, scaled, Some(zero), dtype)?])
}

/// `QLinearConv`: as [`matmul`]; products of bytes are summed in `f32`.
pub(super) fn convolve(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, w, y_scale) = (node.input(0)?, node.input(3)?, node.input(6)?);
    let w_shape = builder.shape(w);
    let (x_scale, x_zero) = (node.input(1)?, node.input(2)?);
    let x_zero = builder.reshape(x_zero, vec![])?;
    let w_zero = spread(builder, node.input(5)?, &w_shape, 0, 0)?;
    let x = centered(builder, x, Some(x_zero))?;
    let w = centered(builder, w, Some(w_zero))?;
    let (x, w) = (builder.cast(x, DataType::F32)?, builder.cast(w, DataType::F32)?);
    let bias = node.optional(8).map(|bias| builder.cast(bias, DataType::F32)).transpose()?;
    let sums = convolution::convolve(builder, node, [Some(x), Some(w), bias])?;
    let shape = builder.shape(sums);
    let w_scale = spread(builder, node.input(4)?, &shape, 1, 0)?;
    let x_scale = builder.reshape(x_scale, vec![])?;
    let y_scale = builder.reshape(y_scale, vec![])?;
    let factor = factor(builder, [x_scale, w_scale, y_scale])?;
    let scaled = builder.multiply(sums, factor)?;
    let zero = node.input(7)?;
    let dtype = builder.dtype(zero);
    let zero = builder.reshape(zero, vec![])?;
    Ok(vec![rounded(builder, scaled, Some(zero), dtype)?])
}

/// `ConvInteger`: a convolution of bytes in 32 bits.
pub(super) fn convolve_integers(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let w_shape = builder.shape(w);
    let x_zero = node.optional(2).map(|zero| builder.reshape(zero, vec![])).transpose()?;
    let w_zero = node.optional(3).map(|zero| spread(builder, zero, &w_shape, 0, 0)).transpose()?;
    let x = centered(builder, x, x_zero)?;
    let w = centered(builder, w, w_zero)?;
    Ok(vec![convolution::convolve(builder, node, [Some(x), Some(w), None])?])
}
