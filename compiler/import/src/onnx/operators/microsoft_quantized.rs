//! Operators of `com.microsoft` on quantized tensors, as onnxruntime's quantizer writes them.
//!
//! A quantized operand is three inputs: the integers, their scale and their zero point. Element-wise operators
//! compute on real numbers and round once; products sum integers.

use super::quantization::{centered, rounded, spread};
use super::{pool, quantization, recurrent, reduction, softmax};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{BinaryFunction as B, UnaryFunction as U};
use hone_types::DataType;

/// The operator set whose rules attributes of these operators follow.
const RULES: i64 = 21;

/// The numbers of integers `x` of one scale and zero point.
pub(super) fn real(b: &mut Builder, x: Operand, scale: Operand, zero: Option<Operand>) -> Step {
    let zero = zero.map(|zero| b.reshape(zero, vec![])).transpose()?;
    let centered = centered(b, x, zero)?;
    let number = b.cast(centered, DataType::F32)?;
    let scale = b.reshape(scale, vec![])?;
    b.multiply(number, scale)
}

/// The numbers of the quantized operand at `place`.
fn operand(b: &mut Builder, node: &Node, place: usize) -> Step {
    real(b, node.input(place)?, node.input(place + 1)?, node.optional(place + 2))
}

/// Numbers as integers with the scale and zero point at `place`; of type `dtype` where there is no zero point.
fn quantized(b: &mut Builder, x: Operand, node: &Node, place: usize, dtype: DataType) -> Step {
    let scale = b.reshape(node.input(place)?, vec![])?;
    let scaled = b.divide(x, scale)?;
    let zero = node.optional(place + 1).map(|zero| b.reshape(zero, vec![])).transpose()?;
    let dtype = zero.map_or(dtype, |zero| b.dtype(zero));
    rounded(b, scaled, zero, dtype)
}

/// `QLinearAdd` and `QLinearMul`.
pub(super) fn binary(builder: &mut Builder, node: &mut Node) -> Outputs {
    let dtype = builder.dtype(node.input(0)?);
    let (left, right) = (operand(builder, node, 0)?, operand(builder, node, 3)?);
    let function = if node.operator == "QLinearAdd" { B::Add } else { B::Multiply };
    let result = builder.binary(function, left, right)?;
    Ok(vec![quantized(builder, result, node, 6, dtype)?])
}

/// Operators of one quantized operand: `QLinearSigmoid`, `QLinearLeakyRelu`, `QLinearSoftmax`,
/// `QLinearAveragePool`, `QLinearGlobalAveragePool`, `QLinearReduceMean`.
pub(super) fn unary(builder: &mut Builder, node: &mut Node) -> Outputs {
    let dtype = builder.dtype(node.input(0)?);
    let mut x = operand(builder, node, 0)?;
    let inputs = node.inputs.clone();
    let channels_last = node.flag("channels_last", false)?;
    if channels_last {
        x = channels_second(builder, x)?;
    }
    node.inputs = vec![Some(x)];
    node.opset = node.int_or("opset", RULES)?;
    let mut result = match node.operator.as_str() {
        "QLinearSigmoid" => builder.unary(U::Sigmoid, x)?,
        "QLinearLeakyRelu" => {
            let alpha = node.float_or("alpha", 0.01)?;
            builder.with_scalar(B::LeakyMultiply, x, alpha)?
        }
        "QLinearSoftmax" => with_name(builder, node, "Softmax", softmax::softmax)?,
        "QLinearAveragePool" => with_name(builder, node, "AveragePool", pool::average)?,
        "QLinearGlobalAveragePool" => with_name(builder, node, "GlobalAveragePool", pool::global)?,
        _ => {
            // Its axes are an attribute.
            node.opset = 13;
            with_name(builder, node, "ReduceMean", reduction::reduce)?
        }
    };
    if channels_last {
        result = channels_behind(builder, result)?;
    }
    node.inputs = inputs;
    Ok(vec![quantized(builder, result, node, 3, dtype)?])
}

/// An image whose channels are its last axis with them behind the batch.
fn channels_second(b: &mut Builder, x: Operand) -> Step {
    match b.rank(x) {
        rank @ 3.. => b.transpose(x, [0, rank - 1].into_iter().chain(1..rank - 1).collect()),
        _ => Ok(x),
    }
}

/// An image with its channels as the last axis again.
fn channels_behind(b: &mut Builder, x: Operand) -> Step {
    match b.rank(x) {
        rank @ 3.. => b.transpose(x, [0].into_iter().chain(2..rank).chain([1]).collect()),
        _ => Ok(x),
    }
}

/// What `import` makes of a node whose input and result have their channels as the last axis, by the rules of the operator
/// set that it was taken over from.
fn of_channels_last(
    b: &mut Builder,
    node: &mut Node,
    import: fn(&mut Builder, &mut Node) -> Outputs,
) -> Outputs {
    node.opset = RULES;
    node.inputs[0] = Some(channels_second(b, node.input(0)?)?);
    let results = import(b, node)?;
    results.into_iter().map(|result| channels_behind(b, result)).collect()
}

/// `QLinearConv` of images whose channels may be the last axis, as onnxruntime's optimizer writes them.
pub(super) fn convolve(builder: &mut Builder, node: &mut Node) -> Outputs {
    match node.flag("channels_last", false)? {
        true => of_channels_last(builder, node, quantization::convolve),
        false => quantization::convolve(builder, node),
    }
}

/// `NhwcMaxPool`: of images whose channels are the last axis.
pub(super) fn largest_of_windows(builder: &mut Builder, node: &mut Node) -> Outputs {
    of_channels_last(builder, node, pool::maximum)
}

/// What `import` makes of a node when it is called `name`.
fn with_name(
    builder: &mut Builder,
    node: &mut Node,
    name: &str,
    import: fn(&mut Builder, &mut Node) -> Outputs,
) -> Step {
    let own = std::mem::replace(&mut node.operator, name.to_string());
    let outputs = import(builder, node);
    node.operator = own;
    outputs?.first().copied().ok_or_else(|| NodeError::invalid("the operator has no result"))
}

/// `QLinearConcat`: scale and zero point of the result, then each operand.
pub(super) fn concat(builder: &mut Builder, node: &mut Node) -> Outputs {
    let count = node.inputs.len().saturating_sub(2) / 3;
    let place = node.int_or("axis", 0)?;
    let mut parts = Vec::new();
    for operand in 0..count {
        let part = self::operand(builder, node, 2 + 3 * operand)?;
        parts.push(quantized(builder, part, node, 0, DataType::U8)?);
    }
    let first = *parts.first().ok_or_else(|| NodeError::invalid("it has no operands"))?;
    let place = axis(place, builder.rank(first))?;
    Ok(vec![builder.concat(&parts, place)?])
}

/// `QLinearWhere`.
pub(super) fn select(builder: &mut Builder, node: &mut Node) -> Outputs {
    let dtype = builder.dtype(node.input(1)?);
    let (then, otherwise) = (operand(builder, node, 1)?, operand(builder, node, 4)?);
    let result = builder.select(node.input(0)?, then, otherwise)?;
    Ok(vec![quantized(builder, result, node, 7, dtype)?])
}

/// Sums of products of integers less their zero points; scales and zero points of `right` may be per column.
pub(super) fn products(
    b: &mut Builder,
    [left, right]: [Operand; 2],
    [left_zero, right_zero]: [Option<Operand>; 2],
) -> Step {
    let left_zero = left_zero.map(|zero| b.reshape(zero, vec![])).transpose()?;
    let shape = b.shape(right);
    let right_zero = right_zero.map(|zero| spread(b, zero, &shape, -1, 0)).transpose()?;
    let (left, right) = (centered(b, left, left_zero)?, centered(b, right, right_zero)?);
    let sums = b.matmul(left, right)?;
    b.cast(sums, DataType::F32)
}

/// The product of both scales, along the last axis where the second's is per column.
pub(super) fn both_scales(b: &mut Builder, left: Operand, right: Operand) -> Step {
    let left = b.reshape(left, vec![])?;
    let elements = b.tensor_type(right).elements();
    let right = b.reshape(right, if elements == 1 { vec![] } else { vec![elements] })?;
    b.multiply(left, right)
}

/// `QGemm`: inputs A, B with scale and zero point each, a bias of 32 bits in the scale of the products, and the scale
/// and zero point of the result; without those it is of `f32`.
pub(super) fn gemm(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let alpha = node.float_or("alpha", 1.0)?;
    let (mut left, mut right) = (node.input(0)?, node.input(3)?);
    if node.flag("transA", false)? {
        left = b.transpose(left, vec![1, 0])?;
    }
    if node.flag("transB", false)? {
        right = b.transpose(right, vec![1, 0])?;
    }
    let dtype = b.dtype(left);
    let mut sums = products(b, [left, right], [node.optional(2), node.optional(5)])?;
    if let Some(bias) = node.optional(6) {
        let bias = b.cast(bias, DataType::F32)?;
        sums = b.add(sums, bias)?;
    }
    let scale = both_scales(b, node.input(1)?, node.input(4)?)?;
    let scale = b.with_scalar(B::Multiply, scale, alpha)?;
    let result = b.multiply(sums, scale)?;
    match node.optional(7) {
        None => Ok(vec![result]),
        Some(_) => Ok(vec![quantized(b, result, node, 7, dtype)?]),
    }
}

/// `MatMulIntegerToFloat`: inputs A, B, their scales, their zero points, a bias.
pub(super) fn matmul_to_float(builder: &mut Builder, node: &mut Node) -> Outputs {
    let operands = [node.input(0)?, node.input(1)?];
    let sums = products(builder, operands, [node.optional(4), node.optional(5)])?;
    let scale = both_scales(builder, node.input(2)?, node.input(3)?)?;
    let result = builder.multiply(sums, scale)?;
    Ok(vec![biased(builder, result, node.optional(6))?])
}

/// `x` with a bias added, where there is one.
pub(super) fn biased(b: &mut Builder, x: Operand, bias: Option<Operand>) -> Step {
    match bias {
        Some(bias) => b.add(x, bias),
        None => Ok(x),
    }
}

/// `DynamicQuantizeMatMul`: A of `f32` is quantized by its own range; B has a scale and zero point.
pub(super) fn dynamic_matmul(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (right, right_scale) = (node.input(1)?, node.input(2)?);
    let (right_zero, bias) = (node.optional(3), node.optional(4));
    let outputs = super::quantization::quantize_dynamically(builder, node)?;
    let [left, left_scale, left_zero] = <[Operand; 3]>::try_from(outputs)
        .map_err(|_| NodeError::invalid("the operand cannot be quantized"))?;
    let sums = products(builder, [left, right], [Some(left_zero), right_zero])?;
    let scale = both_scales(builder, left_scale, right_scale)?;
    let result = builder.multiply(sums, scale)?;
    Ok(vec![biased(builder, result, bias)?])
}

/// `DynamicQuantizeLSTM`: an `LSTM` whose weights are `[directions, inputs, 4 * hidden]` integers. What
/// they multiply is rounded to bytes, as it is there, but each row by its own range: where a run has several samples, the
/// operator's definition leaves open which share one, and onnxruntime's choice depends on its threads.
pub(super) fn dynamic_lstm(builder: &mut Builder, node: &mut Node) -> Outputs {
    for (weights, scale) in [(1, 8), (2, 10)] {
        let (own, zero, scale) =
            (node.input(weights)?, node.optional(scale + 1), node.input(scale)?);
        let shape = builder.shape(own);
        let directions = shape.first().copied().unwrap_or(1).max(1);
        let parameter = |b: &mut Builder, own: Operand| -> Step {
            let elements = b.tensor_type(own).elements();
            match elements == 1 {
                true => b.reshape(own, vec![]),
                false => b.reshape(own, vec![directions, 1, elements / directions]),
            }
        };
        let zero = zero.map(|zero| parameter(builder, zero)).transpose()?;
        let centered = centered(builder, own, zero)?;
        let number = builder.cast(centered, DataType::F32)?;
        let scale = parameter(builder, scale)?;
        // The integers stay, so that they are found also where arithmetic is lifted to `f64`.
        let scale = builder.as_computed(scale);
        let number = builder.multiply(number, scale)?;
        node.inputs[weights] = Some(builder.transpose(number, vec![0, 2, 1])?);
    }
    node.inputs.truncate(8);
    node.opset = RULES;
    recurrent::lstm_rounding(builder, node, true)
}
