//! Sequences of tensors, and optional values. Their lengths and the places asked for are known when compiling: a sequence
//! is a list of operands and leaves nothing in the graph.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{axis, extents};
use hone_types::Tensor;

/// The operands of the sequence at `place`.
fn items(builder: &Builder, node: &Node, place: usize) -> Result<Vec<Operand>, NodeError> {
    let items = builder.items(node.input(place)?);
    items.ok_or_else(|| NodeError::invalid(format!("input number {place} is no sequence")))
}

/// A position among `count` items, from input `place`; negative ones count from the end.
fn position(
    builder: &Builder,
    node: &Node,
    place: usize,
    count: usize,
) -> Result<usize, NodeError> {
    axis(builder.integer_of(node, place)?, count)
        .map_err(|_| NodeError::invalid(format!("a sequence of {count} has no such place")))
}

/// `SequenceEmpty`, `SequenceConstruct`.
pub(super) fn construct(builder: &mut Builder, node: &mut Node) -> Outputs {
    node.ignore(&["dtype"]);
    let items = if node.inputs.is_empty() { Vec::new() } else { node.variadic()? };
    Ok(vec![builder.sequence(items)])
}

/// `SequenceInsert`: at the end, or before a position.
pub(super) fn insert(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut items = items(builder, node, 0)?;
    let place = match node.optional(2) {
        Some(_) if builder.integer_of(node, 2)? == items.len() as i64 => items.len(),
        Some(_) => position(builder, node, 2, items.len())?,
        None => items.len(),
    };
    items.insert(place, node.input(1)?);
    Ok(vec![builder.sequence(items)])
}

/// `SequenceErase`: the last, or that at a position.
pub(super) fn erase(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut items = items(builder, node, 0)?;
    let place = match node.optional(1) {
        Some(_) => position(builder, node, 1, items.len())?,
        None => {
            items.len().checked_sub(1).ok_or_else(|| NodeError::invalid("the sequence is empty"))?
        }
    };
    items.remove(place);
    Ok(vec![builder.sequence(items)])
}

/// `SequenceAt`.
pub(super) fn at(builder: &mut Builder, node: &mut Node) -> Outputs {
    let items = items(builder, node, 0)?;
    let place = position(builder, node, 1, items.len())?;
    Ok(vec![items[place]])
}

/// `SequenceLength`.
pub(super) fn length(builder: &mut Builder, node: &mut Node) -> Outputs {
    let count = items(builder, node, 0)?.len();
    Ok(vec![builder.constant(Tensor::scalar(count as i64))])
}

/// `SplitToSequence`: parts of one extent, of given extents, or single places.
pub(super) fn split(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let shape = builder.shape(x);
    let along = axis(node.int_or("axis", 0)?, shape.len())?;
    let keep = node.flag("keepdims", true)?;
    let extent = shape[along];
    let (parts, single) = match node.optional(1) {
        None => (vec![1; extent], true),
        Some(own) => {
            let given = extents(&builder.integers_of(node, 1)?, "split")?;
            match (builder.rank(own), given.as_slice()) {
                (0, [0]) => return Err(NodeError::invalid("parts of extent 0")),
                (0, [part]) => {
                    let whole = vec![*part; extent / part];
                    let rest = extent % part;
                    ([whole, if rest > 0 { vec![rest] } else { Vec::new() }].concat(), false)
                }
                _ => (given, false),
            }
        }
    };
    let sum = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
    if sum != Some(extent) || parts.len() > 1 << 16 {
        return Err(NodeError::invalid(format!(
            "{} parts do not make extent {extent}",
            parts.len()
        )));
    }
    let (mut start, mut items) = (0, Vec::with_capacity(parts.len()));
    for part in parts {
        let mut item = builder.narrow(x, along, start, part)?;
        if single && !keep {
            let mut less = shape.clone();
            less.remove(along);
            item = builder.reshape(item, less)?;
        }
        items.push(item);
        start += part;
    }
    Ok(vec![builder.sequence(items)])
}

/// `ConcatFromSequence`: along an axis, or along a new one.
pub(super) fn join(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut items = items(builder, node, 0)?;
    let first = *items.first().ok_or_else(|| NodeError::invalid("the sequence is empty"))?;
    let (place, new) = (node.int_or("axis", 0)?, node.flag("new_axis", false)?);
    let along = axis(place, builder.rank(first) + usize::from(new))?;
    if new {
        for item in &mut items {
            let mut shape = builder.shape(*item);
            shape.insert(along.min(shape.len()), 1);
            *item = builder.reshape(*item, shape)?;
        }
    }
    Ok(vec![builder.concat(&items, along)?])
}

/// `Optional`: what is given, or nothing.
pub(super) fn optional(builder: &mut Builder, node: &mut Node) -> Outputs {
    node.ignore(&["type"]);
    Ok(vec![match node.optional(0) {
        Some(given) => given,
        None => builder.absent(),
    }])
}

/// `OptionalHasElement`.
pub(super) fn has_element(builder: &mut Builder, node: &mut Node) -> Outputs {
    let there = node.optional(0).is_some_and(|own| !builder.is_absent(own));
    Ok(vec![builder.constant(Tensor::scalar(there))])
}

/// `OptionalGetElement` of what is there.
pub(super) fn element(builder: &mut Builder, node: &mut Node) -> Outputs {
    let own = node.input(0)?;
    match builder.is_absent(own) {
        true => Err(NodeError::invalid("the optional value has no element")),
        false => Ok(vec![own]),
    }
}
