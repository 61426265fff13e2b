//! Normalizations.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{
    BatchNormalization, BinaryFunction as B, GroupNormalization, InstanceNormalization,
    LayerNormalization, LocalResponseNormalization, LpNormalization, ReduceFunction as R,
    UnaryFunction as U,
};
use hone_types::DataType;

/// `BatchNormalization`; in training mode by the batch's own statistics, which also move the running ones.
pub(super) fn batch(builder: &mut Builder, node: &mut Node) -> Outputs {
    let epsilon = node.float_or("epsilon", 1e-5)?;
    let momentum = node.float_or("momentum", 0.9)?;
    node.ignore(&["is_test"]);
    if node.opset < 9 && node.int_or("spatial", 1)? != 1 {
        return Err(NodeError::unsupported("batch normalization per element (spatial = 0)"));
    }
    let training = node.flag("training_mode", false)?;
    let x = node.input(0)?;
    let to = builder.dtype(x);
    let mut inputs = vec![x];
    for place in 1..5 {
        inputs.push(builder.cast(node.input(place)?, to)?);
    }
    if !training {
        return Ok(vec![builder.apply(BatchNormalization { epsilon }, &inputs)?]);
    }
    let axes: Vec<usize> = (0..builder.rank(x)).filter(|axis| *axis != 1).collect();
    let mean = builder.reduce(R::Mean, x, axes.clone(), true)?;
    let centred = builder.subtract(x, mean)?;
    let square = builder.multiply(centred, centred)?;
    let variance = builder.reduce(R::Mean, square, axes, false)?;
    let channels = builder.shape(variance);
    let mean = builder.reshape(mean, channels)?;
    let mut outputs = Vec::new();
    for (place, own) in [(3, mean), (4, variance)] {
        let old = builder.with_scalar(B::Multiply, inputs[place], momentum)?;
        let new = builder.with_scalar(B::Multiply, own, 1.0 - momentum)?;
        outputs.push(builder.add(old, new)?);
    }
    (inputs[3], inputs[4]) = (mean, variance);
    outputs.insert(0, builder.apply(BatchNormalization { epsilon }, &inputs)?);
    Ok(outputs)
}

/// `InstanceNormalization`.
pub(super) fn instance(builder: &mut Builder, node: &mut Node) -> Outputs {
    let epsilon = node.float_or("epsilon", 1e-5)?;
    let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
    Ok(vec![builder.apply(InstanceNormalization { epsilon }, &inputs)?])
}

/// `GroupNormalization`: scale and bias are per group before opset 21, per channel since.
pub(super) fn group(builder: &mut Builder, node: &mut Node) -> Outputs {
    let epsilon = node.float_or("epsilon", 1e-5)?;
    node.ignore(&["stash_type"]);
    let number = node.int_or("num_groups", 0)?;
    let x = node.input(0)?;
    let channels = builder.shape(x).get(1).copied().unwrap_or(0);
    let groups = usize::try_from(number).ok().filter(|groups| *groups > 0);
    let groups = groups.filter(|groups| channels.is_multiple_of(*groups)).ok_or_else(|| {
        NodeError::invalid(format!("{channels} channels do not make {number} groups"))
    })?;
    let mut inputs = vec![x];
    for place in [1, 2] {
        let mut parameter = node.input(place)?;
        if node.opset < 21 {
            let column = builder.reshape(parameter, vec![groups, 1])?;
            let wide = builder.expand(column, vec![groups, channels / groups])?;
            parameter = builder.reshape(wide, vec![channels])?;
        }
        inputs.push(parameter);
    }
    Ok(vec![builder.apply(GroupNormalization { groups, epsilon }, &inputs)?])
}

/// Mean and one over the standard deviation, over the axes from `first` on.
fn statistics(
    b: &mut Builder,
    x: Operand,
    first: usize,
    epsilon: f64,
) -> Result<[Operand; 2], NodeError> {
    let x = b.cast(x, DataType::F32)?;
    let axes: Vec<usize> = (first..b.rank(x)).collect();
    let mean = b.reduce(R::Mean, x, axes.clone(), true)?;
    let centred = b.subtract(x, mean)?;
    let square = b.multiply(centred, centred)?;
    let variance = b.reduce(R::Mean, square, axes, true)?;
    let raised = b.with_scalar(B::Add, variance, epsilon)?;
    let deviation = b.unary(U::Sqrt, raised)?;
    Ok([mean, b.unary(U::Reciprocal, deviation)?])
}

/// `LayerNormalization`; mean and inverse deviation are made only where they are read.
pub(super) fn layer(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let axis = axis(node.int_or("axis", -1)?, builder.rank(x))?;
    let epsilon = node.float_or("epsilon", 1e-5)?;
    node.ignore(&["stash_type"]);
    let inputs = [Some(x), node.optional(1), node.optional(2)];
    let mut outputs = vec![builder.apply_optional(LayerNormalization { axis, epsilon }, &inputs)?];
    if node.wants(1) || node.wants(2) {
        outputs.extend(statistics(builder, x, axis, epsilon)?);
    }
    Ok(outputs)
}

/// `SkipLayerNormalization` of `com.microsoft`: a sum, then a layer normalization of the last axis.
pub(super) fn skip_layer(builder: &mut Builder, node: &mut Node) -> Outputs {
    let epsilon = node.float_or("epsilon", 1e-5)?;
    let mut sum = builder.add(node.input(0)?, node.input(1)?)?;
    if let Some(bias) = node.optional(4) {
        sum = builder.add(sum, bias)?;
    }
    let axis = axis(-1, builder.rank(sum))?;
    let inputs = [Some(sum), node.optional(2), node.optional(3)];
    let y = builder.apply_optional(LayerNormalization { axis, epsilon }, &inputs)?;
    if node.wants(1) || node.wants(2) {
        return Err(NodeError::unsupported("mean or deviation of SkipLayerNormalization"));
    }
    // The third and fourth outputs are the statistics' and the sum's places.
    Ok(if node.wants(3) { vec![y, y, y, sum] } else { vec![y] })
}

/// `RMSNormalization`: `x / sqrt(mean(x * x) + epsilon) * scale`.
pub(super) fn root_mean_square(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let to = builder.dtype(x);
    let first = axis(node.int_or("axis", -1)?, builder.rank(x))?;
    let epsilon = node.float_or("epsilon", 1e-5)?;
    let stash = i32::try_from(node.int_or("stash_type", 1)?).unwrap_or(0);
    let between = crate::onnx::tensor::element_type(stash).map_err(NodeError::Invalid)?;
    let wide = builder.cast(x, between)?;
    let square = builder.multiply(wide, wide)?;
    let axes = (first..builder.rank(x)).collect();
    let mean = builder.reduce(R::Mean, square, axes, true)?;
    let raised = builder.with_scalar(B::Add, mean, epsilon)?;
    let root = builder.unary(U::Sqrt, raised)?;
    let normal = builder.divide(wide, root)?;
    let normal = builder.cast(normal, to)?;
    let scale = builder.cast(scale, to)?;
    Ok(vec![builder.multiply(normal, scale)?])
}

/// `MeanVarianceNormalization`: `(x - mean) / deviation` over some axes.
pub(super) fn mean_variance(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let named = node.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = crate::onnx::shorthands::axes(&named, builder.rank(x))?;
    let mean = builder.reduce(R::Mean, x, axes.clone(), true)?;
    let centred = builder.subtract(x, mean)?;
    let square = builder.multiply(centred, centred)?;
    let variance = builder.reduce(R::Mean, square, axes, true)?;
    let deviation = builder.unary(U::Sqrt, variance)?;
    // The specification's own definition adds this to the deviation.
    let deviation = builder.with_scalar(B::Add, deviation, 1e-9)?;
    Ok(vec![builder.divide(centred, deviation)?])
}

/// `LRN`.
pub(super) fn local_response(builder: &mut Builder, node: &mut Node) -> Outputs {
    let size = node.int_or("size", 0)?;
    let operator = LocalResponseNormalization {
        size: usize::try_from(size)
            .map_err(|_| NodeError::invalid(format!("size {size} is negative")))?,
        alpha: node.float_or("alpha", 1e-4)?,
        beta: node.float_or("beta", 0.75)?,
        bias: node.float_or("bias", 1.0)?,
    };
    Ok(vec![builder.apply(operator, &[node.input(0)?])?])
}

/// `LpNormalization`.
pub(super) fn lp(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let axis = axis(node.int_or("axis", -1)?, builder.rank(x))?;
    let order = node.int_or("p", 2)?;
    let order =
        u8::try_from(order).map_err(|_| NodeError::invalid(format!("p {order} is not 1 or 2")))?;
    Ok(vec![builder.apply(LpNormalization { axis, order }, &[x])?])
}

/// Softmax of an axis, shared by `Softmax` and `LogSoftmax`.
pub(in crate::onnx) fn softmax_of(
    builder: &mut Builder,
    x: Operand,
    axis: usize,
    log: bool,
) -> Step {
    builder.apply(hone_ops::Softmax { axis, log }, &[x])
}
