//! Operations that combine positions along an axis: sums and searches, softmax, running sums.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Behind, Bounded};
use crate::dynamic_padding::length::Length;
use hone_graph::ValueId;
use hone_ops::{
    ArgReduce, Binary, BinaryFunction, Cast, CumulativeSum, LpNormalization, Reduce,
    ReduceFunction, Softmax, TopK,
};
use hone_types::DataType;

/// A softmax along the dimension sees negative infinity behind the size, and leaves zeros there.
pub(super) fn softmax(new: &mut Bounded, step: &mut Step<'_>, operator: &Softmax) -> Added {
    let first = step.input(0)?;
    if new.along_axis(first, operator.axis).is_some() {
        step.inputs[0] = Some(new.filled(first, operator.axis, f64::NEG_INFINITY)?);
        let behind = if operator.log { Behind::Anything } else { Behind::Weights };
        step.behind(operator.axis, behind);
    }
    step.copy(new)
}

/// Division by a norm along the dimension.
pub(super) fn lp_normalization(
    new: &mut Bounded,
    step: &mut Step<'_>,
    operator: &LpNormalization,
) -> Added {
    let first = step.input(0)?;
    if new.along_axis(first, operator.axis).is_some() {
        step.inputs[0] = Some(new.filled_above(first, operator.axis, 0.0)?);
        step.behind(operator.axis, Behind::Weights);
    }
    step.copy(new)
}

/// Whether what a softmax leaves behind the size counts as zeros to a function: where it is not a number, no element of
/// the line is, and neither is what the function gives.
fn takes_weights(function: ReduceFunction) -> bool {
    use ReduceFunction as F;
    matches!(function, F::Sum | F::Mean | F::L1 | F::L2 | F::SumSquare | F::LogSum)
}

/// The element that a function takes for nothing.
fn neutral(function: ReduceFunction) -> f64 {
    use ReduceFunction as F;
    match function {
        F::Sum | F::Mean | F::L1 | F::L2 | F::SumSquare | F::LogSum => 0.0,
        F::Product => 1.0,
        F::Maximum | F::LogSumExp => f64::NEG_INFINITY,
        F::Minimum => f64::INFINITY,
    }
}

/// All elements along some axes combined into one; a mean is the sum, divided by the number of elements at the actual
/// size.
pub(super) fn reduce(new: &mut Bounded, step: &mut Step<'_>, operator: &Reduce) -> Added {
    let mut first = step.input(0)?;
    let shape = new.graph().tensor_type(first).shape.clone();
    let mut reduced = new.along(first).to_vec();
    reduced.retain(|along| operator.axes.contains(&along.axis));
    for along in &reduced {
        if along.behind == Behind::Weights && takes_weights(operator.function) {
            continue;
        }
        first = new.filled_above(first, along.axis, neutral(operator.function))?;
    }
    step.inputs[0] = Some(first);
    if operator.function != ReduceFunction::Mean || reduced.is_empty() {
        return step.copy(new);
    }
    let dtype = new.graph().tensor_type(first).dtype;
    if !dtype.is_float() {
        return Err("is a mean of integers along the dimension".to_owned());
    }
    let others =
        operator.axes.iter().filter(|axis| reduced.iter().all(|entry| entry.axis != **axis));
    let fixed = others.map(|axis| shape[*axis]).product::<usize>();
    let extended = if dtype == DataType::F64 { dtype } else { DataType::F32 };
    let name = step.node.name.clone();
    if dtype != extended {
        first = new.add(&name, Cast { to: extended }, &[first])?;
    }
    let sum = Reduce { function: ReduceFunction::Sum, ..operator.clone() };
    let mut mean = new.add(&name, sum, &[first])?;
    let count =
        count(new, &reduced.iter().map(|entry| entry.length).collect::<Vec<_>>(), fixed, extended)?;
    mean = new.add(&name, Binary::new(BinaryFunction::Divide), &[mean, count])?;
    if dtype != extended {
        mean = new.add(&name, Cast { to: dtype }, &[mean])?;
    }
    Ok(vec![mean])
}

/// The product of lengths and a fixed number of elements.
pub(super) fn count(
    new: &mut Bounded,
    lengths: &[Length],
    fixed: usize,
    dtype: DataType,
) -> Result<ValueId, String> {
    let multiply = || Binary::new(BinaryFunction::Multiply);
    let Some((first, others)) = lengths.split_first() else {
        return new.numbers(dtype, &[], &[fixed as f64]);
    };
    if others.is_empty() && fixed == 1 {
        return new.length(dtype, *first);
    }
    // Integers: a number of elements is rounded once.
    let mut count = new.length(DataType::I64, *first)?;
    for length in others {
        let size = new.length(DataType::I64, *length)?;
        count = new.add("size", multiply(), &[count, size])?;
    }
    if fixed != 1 {
        let fixed = new.numbers(DataType::I64, &[], &[fixed as f64])?;
        count = new.add("size", multiply(), &[count, fixed])?;
    }
    new.add("size", Cast { to: dtype }, &[count])
}

/// The place of an extreme. Of equal elements the first one lies before the size; where the last one is wanted and all
/// elements are the most extreme number of the type against the search, it is the last before the size.
pub(super) fn arg_reduce(new: &mut Bounded, step: &mut Step<'_>, operator: &ArgReduce) -> Added {
    let first = step.input(0)?;
    let Some(along) = new.along_axis(first, operator.axis) else { return step.copy(new) };
    let nothing = if operator.maximum { f64::NEG_INFINITY } else { f64::INFINITY };
    step.inputs[0] = Some(new.filled_above(first, operator.axis, nothing)?);
    let positions = step.copy(new)?;
    if !operator.select_last {
        return Ok(positions);
    }
    let last = new.offset_from(along.length, &[], vec![-1.0])?;
    let minimum = Binary::new(BinaryFunction::Minimum);
    positions
        .into_iter()
        .map(|position| new.add(&step.node.name, minimum.clone(), &[position, last]))
        .collect()
}

/// A running sum from the first position on; from the last one on it begins behind the size, with nothing.
pub(super) fn cumulative_sum(
    new: &mut Bounded,
    step: &mut Step<'_>,
    operator: &CumulativeSum,
) -> Added {
    let first = step.input(0)?;
    if operator.reverse && new.along_axis(first, operator.axis).is_some() {
        let nothing = if operator.product { 1.0 } else { 0.0 };
        step.inputs[0] = Some(new.filled_above(first, operator.axis, nothing)?);
    }
    step.copy(new)
}

/// The largest elements; along the dimension the largest one alone, which is there at every size.
pub(super) fn top_k(new: &mut Bounded, step: &mut Step<'_>, operator: &TopK) -> Added {
    let first = step.input(0)?;
    if new.along_axis(first, operator.axis).is_some() {
        if operator.k != 1 || !operator.largest {
            return Err("sorts along the dimension".to_owned());
        }
        step.inputs[0] = Some(new.filled_above(first, operator.axis, f64::NEG_INFINITY)?);
    }
    step.copy(new)
}
