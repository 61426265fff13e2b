//! Whether what a caller gives fits a model.

use hone_artifact::TensorInfo;

use crate::RunError;
use crate::plan::Plan;

/// As many buffers or shapes as the model has tensors.
pub(crate) fn check_count(
    role: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), RunError> {
    match found == expected {
        true => Ok(()),
        false => Err(RunError::Count { role, expected, found }),
    }
}

/// Why shapes are those of no plan: the first input whose shape none has that takes the inputs before it.
pub(crate) fn unknown_shape(plans: &[Plan], shapes: &[&[u64]]) -> RunError {
    let mut fitting: Vec<&Plan> = plans.iter().collect();
    for (index, shape) in shapes.iter().enumerate() {
        let mut taken: Vec<Vec<u64>> = Vec::new();
        for plan in &fitting {
            let own = &plan.inputs[index].shape;
            if !taken.contains(own) {
                taken.push(own.clone());
            }
        }
        let first = fitting.len() == plans.len();
        fitting.retain(|plan| plan.inputs[index].shape == *shape);
        if fitting.is_empty() {
            let name = plans[0].inputs[index].name.clone();
            return RunError::Shape { name, found: shape.to_vec(), taken, first };
        }
    }
    // Without inputs every plan fits.
    RunError::Count { role: "input", expected: 0, found: shapes.len() }
}

/// A buffer of the tensor's bytes.
pub(crate) fn check_size(
    role: &'static str,
    tensor: &TensorInfo,
    found: usize,
) -> Result<(), RunError> {
    match found as u64 == tensor.bytes {
        true => Ok(()),
        false => Err(RunError::Size {
            role,
            name: tensor.name.clone(),
            expected: tensor.bytes,
            found: found as u64,
        }),
    }
}

/// A buffer that is there and aligned to its elements.
pub(crate) fn check_address(
    role: &'static str,
    tensor: &TensorInfo,
    address: usize,
) -> Result<(), RunError> {
    let alignment = tensor.dtype.alignment();
    let usable = address != 0 && (address as u64).is_multiple_of(alignment);
    match usable || tensor.bytes == 0 {
        true => Ok(()),
        false => Err(RunError::Address { role, name: tensor.name.clone(), alignment, address }),
    }
}
