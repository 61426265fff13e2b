//! Operators that make tensors from nothing but their attributes and shapes.

use super::{counted, decided};
use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::extents;
use hone_ops::{BinaryFunction as B, Trilu};
use hone_types::{DataType, Tensor};

/// Most elements that `Range` may have.
const LONGEST_RANGE: f64 = 16_777_216.0;

/// `Constant`, in each of its forms.
pub(super) fn constant(builder: &mut Builder, node: &mut Node) -> Outputs {
    if let Some(tensor) = node.tensor("value")? {
        return Ok(vec![builder.load(tensor)?]);
    }
    let tensor = if let Some(value) = node.float("value_float")? {
        Tensor::scalar(value as f32)
    } else if let Some(value) = node.int("value_int")? {
        Tensor::scalar(value)
    } else if let Some(values) = node.floats("value_floats")? {
        Tensor::from_elements([values.len()], &values)?
    } else if let Some(values) = node.ints("value_ints")? {
        Tensor::from_elements([values.len()], &values)?
    } else if let Some(text) = node.string("value_string")? {
        let list = builder.texts(&[text])?;
        let text = builder.reshape(list, vec![])?;
        return Ok(vec![builder.as_text(text)]);
    } else if let Some(texts) = node.strings("value_strings")? {
        return Ok(vec![builder.texts(&texts)?]);
    } else {
        return Err(NodeError::unsupported("a constant that is no dense tensor"));
    };
    Ok(vec![builder.constant(tensor)])
}

/// `ConstantOfShape`: one value everywhere.
pub(super) fn constant_of_shape(builder: &mut Builder, node: &mut Node) -> Outputs {
    let value = match node.tensor("value")? {
        Some(tensor) => builder.load(tensor)?,
        None => builder.scalar(DataType::F32, 0.0)?,
    };
    if builder.shape(value).iter().product::<usize>() != 1 {
        return Err(NodeError::invalid("attribute 'value' has not one element"));
    }
    if node.declared(0).is_none()
        && let Some(all) = counted::constant(builder, node, value)?
    {
        return Ok(vec![all]);
    }
    let shape = extents(&builder.integers_held(node, 0, node.implied(0))?, "shape")?;
    let value = builder.reshape(value, vec![])?;
    Ok(vec![builder.expand(value, shape)?])
}

/// `Range`, of constant bounds, of a declared length, or of bounds that lie below known numbers.
pub(super) fn range(builder: &mut Builder, node: &mut Node) -> Outputs {
    let dtype = builder.dtype(node.input(0)?);
    if (0..3).any(|place| decided::is_open(builder, node, place)) {
        if node.declared(0).is_none()
            && let Some(range) = counted::range(builder, node, LONGEST_RANGE)?
        {
            return Ok(vec![range]);
        }
        return Ok(vec![decided::range(builder, node, LONGEST_RANGE)?]);
    }
    let mut bounds = [0.0; 3];
    let mut integers = [0; 3];
    for place in 0..3 {
        let values = builder.floats_of(node, place)?;
        let [value] = values.as_slice() else {
            return Err(NodeError::invalid(format!("input number {place} is no single number")));
        };
        bounds[place] = *value;
        integers[place] = if dtype.is_integer() { builder.integer_of(node, place)? } else { 0 };
    }
    let [start, limit, delta] = bounds;
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !(delta != 0.0 && count <= LONGEST_RANGE) {
        return Err(NodeError::invalid(format!(
            "{start} to {limit} by {delta} is no range of at most {LONGEST_RANGE} elements"
        )));
    }
    let count = count as usize;
    let tensor = if dtype.is_integer() {
        let [start, _, delta] = integers;
        let step = |index: usize| start.wrapping_add(delta.wrapping_mul(index as i64));
        let values: Vec<i64> = (0..count).map(step).collect();
        Tensor::from_elements([count], &values)?
    } else {
        let values: Vec<f64> = (0..count).map(|index| start + delta * index as f64).collect();
        Tensor::from_f64(dtype, [count], &values)?
    };
    let range = builder.constant(tensor);
    Ok(vec![builder.cast(range, dtype)?])
}

/// The element type of an attribute's number.
pub(super) fn element(number: i64) -> Result<DataType, NodeError> {
    let number = i32::try_from(number).unwrap_or(0);
    crate::onnx::tensor::element_type(number).map_err(NodeError::Invalid)
}

/// `EyeLike`: ones on a diagonal.
pub(super) fn eye_like(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let shape = builder.shape(input);
    let dtype = match node.int("dtype")? {
        Some(number) => element(number)?,
        None => builder.dtype(input),
    };
    let diagonal = node.int_or("k", 0)?;
    // What is on or above the diagonal, less what is above it.
    let one = builder.scalar(DataType::I32, 1.0)?;
    let ones = builder.expand(one, shape)?;
    let upper = builder.apply(Trilu { upper: true, diagonal }, &[ones])?;
    let above = Trilu { upper: true, diagonal: diagonal.saturating_add(1) };
    let above = builder.apply(above, &[ones])?;
    let eye = builder.binary(B::Subtract, upper, above)?;
    Ok(vec![builder.cast(eye, dtype)?])
}
