//! Operators that choose elements by index.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axis};
use hone_ops::{
    Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd, ScatterReduction,
};
use hone_types::DataType;

/// Indices as `i64`, unless they are `i32` already.
pub(super) fn indices(builder: &mut Builder, operand: Operand) -> Step {
    match builder.dtype(operand) {
        DataType::I32 | DataType::I64 => Ok(operand),
        other => Err(NodeError::invalid(format!("indices are {other}, not i32 or i64"))),
    }
}

/// `Gather`.
pub(super) fn gather(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (data, places) = (node.input(0)?, node.input(1)?);
    let axis = axis(node.int_or("axis", 0)?, builder.rank(data))?;
    let places = indices(builder, places)?;
    Ok(vec![builder.apply(Gather { axis }, &[data, places])?])
}

/// `GatherElements`.
pub(super) fn gather_elements(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (data, places) = (node.input(0)?, node.input(1)?);
    let axis = axis(node.int_or("axis", 0)?, builder.rank(data))?;
    let places = indices(builder, places)?;
    Ok(vec![builder.apply(GatherElements { axis }, &[data, places])?])
}

/// `GatherND`.
pub(super) fn gather_nd(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (data, places) = (node.input(0)?, node.input(1)?);
    let batch = node.int_or("batch_dims", 0)?;
    let batch_axes = usize::try_from(batch)
        .map_err(|_| NodeError::invalid(format!("batch_dims {batch} is negative")))?;
    let places = indices(builder, places)?;
    Ok(vec![builder.apply(GatherNd { batch_axes }, &[data, places])?])
}

fn reduction(node: &mut Node) -> Result<ScatterReduction, NodeError> {
    Ok(match node.string_or("reduction", "none")?.as_str() {
        "none" => ScatterReduction::None,
        "add" => ScatterReduction::Add,
        "mul" => ScatterReduction::Multiply,
        "max" => ScatterReduction::Maximum,
        "min" => ScatterReduction::Minimum,
        other => return Err(NodeError::invalid(format!("reduction '{other}' is unknown"))),
    })
}

/// `ScatterElements`, and `Scatter` as it was called before.
pub(in crate::onnx) fn scatter_elements(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (data, places) = (node.input(0)?, node.input(1)?);
    let axis = axis(node.int_or("axis", 0)?, builder.rank(data))?;
    let reduction = reduction(node)?;
    let places = indices(builder, places)?;
    let inputs = [data, places, node.input(2)?];
    Ok(vec![builder.apply(ScatterElements::new(axis, reduction), &inputs)?])
}

/// `ScatterND`.
pub(in crate::onnx) fn scatter_nd(builder: &mut Builder, node: &mut Node) -> Outputs {
    let reduction = reduction(node)?;
    let places = indices(builder, node.input(1)?)?;
    let inputs = [node.input(0)?, places, node.input(2)?];
    Ok(vec![builder.apply(ScatterNd::new(reduction), &inputs)?])
}

/// `OneHot`.
pub(super) fn one_hot(builder: &mut Builder, node: &mut Node) -> Outputs {
    let places = node.input(0)?;
    let axis = axis(node.int_or("axis", -1)?, builder.rank(places) + 1)?;
    let depth = builder.integer_held(node, 1, node.declared_extent(0, axis))?;
    let depth = usize::try_from(depth).ok().filter(|own| (1..=u32::MAX as usize).contains(own));
    let depth = depth.ok_or_else(|| NodeError::invalid("the depth is no extent"))?;
    Ok(vec![builder.apply(OneHot { depth, axis }, &[places, node.input(2)?])?])
}
