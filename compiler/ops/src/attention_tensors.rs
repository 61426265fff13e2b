//! What the reference result of attention does with whole tensors.

use crate::operator::{OpError, Operator};
use crate::{EmptyRows, Expand, Reshape, Slice};
use hone_types::Tensor;

/// The one result of an operator.
pub(crate) fn only(results: Result<Vec<Tensor>, OpError>) -> Result<Tensor, OpError> {
    results?.pop().ok_or_else(|| OpError::Value("there is no result".into()))
}

/// Some places of an axis, or the one that it has for all.
pub(crate) fn part_of(
    tensor: &Tensor,
    axis: usize,
    (first, count): (usize, usize),
) -> Result<Tensor, OpError> {
    let mut extents = tensor.shape().to_vec();
    if extents[axis] == 1 || extents[axis] == count {
        return Ok(tensor.clone());
    }
    extents[axis] = count;
    let mut starts = vec![0; extents.len()];
    starts[axis] = first;
    let steps = vec![1; extents.len()];
    only(Slice { starts, steps, extents }.reference(&[Some(tensor)]))
}

/// `[batch.., a, b]` with each batch element as often as others share it.
pub(crate) fn repeated(tensor: &Tensor, batch: &[usize]) -> Result<Tensor, OpError> {
    let mut tensor = tensor.clone();
    for (axis, extent) in batch.iter().enumerate() {
        let shape = tensor.shape().to_vec();
        let mut cut = shape.clone();
        cut.insert(axis + 1, 1);
        let mut spread = cut.clone();
        spread[axis + 1] = extent / shape[axis].max(1);
        let mut joined = shape;
        joined[axis] = *extent;
        let column = only(Reshape { shape: cut }.reference(&[Some(&tensor)]))?;
        let wide = only(Expand { shape: spread }.reference(&[Some(&column)]))?;
        tensor = only(Reshape { shape: joined }.reference(&[Some(&wide)]))?;
    }
    Ok(tensor)
}

/// Weights `[.., queries, keys]` with zeros in the rows that give zero.
pub(crate) fn without_empty_rows(
    rows: EmptyRows,
    weights: &Tensor,
    scores: &Tensor,
) -> Result<Tensor, OpError> {
    let keys = weights.shape().last().copied().unwrap_or(1).max(1);
    let mut values = weights.to_f64();
    for (row, scores) in values.chunks_mut(keys).zip(scores.to_f64().chunks(keys)) {
        let empty = match rows {
            EmptyRows::NotNumbers => false,
            EmptyRows::Zero => scores.iter().all(|score| *score == f64::NEG_INFINITY),
            EmptyRows::ZeroWhereNan => row.iter().any(|weight| weight.is_nan()),
        };
        if empty {
            row.fill(0.0);
        }
    }
    Ok(Tensor::from_f64(weights.dtype(), weights.shape(), &values)?)
}
