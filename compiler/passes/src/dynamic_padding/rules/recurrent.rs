//! Recurrent operators over time, which is the dimension: forward, a step follows from those before; from the last step on
//! and for final states, sequences are told where they end.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Behind, Bounded};
use crate::dynamic_padding::length::Length;
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Cast, Direction, Expand, Gru, Lstm, Rnn};
use hone_types::DataType;

/// An LSTM, GRU or RNN.
pub(super) fn add(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let (direction, batch_first) = form(step).ok_or("is no recurrent operator")?;
    let first = step.input(0)?;
    let (time, batch) = if batch_first { (1, 0) } else { (0, 1) };
    for along in new.along(first) {
        if along.axis == 2 {
            return Err("sums up features, which are the dimension".to_owned());
        }
    }
    for (position, input) in step.inputs.iter().enumerate().skip(1) {
        let Some(value) = *input else { continue };
        let may_have = matches!(position, 4..=6) && new.along_axis(first, batch).is_some();
        if !may_have && !new.along(value).is_empty() {
            return Err("has the dimension in its weights or states".to_owned());
        }
    }
    let Some(along) = new.along_axis(first, time) else { return step.copy(new) };
    if direction == Direction::Forward && step.unread.iter().skip(1).all(|unread| *unread) {
        return step.copy(new);
    }
    let extent = new.graph().tensor_type(first).shape[batch];
    let lengths = lengths(new, step, extent, along.length)?;
    step.inputs.resize(step.inputs.len().max(5), None);
    step.inputs[4] = Some(lengths);
    // Steps behind the end of a sequence give zeros.
    if let Some(sequence) = step.axes.first_mut() {
        let time = if batch_first { 1 } else { 0 };
        for result in sequence.iter_mut().filter(|result| result.axis == time) {
            result.behind = Behind::Number(0.0);
        }
    }
    step.copy(new)
}

/// Direction, and whether the batch comes first.
fn form(step: &Step<'_>) -> Option<(Direction, bool)> {
    let operation = &step.node.operation;
    let lstm = operation.downcast::<Lstm>().map(|entry| (entry.direction, entry.batch_first));
    let gru = || operation.downcast::<Gru>().map(|entry| (entry.direction, entry.batch_first));
    let rnn = || operation.downcast::<Rnn>().map(|entry| (entry.direction, entry.batch_first));
    lstm.or_else(gru).or_else(rnn)
}

/// The steps of each sequence of the batch: as many as the size says, or as the model says where those are fewer.
fn lengths(
    new: &mut Bounded,
    step: &Step<'_>,
    batch: usize,
    length: Length,
) -> Result<ValueId, String> {
    let name = &step.node.name;
    let size = new.length(DataType::I64, length)?;
    let Some(known) = step.inputs.get(4).copied().flatten() else {
        return new.add(name, Expand { shape: vec![batch] }, &[size]);
    };
    let along = new.along(known).to_vec();
    let known = match new.graph().tensor_type(known).dtype {
        DataType::I64 => known,
        _ => new.add(name, Cast { to: DataType::I64 }, &[known])?,
    };
    let lengths = new.add(name, Binary::new(BinaryFunction::Minimum), &[known, size])?;
    new.set(lengths, along);
    Ok(lengths)
}
