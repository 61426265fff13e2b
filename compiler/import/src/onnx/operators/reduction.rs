//! Reductions: axes are an attribute before opset 18 (13 for `ReduceSum`), an input since.

use super::decided;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::held;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, axes, axis};
use hone_ops::{ArgReduce, BinaryFunction, ReduceFunction as R, TopK};
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
    if node.opset >= since && decided::is_open(builder, node, 1) {
        return reduce_by_axes(builder, node, function);
    }
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
    Ok(vec![reduced(builder, function, input, over, keep_axes)?])
}

/// A reduction over axes.
fn reduced(
    builder: &mut Builder,
    function: R,
    input: Operand,
    over: Vec<usize>,
    keep_axes: bool,
) -> Step {
    if over.is_empty()
        && matches!(function, R::Sum | R::Mean | R::Maximum | R::Minimum | R::Product)
    {
        return Ok(input);
    }
    // Truth values have an order, but no reduction of ours: through small integers.
    if builder.dtype(input) == DataType::Bool && matches!(function, R::Maximum | R::Minimum) {
        let numbers = builder.cast(input, DataType::U8)?;
        let reduced = builder.reduce(function, numbers, over, keep_axes)?;
        return builder.cast(reduced, DataType::Bool);
    }
    builder.reduce(function, input, over, keep_axes)
}

/// A reduction over axes that a run decides: each set of axes that gives the declared shape is compiled.
fn reduce_by_axes(builder: &mut Builder, node: &mut Node, function: R) -> Outputs {
    node.ignore(&["noop_with_empty_axes"]);
    let keep_axes = node.flag("keepdims", true)?;
    let (input, named) = (node.input(0)?, node.input(1)?);
    let shape = builder.shape(input);
    let count = builder.tensor_type(named).elements();
    let sets = held::subsets(shape.len(), count).zip(node.declared(0));
    let (mut sets, target) = sets.ok_or_else(|| builder.not_constant(node, 1))?;
    sets.retain(|set| {
        let over = held::members(*set);
        let axes = shape.iter().enumerate();
        let left = axes.filter_map(|(axis, extent)| match over.contains(&axis) {
            true => keep_axes.then_some(1),
            false => Some(*extent),
        });
        left.eq(target.iter().copied())
    });
    let key = builder.axes_key(named, shape.len())?;
    let name = node.input_names.get(1).cloned().unwrap_or_default();
    let message = format!("the axes in input '{name}' do not give the declared shape {target:?}");
    let result = builder.choose(key, &sets, &message, &mut |builder, set| {
        reduced(builder, function, input, held::members(set), keep_axes)
    })?;
    Ok(vec![result])
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

/// `TopK` of as many as a run says: all in order, of which the first are taken.
fn top_of(builder: &mut Builder, node: &mut Node, axis: usize, number: Operand) -> Outputs {
    let input = node.input(0)?;
    let extent = builder.shape(input)[axis];
    // No more than it may be, as in models that take the least of a number and what there is.
    let most = builder.ranges(number).and_then(|own| usize::try_from(own.first()?.most).ok());
    let k = most.unwrap_or(extent).min(extent);
    let largest = node.flag("largest", true)?;
    node.ignore(&["sorted"]);
    let number = builder.reshape(number, vec![])?;
    let fits = builder.with_scalar(BinaryFunction::LessEqual, number, k as f64)?;
    builder.require(fits, "there are fewer elements than are to be chosen")?;
    let outputs = builder.apply_all(TopK::new(k, axis, largest), &[Some(input)])?;
    for output in &outputs {
        builder.set_spread_extent(*output, axis, number);
    }
    Ok(outputs)
}

/// `TopK`: the number is an attribute before opset 10, an input since.
pub(super) fn top_k(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let axis = axis(node.int_or("axis", -1)?, builder.rank(input))?;
    let number = match node.opset {
        ..10 => node.int_or("k", -1)?,
        _ => {
            let implied = (0..2).find_map(|output| node.declared_extent(output, axis));
            let given = node.input(1)?;
            if implied.is_none() && builder.tensor(given).is_none() {
                return top_of(builder, node, axis, given);
            }
            builder.integer_held(node, 1, implied)?
        }
    };
    let k = usize::try_from(number).map_err(|_| {
        NodeError::invalid(format!("k is {number}, which is no number of elements"))
    })?;
    let largest = node.flag("largest", true)?;
    // Without `sorted` any order will do.
    node.ignore(&["sorted"]);
    builder.apply_all(TopK::new(k, axis, largest), &[Some(input)])
}
