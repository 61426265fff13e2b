//! Reductions: axes are an attribute before opset 18 (13 for `ReduceSum`), an input since.

use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{axes, axis};
use hone_ops::{ArgReduce, ReduceFunction as R, TopK};
use hone_types::DataType;

/// `ReduceSum` and the others of its kind.
pub(super) fn reduce(builder: &mut Builder, node: &mut Node) -> Outputs {
    let function = match node.operator.as_str() {
        "ReduceSum" => R::Sum,
        "ReduceMean" => R::Mean,
        "ReduceMax" => R::Maximum,
        "ReduceMin" => R::Minimum,
        "ReduceProd" => R::Product,
        "ReduceL1" => R::L1,
        "ReduceL2" => R::L2,
        "ReduceSumSquare" => R::SumSquare,
        "ReduceLogSum" => R::LogSum,
        "ReduceLogSumExp" => R::LogSumExp,
        other => return Err(NodeError::unsupported(other)),
    };
    let input = node.input(0)?;
    let rank = builder.rank(input);
    let since = if function == R::Sum { 13 } else { 18 };
    let (named, leave) = if node.opset < since {
        (node.ints("axes")?, false)
    } else {
        let leave = node.flag("noop_with_empty_axes", false)?;
        (builder.optional_integers(node, 1)?.filter(|named| !named.is_empty()), leave)
    };
    let keep_axes = node.flag("keepdims", true)?;
    let over = match named {
        Some(named) => axes(&named, rank)?,
        None if leave => Vec::new(),
        None => (0..rank).collect(),
    };
    if over.is_empty()
        && matches!(function, R::Sum | R::Mean | R::Maximum | R::Minimum | R::Product)
    {
        return Ok(vec![input]);
    }
    // Truth values have an order, but no reduction of ours: through small integers.
    if builder.dtype(input) == DataType::Bool && matches!(function, R::Maximum | R::Minimum) {
        let numbers = builder.cast(input, DataType::U8)?;
        let reduced = builder.reduce(function, numbers, over, keep_axes)?;
        return Ok(vec![builder.cast(reduced, DataType::Bool)?]);
    }
    Ok(vec![builder.reduce(function, input, over, keep_axes)?])
}

/// `ArgMax` and `ArgMin`.
pub(super) fn arg_reduce(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let operator = ArgReduce {
        maximum: node.operator == "ArgMax",
        axis: axis(node.int_or("axis", 0)?, builder.rank(input))?,
        keep_axis: node.flag("keepdims", true)?,
        select_last: node.flag("select_last_index", false)?,
    };
    Ok(vec![builder.apply(operator, &[input])?])
}

/// `TopK`: the number is an attribute before opset 10, an input since.
pub(super) fn top_k(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let number =
        if node.opset < 10 { node.int_or("k", -1)? } else { builder.integer_of(node, 1)? };
    let k = usize::try_from(number).map_err(|_| {
        NodeError::invalid(format!("k is {number}, which is no number of elements"))
    })?;
    let axis = axis(node.int_or("axis", -1)?, builder.rank(input))?;
    let largest = node.flag("largest", true)?;
    // Without `sorted` any order will do.
    node.ignore(&["sorted"]);
    builder.apply_all(TopK { k, axis, largest }, &[Some(input)])
}
