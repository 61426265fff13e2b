//! What the first operator sets had otherwise.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::shorthands::{Step, axis};
use crate::NodeError;

/// From this operator set on operands are aligned at their last axes, as NumPy has it.
pub(super) const ALIGNED_OPSET: i64 = 7;

/// The second operand of an element-wise operator, in the form that broadcasts to the first. Before
/// [`ALIGNED_OPSET`] attribute `broadcast` allows it and `axis` says where in the first it begins; the slopes of
/// `PRelu` are those of channels.
pub(super) fn second_operand(b: &mut Builder, node: &mut Node, left: Operand) -> Step {
    let right = node.input(1)?;
    if node.opset >= ALIGNED_OPSET {
        return Ok(right);
    }
    let first = match node.operator.as_str() {
        "PRelu" if b.rank(right) == 1 && b.rank(left) > 1 => Some(1),
        "PRelu" => None,
        _ => {
            let broadcast = node.flag("broadcast", false)?;
            node.int("axis")?.filter(|_| broadcast)
        }
    };
    let (rank, mut shape) = (b.rank(left), b.shape(right));
    let Some(first) = first else { return Ok(right) };
    // One element fits everywhere.
    if shape.iter().product::<usize>() == 1 || shape.len() == rank {
        return Ok(right);
    }
    let first = axis(first, rank)?;
    let behind = rank.checked_sub(first + shape.len()).ok_or_else(|| {
        NodeError::invalid(format!("{} does not fit from axis {first} on", b.tensor_type(right)))
    })?;
    shape.extend(std::iter::repeat_n(1, behind));
    b.reshape(right, shape)
}
