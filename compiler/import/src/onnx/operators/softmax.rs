//! `Softmax`, `LogSoftmax` and `Hardmax`: along one axis since opset 13; before, over everything from
//! an axis on.

use super::normalization::softmax_of;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{ArgReduce, OneHot};
use hone_types::{DataType, Tensor};

/// See the head of this file.
pub(super) fn softmax(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let shape = builder.shape(x);
    let old = node.opset < 13;
    let named = node.int_or("axis", if old { 1 } else { -1 })?;
    if !old {
        let axis = axis(named, shape.len())?;
        return Ok(vec![along(builder, &node.operator, x, axis)?]);
    }
    let first = if named == shape.len() as i64 { shape.len() } else { axis(named, shape.len())? };
    let rows: usize = shape[..first].iter().product();
    let columns: usize = shape[first..].iter().product();
    if shape.len() == first + 1 {
        return Ok(vec![along(builder, &node.operator, x, first)?]);
    }
    let flat = builder.reshape(x, vec![rows, columns])?;
    let result = along(builder, &node.operator, flat, 1)?;
    Ok(vec![builder.reshape(result, shape)?])
}

fn along(builder: &mut Builder, operator: &str, x: Operand, axis: usize) -> Step {
    match operator {
        "Softmax" => softmax_of(builder, x, axis, false),
        "LogSoftmax" => softmax_of(builder, x, axis, true),
        "Hardmax" => {
            let depth = builder.shape(x)[axis];
            let place = ArgReduce { maximum: true, axis, keep_axis: false, select_last: false };
            let place = builder.apply(place, &[x])?;
            let values = Tensor::from_elements([2], &[0.0f32, 1.0])?;
            let values = builder.constant(values);
            let values = builder.cast(values, builder.dtype(x))?;
            builder.apply(OneHot { depth, axis }, &[place, values])
        }
        other => Err(NodeError::unsupported(format!("{other} on {}", DataType::F32))),
    }
}
