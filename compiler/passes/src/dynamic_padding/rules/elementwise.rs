//! Functions of the elements at the same index.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Behind, Bounded};
use crate::dynamic_padding::constants::{is_finite, repeated};
use crate::independence::is_elementwise as is_plain;
use hone_graph::{Node, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Op, Select, Unary, UnaryFunction};

/// Whether each element of a node's results depends on the elements at the same index, after broadcasting.
pub(super) fn is_elementwise(node: &Node<Op>) -> bool {
    is_plain(node)
}

/// Positions stay positions. Zeros behind the size are followed as far as that is certain for every way of computing.
pub(super) fn add(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let rank = step.results.first().map_or(0, |result| result.rank());
    for value in step.inputs.iter().flatten() {
        let missing = rank - new.graph().tensor_type(*value).rank().min(rank);
        for along in new.along(*value) {
            let same = step.result(along.axis + missing).map(|result| result.length);
            if same != Some(along.length) {
                return Err("has the dimension along different axes of its operands".to_owned());
            }
        }
    }
    let axes: Vec<Along> = step.axes.first().cloned().unwrap_or_default();
    for along in axes {
        let axis = Axis { axis: along.axis, rank };
        if let Some(behind) = axis.result(new, step) {
            step.behind(along.axis, behind);
        }
    }
    step.copy(new)
}

/// An axis of an element-wise function's result.
struct Axis {
    axis: usize,
    rank: usize,
}

impl Axis {
    /// What an operand holds behind the size along the axis.
    fn behind(&self, new: &Bounded, value: ValueId) -> Behind {
        if let Some(number) = new.graph().constant(value).and_then(repeated) {
            return Behind::Number(number);
        }
        let missing = self.rank - new.graph().tensor_type(value).rank().min(self.rank);
        let along = self.axis.checked_sub(missing).and_then(|axis| new.along_axis(value, axis));
        along.map_or(Behind::Anything, |along| along.behind)
    }

    fn is_zero(&self, new: &Bounded, value: ValueId) -> bool {
        self.behind(new, value) == Behind::Number(0.0)
    }

    /// What the result holds there, where that is zero.
    fn result(&self, new: &Bounded, step: &Step<'_>) -> Option<Behind> {
        let operation = &step.node.operation;
        let first = step.inputs.first().copied().flatten()?;
        if let Some(unary) = operation.downcast::<Unary>() {
            use UnaryFunction as F;
            let keeps = matches!(
                unary.function,
                F::Negate | F::Abs | F::Relu | F::Floor | F::Ceil | F::Round | F::Sign
            );
            return (keeps && self.is_zero(new, first)).then_some(Behind::Number(0.0));
        }
        if operation.downcast::<Cast>().is_some() {
            return match self.behind(new, first) {
                Behind::Number(0.0) => Some(Behind::Number(0.0)),
                Behind::Weights => Some(Behind::Weights)
                    .filter(|_| new.graph().tensor_type(first).dtype.is_float() && step.is_float()),
                _ => None,
            };
        }
        let second = step.inputs.get(1).copied().flatten()?;
        if let Some(binary) = operation.downcast::<Binary>() {
            return self.product(new, binary.function, [first, second]);
        }
        if operation.downcast::<Select>().is_some() {
            let third = step.inputs.get(2).copied().flatten()?;
            let zeros = self.is_zero(new, second) && self.is_zero(new, third);
            let zeros = zeros || self.removes_nan(new, [first, second, third]);
            return zeros.then_some(Behind::Number(0.0));
        }
        None
    }

    fn product(
        &self,
        new: &Bounded,
        function: BinaryFunction,
        [left, right]: [ValueId; 2],
    ) -> Option<Behind> {
        let finite = |value: ValueId| new.graph().constant(value).is_some_and(is_finite);
        let zero = |value: ValueId| self.is_zero(new, value);
        let zeros = match function {
            BinaryFunction::Multiply => {
                (zero(left) && (finite(right) || zero(right))) || (finite(left) && zero(right))
            }
            BinaryFunction::Divide => {
                let by = new.graph().constant(right).filter(|by| by.dtype().is_float());
                zero(left) && by.is_some_and(|by| is_finite(by) && !by.to_f64().contains(&0.0))
            }
            BinaryFunction::And => zero(left) || zero(right),
            BinaryFunction::Add | BinaryFunction::Subtract => zero(left) && zero(right),
            _ => false,
        };
        zeros.then_some(Behind::Number(0.0))
    }

    /// Whether a choice puts zeros where a softmax left what is not a number.
    fn removes_nan(&self, new: &Bounded, [condition, then, otherwise]: [ValueId; 3]) -> bool {
        let Some(producer) = new.graph().producer(condition) else { return false };
        let test = &new.graph().nodes()[producer];
        let is_nan = test.operation.downcast::<Unary>().map(|entry| entry.function)
            == Some(UnaryFunction::IsNan);
        is_nan
            && test.inputs.first() == Some(&Some(otherwise))
            && self.is_zero(new, then)
            && self.behind(new, otherwise) == Behind::Weights
    }
}

impl Step<'_> {
    /// Whether a cast gives numbers that may be none.
    fn is_float(&self) -> bool {
        self.node.operation.downcast::<Cast>().is_some_and(|cast| cast.to.is_float())
    }
}
