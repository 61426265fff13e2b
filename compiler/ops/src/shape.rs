//! What shape rules and reference results share.

use crate::operator::{OpError, Operator};
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};

/// Bytes of the largest buffer of a compiled model: a tensor of the imported model, or what an operator
/// keeps while it computes, such as a padded input.
pub const LARGEST_BUFFER: usize = 16 << 30;

/// No tensor of a graph may be larger; keeps every later product of extents inside `usize`.
const LARGEST_TENSOR: usize = 1 << 40;

/// A tensor type whose size stays within bounds.
pub(crate) fn bounded(
    dtype: DataType,
    shape: impl Into<Vec<usize>>,
) -> Result<TensorType, InferError> {
    let tensor_type = TensorType::new(dtype, shape);
    check_size(&tensor_type)?;
    Ok(tensor_type)
}

/// Refuses a tensor larger than the bound. Extents of zero count as one, so that strides stay within
/// bounds too.
pub(crate) fn check_size(tensor_type: &TensorType) -> Result<(), InferError> {
    let bytes = tensor_type
        .shape
        .iter()
        .try_fold(tensor_type.dtype.bytes(), |bytes, extent| bytes.checked_mul((*extent).max(1)));
    match bytes {
        Some(bytes) if bytes <= LARGEST_TENSOR => Ok(()),
        _ => Err(InferError::new(format!("{tensor_type} is larger than 1 TiB"))),
    }
}

/// Refuses an axis that `input` does not have.
pub(crate) fn check_axis(input: &TensorType, axis: usize) -> Result<(), InferError> {
    if axis < input.rank() {
        return Ok(());
    }
    Err(InferError::new(format!("{input} has no axis {axis}")))
}

/// Refuses an input whose element type is not `expected`'s.
pub(crate) fn check_same_type(
    expected: &TensorType,
    others: &[&TensorType],
) -> Result<(), InferError> {
    match others.iter().find(|other| other.dtype != expected.dtype) {
        None => Ok(()),
        Some(other) => {
            Err(InferError::new(format!("operands differ in type: {expected} and {other}")))
        }
    }
}

/// Refuses indices that are not `i32` or `i64`.
pub(crate) fn check_indices(indices: &TensorType) -> Result<(), InferError> {
    if matches!(indices.dtype, DataType::I32 | DataType::I64) {
        return Ok(());
    }
    Err(InferError::new(format!("indices are {indices}, not i32 or i64")))
}

/// Types of the outputs for given tensors.
pub(crate) fn output_types(
    operator: &impl Operator,
    inputs: &[Option<&Tensor>],
) -> Result<Vec<TensorType>, OpError> {
    let types: Vec<Option<&TensorType>> =
        inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
    Ok(operator.infer(&types)?)
}

/// Type of the only output for given tensors.
pub(crate) fn output_type(
    operator: &impl Operator,
    inputs: &[Option<&Tensor>],
) -> Result<TensorType, OpError> {
    Ok(output_types(operator, inputs)?.remove(0))
}

/// Elements before, along and after an axis.
pub(crate) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

/// Refuses an input that is not of floating-point numbers.
pub(crate) fn check_float(input: &TensorType) -> Result<(), InferError> {
    if input.dtype.is_float() {
        return Ok(());
    }
    Err(InferError::new(format!("{input} is not of floating-point numbers")))
}

/// Refuses per-channel parameters that do not fit the channels (axis 1) of `x`.
pub(crate) fn check_channels(x: &TensorType, parameters: &[&TensorType]) -> Result<(), InferError> {
    check_float(x)?;
    check_same_type(x, parameters)?;
    check_axis(x, 1)?;
    match parameters.iter().find(|parameter| parameter.shape != [x.shape[1]]) {
        None => Ok(()),
        Some(parameter) => {
            Err(InferError::new(format!("{parameter} does not fit the channels of {x}")))
        }
    }
}
