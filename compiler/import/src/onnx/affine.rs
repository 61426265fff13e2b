//! Slices whose place moves with the number of a loop's iteration: `x[i + a : i + b]` has a shape that is known.

use super::builder::{Builder, Operand};
use super::control::number_type;
use crate::NodeError;
use hone_graph::{Definition, ValueId};
use hone_ops::{Binary, BinaryFunction, Cast, Gather, Graph, Reshape};
use hone_types::{DataType, Tensor};

/// Nodes between a place and the number of the iteration that are looked through at most.
const FAR: usize = 32;

/// What an integer is: the number of an iteration and something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moving {
    number: ValueId,
    offset: i64,
}

impl Builder {
    /// Adds the number of an iteration as an input of the graph under construction; it is below `limit`.
    pub fn add_number(&mut self, name: &str, limit: Option<u64>) -> Operand {
        let operand = self.add_input(name, number_type());
        let number = self.graph().inputs().len() - 1;
        self.note_limit(number, limit);
        if let Some(most) = limit.and_then(|limit| usize::try_from(limit).ok()) {
            self.note_count(operand, most.saturating_sub(1));
        }
        operand
    }

    /// `input[start..end]` along an axis, where both ends move with the number of an iteration, stay apart as far, and
    /// stay inside in every iteration; `None` where that is not known.
    ///
    /// # Errors
    /// What an operator refuses.
    pub fn moving_slice(
        &mut self,
        input: Operand,
        axis: usize,
        start: Operand,
        end: Operand,
    ) -> Result<Option<Operand>, NodeError> {
        let (Some(from), Some(to)) = (self.moving(start), self.moving(end)) else {
            return Ok(None);
        };
        let Some(limit) = self.limit_of(from.number).filter(|_| from.number == to.number) else {
            return Ok(None);
        };
        let extent = self.shape(input)[axis] as i64;
        let length = to.offset.saturating_sub(from.offset);
        let last = (limit as i64).saturating_sub(1).saturating_add(to.offset);
        if from.offset < 0 || length < 0 || last > extent {
            return Ok(None);
        }
        let places: Vec<i64> = (0..length).collect();
        let places = self.integers(&places)?;
        let start = self.reshape(start, vec![1])?;
        let places = self.add(start, places)?;
        self.apply(Gather { axis }, &[input, places]).map(Some)
    }

    /// `start..end` in every iteration, where both are read from constant lists at the iteration's number, as the bounds
    /// of the bags of an embedding are; `None` of others.
    pub fn listed_bounds(&mut self, start: Operand, end: Operand) -> Option<Vec<(i64, i64)>> {
        let (start, end) = (self.own_value(start)?, self.own_value(end)?);
        let (starts, at) = listed(self.graph(), start)?;
        let (ends, also_at) = listed(self.graph(), end)?;
        let count = usize::try_from(self.limit_of(at)?).ok()?;
        if at != also_at || starts.len() < count || ends.len() < count {
            return None;
        }
        Some(starts.into_iter().zip(ends).take(count).collect())
    }

    /// What an integer of one element is, by the nodes of the graph under construction.
    fn moving(&mut self, operand: Operand) -> Option<Moving> {
        if self.tensor(operand).is_some() || self.tensor_type(operand).elements() != 1 {
            return None;
        }
        let value = self.own_value(operand)?;
        moving(self.graph(), value)
    }
}

/// The constant list of which an integer of one element is read, and the value that says at which place.
fn listed(graph: &Graph, mut value: ValueId) -> Option<(Vec<i64>, ValueId)> {
    for _ in 0..FAR {
        let node = &graph.nodes()[graph.producer(value)?];
        let operand = |place: usize| node.inputs.get(place).copied().flatten();
        if node.operation.downcast::<Reshape>().is_some() {
            value = operand(0)?;
            continue;
        }
        node.operation.downcast::<Gather>()?;
        let list = graph.constant(operand(0)?)?;
        let is_list = list.shape().len() == 1 && list.dtype() == DataType::I64;
        return is_list.then(|| Some((list.to_i64(), operand(1)?)))?;
    }
    None
}

fn moving(graph: &Graph, mut value: ValueId) -> Option<Moving> {
    let mut offset = 0i64;
    for _ in 0..FAR {
        let id = match graph.values()[value].definition {
            Definition::Input(_) => return Some(Moving { number: value, offset }),
            Definition::Constant(_) => return None,
            Definition::Output(node, _) => node,
        };
        let node = &graph.nodes()[id];
        let operand = |place: usize| node.inputs.get(place).copied().flatten();
        let integer = |value: ValueId| {
            let tensor: &Tensor = graph.constant(value)?;
            (tensor.tensor_type().elements() == 1).then(|| tensor.to_i64()[0])
        };
        let operation = &node.operation;
        let keeps = operation.downcast::<Reshape>().is_some()
            || operation
                .downcast::<Cast>()
                .is_some_and(|cast| cast.to.is_integer() && cast.to.bytes() == 8);
        if keeps {
            value = operand(0)?;
            continue;
        }
        let (left, right) = (operand(0)?, operand(1)?);
        let (next, added) = match operation.downcast::<Binary>()?.function {
            BinaryFunction::Add => match integer(right) {
                Some(added) => (left, added),
                None => (right, integer(left)?),
            },
            BinaryFunction::Subtract => (left, integer(right)?.checked_neg()?),
            _ => return None,
        };
        offset = offset.checked_add(added)?;
        value = next;
    }
    None
}

/// The place of an input among those of its graph.
pub(super) fn input_place(graph: &Graph, value: ValueId) -> Option<usize> {
    match graph.values().get(value).map(|value| &value.definition) {
        Some(Definition::Input(place)) => Some(*place),
        _ => None,
    }
}
