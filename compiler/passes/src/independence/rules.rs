//! What each operation does to a dimension that is followed through it. An operation that is not here is refused where it
//! reads what has the dimension.

use super::{Inference, Sliced};
use hone_graph::{Node, ValueId};
use hone_ops::{
    ArgReduce, Concat, CumulativeSum, Gather, GatherElements, GatherNd, Gru, LayerNormalization,
    LpNormalization, Lstm, NGrams, OneHot, Op, Pad, Reduce, Resize, Rnn, ScatterElements, Slice,
    Softmax, Text, TextFunction, Tile, TopK, Transpose,
};

/// Where each output has the dimension, or why positions are not shown to be apart.
type Found = Result<Vec<Option<Sliced>>, String>;

/// Where the outputs of a node have the dimension.
pub(super) fn outputs(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let is_position = |(index, input): (usize, &Option<ValueId>)| {
        let has = input.is_some_and(|input| inference.has_positions(input));
        has && !(index == 1 && node.operation.name() == Gather::NAME)
    };
    if node.inputs.iter().enumerate().any(is_position) {
        return Err("computes with positions along the dimension".to_owned());
    }
    if !node.inputs.iter().flatten().any(|input| inference.of(*input).is_some()) {
        return Ok(vec![None; node.outputs.len()]);
    }
    if is_elementwise(node) {
        return elementwise(inference, node);
    }
    match node.operation.name() {
        "matmul" => matmul(inference, node),
        "dot_products" => dot_products(inference, node),
        "convolution"
        | "convolution_transpose"
        | "pool"
        | "local_response_normalization"
        | "group_normalization"
        | "instance_normalization" => first_axis(inference, node),
        "batch_normalization" => along(inference, node, |at, _| match at.axis {
            1 => Err("computes with parameters along the dimension".to_owned()),
            _ => Ok(at),
        }),
        "trilu" => along(inference, node, |at, rank| match at.axis + 2 < rank {
            true => Ok(at),
            false => Err("keeps elements by their position along the dimension".to_owned()),
        }),
        "reshape" => reshape(inference, node),
        "expand" => expand(inference, node),
        "gather" => gather(inference, node),
        _ => with_axis(inference, node),
    }
}

/// Operations that have an axis, or one for each axis, among their attributes.
fn with_axis(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let operation = &node.operation;
    if let Some(operator) = operation.downcast::<Softmax>() {
        return beside(inference, node, operator.axis, "normalises along the dimension");
    }
    if let Some(operator) = operation.downcast::<LpNormalization>() {
        return beside(inference, node, operator.axis, "normalises along the dimension");
    }
    if let Some(operator) = operation.downcast::<CumulativeSum>() {
        return beside(inference, node, operator.axis, "adds up along the dimension");
    }
    if let Some(operator) = operation.downcast::<TopK>() {
        return beside(inference, node, operator.axis, "sorts along the dimension");
    }
    if let Some(operator) = operation.downcast::<LayerNormalization>() {
        return layer_normalization(inference, node, operator.axis);
    }
    if let Some(operator) = operation.downcast::<ArgReduce>() {
        return reduced(inference, node, &[operator.axis], operator.keep_axis);
    }
    if let Some(operator) = operation.downcast::<Reduce>() {
        return reduced(inference, node, &operator.axes, operator.keep_axes);
    }
    if let Some(operator) = operation.downcast::<Transpose>() {
        return along(inference, node, |at, _| {
            let axis = operator.permutation.iter().position(|from| *from == at.axis);
            axis.map(|axis| at.at(axis)).ok_or_else(|| "drops the dimension".to_owned())
        });
    }
    if let Some(operator) = operation.downcast::<Concat>() {
        return concat(inference, node, operator.axis);
    }
    if let Some(operator) = operation.downcast::<Pad>() {
        return along(inference, node, |at, _| {
            match (operator.begin[at.axis], operator.end[at.axis]) {
                (0, 0) => Ok(at),
                _ => Err("pads along the dimension".to_owned()),
            }
        });
    }
    if let Some(operator) = operation.downcast::<Tile>() {
        return along(inference, node, |at, _| {
            Ok(Sliced { outer: at.outer * operator.repeats[at.axis], ..at })
        });
    }
    if let Some(operator) = operation.downcast::<GatherNd>() {
        return gather_nd(inference, node, operator.batch_axes);
    }
    if let Some(operator) = operation.downcast::<GatherElements>() {
        return same_positions(inference, node, operator.axis, &[0, 1]);
    }
    if let Some(operator) = operation.downcast::<ScatterElements>() {
        return same_positions(inference, node, operator.axis, &[0, 1, 2]);
    }
    if let Some(operator) = operation.downcast::<OneHot>() {
        return along(inference, node, |at, _| {
            Ok(at.at(at.axis + usize::from(operator.axis <= at.axis)))
        });
    }
    if operation.name() == Slice::NAME || operation.name() == Resize::NAME {
        return unchanged_axis(inference, node);
    }
    if let Some(operator) = operation.downcast::<Text>() {
        // Split has further axes behind those of its input; Normalize drops elements.
        let apart =
            matches!(operator.function, TextFunction::Split { .. }) && node.outputs.len() == 3;
        if apart {
            let at = first_only(inference, node)?;
            return Ok(vec![Some(at), Some(at), None]);
        }
    }
    if let Some(operator) = operation.downcast::<NGrams>() {
        return first_axis(inference, node).and_then(|found| match operator.has_rows_apart() {
            true => Ok(found),
            false => Err("counts what fills up rows, as far as the longest one reaches".to_owned()),
        });
    }
    if let Some(batch_first) = recurrent(node) {
        return recurrence(inference, node, batch_first);
    }
    Err("is not followed along an open dimension".to_owned())
}

/// Whether each element of a node's results depends on the elements at the same index, after broadcasting.
pub(crate) fn is_elementwise(node: &Node<Op>) -> bool {
    let is_text = |operator: &Text| {
        use TextFunction as F;
        matches!(
            operator.function,
            F::Case { .. } | F::Concat | F::FromNumber | F::ToNumber { .. } | F::Match { .. }
        )
    };
    matches!(node.operation.name(), "unary" | "binary" | "cast" | "bit_cast" | "select")
        || node.operation.downcast::<Text>().is_some_and(is_text)
}

fn elementwise(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let rank = inference.shape(node.outputs[0]).len();
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let at = operands.iter().find_map(|value| {
        let operator = inference.of(*value)?;
        Some(operator.at(operator.axis + rank - inference.shape(*value).len()))
    });
    let Some(at) = at else { return Ok(vec![None; node.outputs.len()]) };
    for value in operands {
        inference.broadcast(value, at, rank)?;
    }
    Ok(vec![Some(at); node.outputs.len()])
}

/// The index of the dimension in the first input; no other one has it.
fn first_only(inference: &Inference<'_>, node: &Node<Op>) -> Result<Sliced, String> {
    for input in node.inputs.iter().skip(1) {
        inference.whole(*input, "second or a later operand")?;
    }
    let first = node.inputs.first().copied().flatten();
    first.and_then(|first| inference.of(first)).ok_or_else(|| "has no first operand".to_owned())
}

/// An operation whose results have the dimension where `index` says, of the index in its first input and its rank; no
/// other input has it.
fn along(
    inference: &mut Inference<'_>,
    node: &Node<Op>,
    index: impl Fn(Sliced, usize) -> Result<Sliced, String>,
) -> Found {
    let at = first_only(inference, node)?;
    let rank = node.inputs[0].map_or(0, |first| inference.shape(first).len());
    let at = index(at, rank)?;
    Ok(vec![Some(at); node.outputs.len()])
}

/// An operation over the other axes than its first.
fn first_axis(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    along(inference, node, |at, _| match at.axis {
        0 => Ok(at),
        axis => Err(format!("computes across the dimension, which is axis {axis} of its input")),
    })
}

/// An operation along one axis.
fn beside(inference: &mut Inference<'_>, node: &Node<Op>, axis: usize, mixes: &str) -> Found {
    along(inference, node, |at, _| if at.axis == axis { Err(mixes.to_owned()) } else { Ok(at) })
}

fn layer_normalization(inference: &mut Inference<'_>, node: &Node<Op>, axis: usize) -> Found {
    let input = node.inputs[0];
    let Some((input, at)) = input.and_then(|value| Some((value, inference.of(value)?))) else {
        return Err("has the dimension in its parameters alone".to_owned());
    };
    if at.axis >= axis {
        return Err("normalises along the dimension".to_owned());
    }
    let rank = inference.shape(input).len();
    for parameter in node.inputs.iter().skip(1).flatten() {
        inference.broadcast(*parameter, at, rank)?;
    }
    Ok(vec![Some(at); node.outputs.len()])
}

fn reduced(inference: &mut Inference<'_>, node: &Node<Op>, axes: &[usize], keep: bool) -> Found {
    along(inference, node, |at, _| {
        if axes.contains(&at.axis) {
            return Err("reduces along the dimension".to_owned());
        }
        let before = axes.iter().filter(|axis| **axis < at.axis).count();
        Ok(at.at(if keep { at.axis } else { at.axis - before }))
    })
}

fn concat(inference: &mut Inference<'_>, node: &Node<Op>, axis: usize) -> Found {
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let at = operands.iter().find_map(|value| inference.of(*value));
    let at = at.ok_or_else(|| "has no operand".to_owned())?;
    if at.axis == axis {
        return Err("joins its operands along the dimension".to_owned());
    }
    for value in operands {
        inference.sliced(value, at)?;
    }
    Ok(vec![Some(at)])
}

/// Operations that keep axes as they are, which the types show, and compute something along others.
fn unchanged_axis(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let at = first_only(inference, node)?;
    let input = node.inputs[0].map_or(0, |first| inference.shape(first)[at.axis]);
    let same = input == inference.shape(node.outputs[0])[at.axis];
    let kept = match (node.operation.downcast::<Slice>(), node.operation.downcast::<Resize>()) {
        (Some(operator), _) => operator.starts[at.axis] == 0 && operator.steps[at.axis] == 1,
        (_, Some(operator)) => operator.region.is_empty() && operator.scales[at.axis] == 1.0,
        _ => false,
    };
    match same && kept {
        true => Ok(vec![Some(at)]),
        false => Err("takes positions along the dimension from others".to_owned()),
    }
}

/// An operation that reads and writes elements at other positions along one axis alone: its operands `positions` have the
/// dimension along another one.
fn same_positions(
    inference: &mut Inference<'_>,
    node: &Node<Op>,
    axis: usize,
    positions: &[usize],
) -> Found {
    let operands: Vec<ValueId> =
        positions.iter().filter_map(|index| node.inputs.get(*index).copied().flatten()).collect();
    let at = operands.iter().find_map(|value| inference.of(*value));
    let at = at.ok_or_else(|| "has no operand".to_owned())?;
    if at.axis == axis {
        return Err("moves elements along the dimension".to_owned());
    }
    for value in operands {
        inference.sliced(value, at)?;
    }
    Ok(vec![Some(at)])
}

fn matmul(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let (Some(left), Some(right)) = (node.inputs[0], node.inputs[1]) else {
        return Err("has no operands".to_owned());
    };
    let ranks = [inference.shape(left).len(), inference.shape(right).len()];
    let batch = ranks[0].max(ranks[1]).max(2) - 2;
    let out = inference.shape(node.outputs[0]).len();
    let sums = || Err("adds up products along the dimension".to_owned());
    for (operator, other, rank, other_rank, is_left) in
        [(left, right, ranks[0], ranks[1], true), (right, left, ranks[1], ranks[0], false)]
    {
        let Some(at) = inference.of(operator) else { continue };
        let is_summed = if is_left { at.axis + 1 == rank } else { at.axis + 2 == rank.max(2) };
        if is_summed {
            return sums();
        }
        if at.axis + 2 >= rank {
            // Rows of the left or columns of the right one.
            inference.whole(Some(other), "operands along different axes")?;
            let columns = usize::from(is_left && other_rank > 1);
            return Ok(vec![Some(at.at(out - 1 - columns))]);
        }
        let index = at.axis + batch - (rank - 2);
        // As an operand that is broadcast, with its matrices' axes behind.
        match other_rank < 2 {
            true => inference.whole(Some(other), "operands along different axes")?,
            false => inference.broadcast(other, at.at(index), batch + 2)?,
        }
        return Ok(vec![Some(at.at(index))]);
    }
    sums()
}

fn dot_products(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let at = operands.iter().find_map(|value| inference.of(*value));
    let at = at.ok_or_else(|| "has no operand".to_owned())?;
    if at.axis + 2 >= inference.shape(operands[0]).len() {
        return Err("computes along the dimension".to_owned());
    }
    for value in operands {
        inference.sliced(value, at)?;
    }
    Ok(vec![Some(at)])
}

/// The order of elements stays, and with it the distance between positions: the axis of the result that has this stride
/// has the dimension, where it holds all positions.
fn reshape(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let at = first_only(inference, node)?;
    let input = node.inputs[0].map(|first| inference.shape(first)).unwrap_or_default();
    let stride = at.inner * input[at.axis + 1..].iter().product::<usize>();
    let shape = inference.shape(node.outputs[0]);
    let mut behind = 1;
    for (axis, extent) in shape.iter().enumerate().rev() {
        if *extent > 1 && stride >= behind && stride < behind * extent {
            let inner = stride / behind;
            let fits = stride % behind == 0 && extent % (inner * inference.size) == 0;
            if !fits {
                break;
            }
            let outer = extent / (inner * inference.size);
            return Ok(vec![Some(Sliced { axis, outer, inner })]);
        }
        behind *= extent;
    }
    Err("divides the dimension among axes".to_owned())
}

fn expand(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let rank = inference.shape(node.outputs[0]).len();
    along(inference, node, |at, operator| Ok(at.at(at.axis + rank - operator)))
}

fn gather(inference: &mut Inference<'_>, node: &Node<Op>) -> Found {
    let operator = node.operation.downcast::<Gather>().ok_or("is no gather")?;
    let (Some(data), Some(indices)) = (node.inputs[0], node.inputs[1]) else {
        return Err("has no operands".to_owned());
    };
    let rank = inference.shape(indices).len();
    match (inference.of(data), inference.of(indices)) {
        (Some(_), Some(_)) => Err("takes positions along the dimension by index".to_owned()),
        (Some(at), None) if at.axis == operator.axis && at.outer == 1 => {
            let positions = inference.add_positions(indices, at.inner);
            let axis = positions.ok_or("takes positions along the dimension by index")?;
            Ok(vec![Some(Sliced::whole_axis(operator.axis + axis))])
        }
        _ if inference.has_positions(indices) => {
            Err("computes with positions along the dimension".to_owned())
        }
        (None, Some(at)) => Ok(vec![Some(at.at(operator.axis + at.axis))]),
        (Some(at), None) if at.axis == operator.axis => {
            Err("takes positions along the dimension by index".to_owned())
        }
        (Some(at), None) if at.axis < operator.axis => Ok(vec![Some(at)]),
        (Some(at), None) => Ok(vec![Some(at.at(at.axis + rank - 1))]),
        (None, None) => Ok(vec![None]),
    }
}

fn gather_nd(inference: &mut Inference<'_>, node: &Node<Op>, batch: usize) -> Found {
    let (Some(data), Some(indices)) = (node.inputs[0], node.inputs[1]) else {
        return Err("has no operands".to_owned());
    };
    let last = inference.shape(indices).len() - 1;
    match (inference.of(data), inference.of(indices)) {
        (None, Some(at)) if batch == 0 && at.axis < last => Ok(vec![Some(at)]),
        (Some(at), _) | (None, Some(at)) if at.axis < batch => {
            inference.sliced(data, at)?;
            inference.sliced(indices, at)?;
            Ok(vec![Some(at)])
        }
        _ => Err("takes positions along the dimension by index".to_owned()),
    }
}

/// Whether a recurrent operator has the batch first; `None` of any other.
fn recurrent(node: &Node<Op>) -> Option<bool> {
    let lstm = node.operation.downcast::<Lstm>().map(|operator| operator.batch_first);
    let gru = || node.operation.downcast::<Gru>().map(|operator| operator.batch_first);
    lstm.or_else(gru)
        .or_else(|| node.operation.downcast::<Rnn>().map(|operator| operator.batch_first))
}

/// Recurrent operators: steps go on along their operator axis, and each sequence of the batch by itself.
fn recurrence(inference: &mut Inference<'_>, node: &Node<Op>, batch_first: bool) -> Found {
    let batch = if batch_first { 0 } else { 1 };
    let at = node.inputs[0].and_then(|input| inference.of(input));
    let at = at.ok_or_else(|| "has the dimension in its states alone".to_owned())?;
    if at.axis != batch {
        return Err("computes step by step along the dimension".to_owned());
    }
    for (index, input) in node.inputs.iter().enumerate().skip(1) {
        let Some(input) = *input else { continue };
        match index {
            4 => inference.sliced(input, at.at(0))?,
            5 | 6 => inference.sliced(input, at)?,
            _ => inference.whole(Some(input), "weights")?,
        }
    }
    let sequence = if batch_first { 0 } else { 2 };
    let states = node.outputs.len().saturating_sub(1);
    let outputs = std::iter::once(Some(at.at(sequence)));
    Ok(outputs.chain(vec![Some(at); states]).collect())
}
