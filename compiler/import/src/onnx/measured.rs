//! Sizes that a network measures out by floats, and that nothing bounds: durations of sounds, say, which are rounded
//! exponentials; and those that integers decide which are inputs: durations, the numbers of graphs. There is room for a
//! number of elements that is decided here, and a run that needs more is ended.

use super::builder::{Builder, Operand};
use super::shorthands::Step;
use crate::NodeError;
use hone_graph::ValueId;
use hone_ops::{
    BinaryFunction as B, CumulativeSum, FusionClass, Graph, Op, Reduce, ReduceFunction,
    UnaryFunction,
};
use hone_types::DataType;
use std::collections::HashMap;

/// Elements for which there is room where the size is no sum.
const ROOM: usize = 1024;

/// Elements for which there is room for each term of a sum that the size is: two to three times the frames that the
/// corpus' model of speech makes of a token. All of the room is computed, so more would be slower.
const ROOM_PER_TERM: usize = 16;

/// Elements for which there is room for a sum at least, since few terms differ more from the mean.
const ROOM_OF_SUM: usize = 256;

/// Nodes that are looked through at most.
const FAR: usize = 256;

impl Builder {
    /// Whether a number is computed of floats that the graph under construction computes, or of integers that are inputs
    /// of the model, where these may decide a size.
    pub(super) fn is_measured(&self, number: Operand) -> bool {
        self.default_room(number).is_some()
    }

    /// For how many elements there is room where such a number is a size; `None` of other numbers. Sums have room in
    /// proportion to their terms: a longer text makes a longer sound.
    pub(super) fn default_room(&self, number: Operand) -> Option<usize> {
        let has_room = self.inputs_have_room && self.depth() == 1;
        let terms = measured_terms(self.graph(), self.own_value(number)?, has_room)?;
        Some(match terms {
            ..2 => ROOM,
            terms => terms.saturating_mul(ROOM_PER_TERM).max(ROOM_OF_SUM),
        })
    }

    /// A float that the graph under construction computes, rounded up, as `i64`; `None` of others.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn rounded_up(&mut self, number: Operand) -> Result<Option<Operand>, NodeError> {
        let value = self.own_value(number).filter(|_| self.dtype(number).is_float());
        if value.and_then(|value| self.graph().producer(value)).is_none() {
            return Ok(None);
        }
        let whole = self.unary(UnaryFunction::Ceil, number)?;
        self.cast(whole, DataType::I64).map(Some)
    }

    /// A number of elements that nothing bounds, a scalar of `i64` that is not negative: a run in which it is above `room` is ended.
    ///
    /// # Errors
    /// What an operator refuses.
    pub(super) fn held_to_room(&mut self, count: Operand, room: usize) -> Step {
        let fits = self.with_scalar(B::LessEqual, count, room as f64)?;
        let message = format!(
            "a size that the model computes is above {room}, the most that there is room for: give inputs that make \
             less, or declare the size in the model"
        );
        self.require(fits, message)?;
        let held = self.with_scalar(B::Minimum, count, room as f64)?;
        self.note_count(held, room);
        self.held.insert(held);
        Ok(held)
    }

    /// For how many there is room of several that are joined, each of a size that nothing bounds; `None` where there is no
    /// more room for each of them together.
    pub(super) fn joined_room(&self, counts: &[Operand], room: usize) -> Option<usize> {
        let most = counts.len().saturating_mul(ROOM_PER_TERM).max(ROOM);
        let is_held = |own: &Operand| self.held.contains(own);
        (most < room && !counts.is_empty() && counts.iter().all(is_held)).then_some(most)
    }
}

/// Of how many terms the largest sum is that a number is computed of; `None` of a number that is computed neither of floats
/// that are results of nodes nor, with `of_inputs`, of integers that are inputs.
fn measured_terms(graph: &Graph, number: ValueId, of_inputs: bool) -> Option<usize> {
    let is_integer_input = |value: ValueId| {
        let is_integer = matches!(graph.tensor_type(value).dtype, DataType::I32 | DataType::I64);
        is_integer && graph.inputs().iter().any(|port| port.value == value)
    };
    let is_float = |value: ValueId| graph.tensor_type(value).dtype.is_float();
    let mut seen: HashMap<ValueId, usize> = HashMap::new();
    let mut left = vec![(number, 1usize)];
    let (mut most, mut is_measured) = (1, false);
    for _ in 0..FAR {
        let Some((value, terms)) = left.pop() else { break };
        let known = seen.entry(value).or_insert(0);
        if *known >= terms {
            continue;
        }
        *known = terms;
        most = most.max(terms);
        let Some(node) = graph.producer(value) else {
            is_measured |= of_inputs && is_integer_input(value);
            continue;
        };
        let node = &graph.nodes()[node];
        for input in node.inputs.iter().flatten() {
            is_measured |= is_float(*input) && !is_float(value) && graph.producer(*input).is_some();
            if let Some(added) = terms_of_each(&node.operation, graph, (*input, value)) {
                left.push((*input, terms.saturating_mul(added)));
            }
        }
    }
    is_measured.then_some(most)
}

/// How many elements of an input an operator adds up for each of its result; `None` of an operator behind which nothing
/// is looked for, such as a product of matrices.
fn terms_of_each(
    operator: &Op,
    graph: &Graph,
    (input, result): (ValueId, ValueId),
) -> Option<usize> {
    let (from, to) = (graph.tensor_type(input), graph.tensor_type(result));
    if let Some(reduce) = operator.downcast::<Reduce>() {
        let each = from.elements().checked_div(to.elements()).unwrap_or(0).max(1);
        return Some(if reduce.function == ReduceFunction::Sum { each } else { 1 });
    }
    if let Some(sums) = operator.downcast::<CumulativeSum>() {
        return Some(if sums.product { 1 } else { from.shape.get(sums.axis).copied()?.max(1) });
    }
    (operator.fusion_class() == FusionClass::Injective).then_some(1)
}
