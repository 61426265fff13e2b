//! What each operation does to a dimension whose actual size is an input: how a node is added to the new graph, so that the
//! first positions of its results follow from the first positions of its operands. An operation that is not here is refused
//! where it has the dimension.

mod elementwise;
mod indices;
mod joined;
mod moments;
mod movement;
mod products;
mod recurrent;
mod resampled;
mod sums;
mod windows;

use super::Step;
use super::bounded::{Along, Behind, Bounded};
use hone_graph::ValueId;
use hone_ops::{
    ArgReduce, Concat, CumulativeSum, Gather, ImageDecoder, LayerNormalization, LpNormalization,
    OneHot, Pool, Reduce, Require, Resize, Slice, Softmax, TopK,
};
use hone_types::DataType;

/// The results of a node in the new graph, or why positions behind the size get into them.
pub(super) type Added = Result<Vec<ValueId>, String>;

/// Adds a node to the new graph.
pub(super) fn add(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    check_joined(new, step)?;
    let added = by_name(new, step)?;
    step.inherit(new);
    Ok(added)
}

/// Refuses operations that do anything with an axis in which the dimension is joined with another one, but for those
/// that treat all its elements alike.
fn check_joined(new: &Bounded, step: &Step<'_>) -> Result<(), String> {
    let operation = &step.node.operation;
    for (operand, value) in step.inputs.iter().enumerate() {
        let joined = value.iter().flat_map(|value| new.along(*value));
        for along in joined.filter(|along| along.is_joined()) {
            let alike = if let Some(slice) = operation.downcast::<Slice>() {
                let same = step.result(along.axis).map(|result| result.length);
                slice.starts[along.axis] == 0 && same == Some(along.length)
            } else if let Some(softmax) = operation.downcast::<Softmax>() {
                softmax.axis != along.axis
            } else if let Some(reduce) = operation.downcast::<Reduce>() {
                !reduce.axes.contains(&along.axis)
            } else if let Some(concat) = operation.downcast::<Concat>() {
                concat.axis != along.axis
            } else if let Some(gather) = operation.downcast::<Gather>() {
                operand == 1 || gather.axis != along.axis
            } else {
                elementwise::is_elementwise(step.node)
                    || matches!(
                        operation.name(),
                        "matmul"
                            | "transpose"
                            | "reshape"
                            | "expand"
                            | "layer_normalization"
                            | "instance_normalization"
                    )
            };
            if !alike {
                return Err("computes along the dimension, joined with another axis".to_owned());
            }
        }
    }
    Ok(())
}

fn by_name(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operands = step.inputs.iter().flatten();
    let is_read = operands.into_iter().any(|input| !new.along(*input).is_empty());
    let name = step.node.operation.name();
    if name == Slice::NAME {
        return movement::slice(new, step);
    }
    if !is_read && step.axes.iter().all(Vec::is_empty) {
        return step.copy(new);
    }
    if !is_read && !matches!(name, "expand" | "tile") {
        return Err("gives the dimension, which no operand has".to_owned());
    }
    if elementwise::is_elementwise(step.node) {
        return elementwise::add(new, step);
    }
    match name {
        "matmul" => products::matmul(new, step),
        "dot_products" => products::dot_products(new, step),
        "convolution" => windows::convolution(new, step),
        "convolution_transpose" => windows::transposed(new, step),
        "group_normalization" | "instance_normalization" => moments::add(new, step),
        "batch_normalization" => step.copy(new),
        "local_response_normalization" => {
            beside(new, step, 1, "normalises across channels, which are the dimension")
        }
        "trilu" => movement::trilu(new, step),
        "transpose" => movement::transpose(new, step),
        "reshape" => movement::reshape(new, step),
        "expand" | "tile" => movement::expand(new, step),
        "concat" => joined::concat(new, step),
        "pad" => joined::pad(new, step),
        "gather" => indices::gather(new, step),
        "gather_nd" => indices::gather_nd(new, step),
        "gather_elements" => indices::gather_elements(new, step),
        "scatter_elements" => indices::scatter_elements(new, step),
        "lstm" | "gru" | "rnn" => recurrent::add(new, step),
        _ => with_attributes(new, step),
    }
}

/// Operations whose axes are among their attributes.
fn with_attributes(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operation = &step.node.operation;
    if let Some(operator) = operation.downcast::<Softmax>() {
        return sums::softmax(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<LpNormalization>() {
        return sums::lp_normalization(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<Reduce>() {
        return sums::reduce(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<ArgReduce>() {
        return sums::arg_reduce(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<CumulativeSum>() {
        return sums::cumulative_sum(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<TopK>() {
        return sums::top_k(new, step, operator);
    }
    if let Some(operator) = operation.downcast::<LayerNormalization>() {
        let first = step.input(0)?;
        let normalizes = new.along(first).iter().any(|along| along.axis >= operator.axis);
        return match normalizes {
            true => Err("normalises along the dimension".to_owned()),
            false => step.copy(new),
        };
    }
    if let Some(operator) = operation.downcast::<Pool>() {
        return windows::pool(new, step, operator);
    }
    if operation.downcast::<OneHot>().is_some() {
        return step.copy(new);
    }
    if let Some(operator) = operation.downcast::<Resize>() {
        return resampled::resize(new, step, operator);
    }
    if operation.downcast::<Require>().is_some() {
        return required(new, step);
    }
    if operation.downcast::<ImageDecoder>().is_some() {
        return image(new, step);
    }
    Err("is not followed along a dimension whose size is an input".to_owned())
}

/// An image of as many bytes as the size says; it has room for as many as the bound.
fn image(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let bytes = step.input(0)?;
    let [along] = new.along(bytes) else {
        return Err("has the dimension in another operand than the bytes".to_owned());
    };
    if along.is_joined() || step.inputs.len() > 1 {
        return Err("reads bytes whose number is not that of the dimension".to_owned());
    }
    let size = new.length(DataType::I64, along.length)?;
    step.inputs.push(Some(size));
    step.copy(new)
}

/// A condition that has to hold before the size alone.
fn required(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let mut condition = step.input(0)?;
    for along in new.along(condition).to_vec() {
        condition = new.filled(condition, along.axis, 1.0)?;
    }
    step.inputs[0] = Some(condition);
    step.copy(new)
}

/// An operation along one axis of its first operand; no other operand has the dimension.
fn beside(new: &mut Bounded, step: &mut Step<'_>, axis: usize, mixes: &str) -> Added {
    let first = step.input(0)?;
    if new.along_axis(first, axis).is_some() {
        return Err(mixes.to_owned());
    }
    step.others_are_whole(new, 1)?;
    step.copy(new)
}

impl Step<'_> {
    /// An operand that has to be there.
    fn input(&self, position: usize) -> Result<ValueId, String> {
        let input = self.inputs.get(position).copied().flatten();
        input.ok_or_else(|| format!("has no operand {position}"))
    }

    /// Requires that operands from a place on do not have the dimension.
    fn others_are_whole(&self, new: &Bounded, from: usize) -> Result<(), String> {
        let others = self.inputs.iter().skip(from).flatten();
        match others.into_iter().all(|value| new.along(*value).is_empty()) {
            true => Ok(()),
            false => Err("has the dimension in another operand than the first".to_owned()),
        }
    }

    /// Adds the node with its operation as it is.
    fn copy(&self, new: &mut Bounded) -> Added {
        new.nodes(&self.node.name, self.node.operation.clone(), &self.inputs)
    }

    /// Says of axes in which the dimension may be joined with others how it is in the operands that they come from.
    fn inherit(&mut self, new: &Bounded) {
        let operands = self.inputs.iter().flatten().flat_map(|value| new.along(*value));
        let operands: Vec<Along> = operands.copied().collect();
        let unknown = self.axes.iter_mut().flatten().filter(|along| along.outer == 0);
        for along in unknown {
            let Along { length, .. } = *along;
            let same = |other: &&Along| {
                let of = other.length.without_extra() == length.without_extra();
                of && (other.length == length || other.outer == 1)
            };
            let mut outers = operands.iter().filter(same).map(|other| other.outer);
            let first = outers.next().unwrap_or(0);
            along.outer = if outers.all(|outer| outer == first) { first } else { 0 };
        }
    }

    /// Says that an axis of the first result is the dimension and nothing else.
    fn is_alone(&mut self, axis: usize) {
        for along in self.axes.iter_mut().take(1).flatten() {
            if along.axis == axis {
                along.outer = 1;
            }
        }
    }

    /// Says what lies behind the size along an axis of the first result.
    fn behind(&mut self, axis: usize, behind: Behind) {
        for along in self.axes.iter_mut().flat_map(|axes| axes.iter_mut()) {
            if along.axis == axis {
                along.behind = behind;
            }
        }
    }

    /// The dimension along an axis of the first result.
    fn result(&self, axis: usize) -> Option<Along> {
        self.axes.first()?.iter().find(|along| along.axis == axis).copied()
    }
}
