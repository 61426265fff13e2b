//! Operators whose results have a size that depends on data.

use super::shaping;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::axis;
use hone_ops::{Compress, NonMaxSuppression, NonZero, Operator, Unique};

/// `NonZero`.
pub(super) fn non_zero(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    apply(builder, NonZero {}, &[Some(input)], &[Some(1)])
}

/// `Compress`.
pub(super) fn compress(builder: &mut Builder, node: &mut Node) -> Outputs {
    if builder.integers_of(node, 1).is_ok() {
        // What is kept is known, and so is its size.
        return shaping::compress(builder, node);
    }
    let (input, condition) = (node.input(0)?, node.input(1)?);
    let along = along(builder, node, input)?;
    apply(
        builder,
        Compress { axis: along },
        &[Some(input), Some(condition)],
        &[Some(along.unwrap_or(0))],
    )
}

/// `Unique`.
pub(super) fn unique(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let axis = along(builder, node, input)?;
    let sorted = node.flag("sorted", true)?;
    let open = [Some(axis.unwrap_or(0)), Some(0), None, Some(0)];
    apply(builder, Unique { axis, sorted }, &[Some(input)], &open)
}

/// `NonMaxSuppression`.
pub(super) fn non_max_suppression(builder: &mut Builder, node: &mut Node) -> Outputs {
    let centers = node.flag("center_point_box", false)?;
    let inputs: Vec<Option<Operand>> = (0..5).map(|place| node.optional(place)).collect();
    let boxes = builder.shape(node.input(0)?).get(1).copied().unwrap_or(0);
    let given = node.optional(2).map(|most| builder.tensor(most).map(|own| own.to_i64()));
    let most = match given {
        None => 0,
        Some(None) => boxes,
        Some(Some(known)) => {
            let known = known.first().copied().unwrap_or(0).max(0);
            usize::try_from(known).unwrap_or(usize::MAX).min(boxes)
        }
    };
    apply(builder, NonMaxSuppression { centers, most }, &inputs, &[Some(0)])
}

fn along(builder: &Builder, node: &mut Node, input: Operand) -> Result<Option<usize>, NodeError> {
    let rank = builder.rank(input);
    node.int("axis")?.map(|number| axis(number, rank)).transpose()
}

/// The results but the last, which says how many there are along the axis that is named for each.
fn apply(
    builder: &mut Builder,
    operator: impl Operator,
    inputs: &[Option<Operand>],
    open: &[Option<usize>],
) -> Outputs {
    let mut outputs = builder.apply_all(operator, inputs)?;
    let count = outputs.pop().ok_or_else(|| NodeError::invalid("the operator has no result"))?;
    for (output, axis) in outputs.iter_mut().zip(open) {
        if let Some(axis) = axis {
            builder.note_count(count, builder.shape(*output)[*axis]);
            *output = builder.cut(*output, *axis, count)?;
        }
    }
    Ok(outputs)
}
