//! Weights for instructions that sum several neighbouring products in each lane.

use crate::operator::{OpError, Operator};
use crate::{Cast, Transpose};
use hone_tensor::{Expr, Intrinsic};
use hone_types::{DataType, Tensor, TensorType};

/// The instruction whose weights are of type `narrow`, if there is one.
pub(crate) fn dot_of(narrow: DataType) -> Option<Intrinsic> {
    match narrow {
        DataType::BF16 => Some(Intrinsic::DOT_BF16),
        DataType::I16 => Some(Intrinsic::DOT_I16),
        DataType::I8 => Some(Intrinsic::DOT_U8_I8),
        _ => None,
    }
}

/// Whether elements of these types are multiplied: equal ones, those of an instruction, or signed bytes, which devices
/// multiply.
pub(crate) fn multiply(x: DataType, weights: DataType) -> bool {
    let signed = [x, weights] == [DataType::I8; 2];
    signed || dot_of(weights).map_or(x == weights, |dot| dot.operands() == [x, weights])
}

/// Products of elements of type `narrow` that the instruction for them sums, where there is one.
pub fn products_of(narrow: DataType) -> Option<usize> {
    dot_of(narrow).map(|dot| dot.depth() as usize)
}

/// Weights `[.., k, o]` as `[.., k / d, o, d]` of type `narrow`, `d` being the number of products
/// that the instruction for that type sums.
///
/// # Errors
/// Where there is no such instruction, or `d` does not divide `k`.
pub fn interleave(weights: &Tensor, narrow: DataType) -> Result<Tensor, OpError> {
    interleave_by(weights, narrow, products_of(narrow).unwrap_or(0))
}

/// The same for devices that read `depth` neighbours along `k` at once: `[.., k / depth, o, depth]`.
///
/// # Errors
/// As for [`interleave`].
pub fn interleave_by(weights: &Tensor, narrow: DataType, depth: usize) -> Result<Tensor, OpError> {
    let shape = weights.shape();
    let [outer @ .., k, o] = shape else {
        return Err(OpError::Value("weights have two axes at least".to_string()));
    };
    if depth == 0 || !k.is_multiple_of(depth) {
        return Err(OpError::Value(format!("{k} weights of {narrow} cannot be interleaved")));
    }
    let narrow = Cast { to: narrow }.reference(&[Some(weights)])?.remove(0);
    let parts = narrow.reshaped([outer, &[k / depth, depth, *o]].concat())?;
    swap_last(&parts)
}

/// The inverse of [`interleave`], in the type of the sums.
pub(crate) fn separate(weights: &Tensor) -> Result<Tensor, OpError> {
    let wide = Cast { to: sum_type(weights.dtype()) }.reference(&[Some(weights)])?.remove(0);
    let parts = swap_last(&wide)?;
    let [outer @ .., k, depth, o] = parts.shape() else {
        return Err(OpError::Value("interleaved weights have three axes at least".to_string()));
    };
    Ok(parts.reshaped([outer, &[k * depth, *o]].concat())?)
}

fn swap_last(tensor: &Tensor) -> Result<Tensor, OpError> {
    let mut permutation: Vec<usize> = (0..tensor.shape().len()).collect();
    let rank = permutation.len();
    permutation.swap(rank - 2, rank - 1);
    Ok(Transpose { permutation }.reference(&[Some(tensor)])?.remove(0))
}

/// The type in which products with weights of type `dtype` are summed.
pub(crate) fn sum_type(dtype: DataType) -> DataType {
    dot_of(dtype).map_or(dtype, Intrinsic::result)
}

/// The type of weights `[.., k, o]` that interleaved ones stand for; others stay as they are.
pub(crate) fn plain_type(weights: &TensorType) -> TensorType {
    let mut shape = weights.shape.clone();
    if let (Some(_), [.., _, _, depth]) = (dot_of(weights.dtype), &weights.shape[..]) {
        let (depth, rank) = (*depth, shape.len());
        shape[rank - 3] *= depth;
        shape.pop();
    }
    TensorType::new(weights.dtype, shape)
}

/// Extents over which a place within `k` is summed: `k`, or `k / d` and `d`.
pub(crate) fn places(weights: &TensorType) -> Vec<usize> {
    let rank = weights.rank();
    match dot_of(weights.dtype) {
        Some(_) => vec![weights.shape[rank - 3], weights.shape[rank - 1]],
        None => vec![weights.shape[rank - 2]],
    }
}

/// The place within `k`, given one index for each of [`places`].
pub(crate) fn place(weights: &TensorType, indices: &[Expr]) -> Expr {
    match indices {
        [outer, inner] => outer.clone() * weights.shape[weights.rank() - 1] + inner.clone(),
        _ => indices[0].clone(),
    }
}

/// The last indices of a weight, for a place within `k` and a column.
pub(crate) fn at(indices: &[Expr], column: &Expr) -> Vec<Expr> {
    let mut last = vec![indices[0].clone(), column.clone()];
    last.extend(indices.get(1).cloned());
    last
}

/// The product of an element and a weight of type `dtype`, in the type it is summed in.
pub(crate) fn product(left: Expr, right: Expr, dtype: DataType) -> Expr {
    let sum = sum_type(dtype);
    if sum == dtype { left * right } else { left.cast(sum) * right.cast(sum) }
}
