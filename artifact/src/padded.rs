//! A dimension of any size up to a bound: variants are compiled at bounds of it, and take the size as a further input.
//!
//! Such a variant's inputs and outputs have room for the bound. What lies behind the size in its inputs has no influence on
//! what lies before it in its outputs, and what lies behind it there means nothing. A runtime lays inputs of the size into
//! that room and takes outputs of the size from it; the last input, an `i64` without axes, says the size. Users see
//! neither the room nor that input.
//!
//! Where something is joined to the dimension, as new tokens to those of the past, inputs have as many positions as before
//! or as after that. The size counts those after it, and so does its bound: it is the extent of the longest axes of a variant,
//! and others have as much less than the size as they have less than the bound. Users see the least of these extents as the
//! dimension's size, which may be 0 then.

use serde::{Deserialize, Serialize};

use crate::{DataType, Manifest, TensorInfo, Variant};

/// The dimension that may have any size up to the bounds that variants have of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaddedDimension {
    /// Its name in the model, or `input[axis]` where it has none.
    pub name: String,
    /// The axis of each of the model's inputs that it is; none of an input without it. The variants' last input, the size,
    /// has no entry.
    pub inputs: Vec<Option<u32>>,
    /// The axis of each output that it is; none of an output without it.
    pub outputs: Vec<Option<u32>>,
}

impl PaddedDimension {
    /// What the input is called that says the size of a dimension.
    pub fn size_input(dimension: &str) -> String {
        format!("size of {dimension}")
    }

    /// The most that the size of the dimension is, as users see it, in a variant with these inputs.
    pub fn extent_in(&self, inputs: &[TensorInfo]) -> Option<u64> {
        extents(inputs, &self.inputs).min()
    }

    /// The most that the size is which a variant with these inputs and outputs takes as its last input.
    pub fn bound_in(&self, inputs: &[TensorInfo], outputs: &[TensorInfo]) -> Option<u64> {
        extents(inputs, &self.inputs).chain(extents(outputs, &self.outputs)).max()
    }

    /// An input of a variant at a size as users see it; `None` where that is no shape of it.
    pub fn at_size(&self, inputs: &[TensorInfo], place: usize, size: u64) -> Option<TensorInfo> {
        let tensor = inputs.get(place)?;
        let mut shape = tensor.shape.clone();
        if let Some(axis) = self.inputs.get(place).copied().flatten() {
            let extent = shape.get_mut(axis as usize)?;
            *extent = extent.checked_sub(self.extent_in(inputs)?)?.checked_add(size)?;
        }
        TensorInfo::new(&tensor.name, tensor.dtype, shape)
    }
}

/// The extents that tensors have along their axes.
fn extents<'a>(
    tensors: &'a [TensorInfo],
    axes: &'a [Option<u32>],
) -> impl Iterator<Item = u64> + 'a {
    let pairs = tensors.iter().zip(axes);
    pairs.filter_map(|(tensor, axis)| tensor.shape.get((*axis)? as usize).copied())
}

impl Manifest {
    /// How many inputs users give: all but the size of a padded dimension.
    pub fn given_inputs(&self) -> usize {
        let all = self.inputs.len();
        self.padded.as_ref().map_or(all, |padded| padded.inputs.len().min(all))
    }

    /// The largest size of the padded dimension that a variant takes, as users see it.
    pub fn bound_of(&self, variant: &Variant) -> Option<u64> {
        self.padded.as_ref()?.extent_in(&self.inputs_of(variant))
    }

    /// Checks what is said of a padded dimension: the size is the last input, the axes are there, and outputs have
    /// all of the dimension.
    pub(crate) fn check_padded(&self) -> Result<(), String> {
        let Some(padded) = &self.padded else { return Ok(()) };
        let name = &padded.name;
        if name.is_empty() || name.contains('\0') {
            return Err("the padded dimension has no name".to_owned());
        }
        match self.inputs.split_last() {
            Some((size, given)) if given.len() == padded.inputs.len() => {
                if size.dtype != DataType::I64 || !size.shape.is_empty() {
                    return Err(format!("the size of '{name}' is no single i64"));
                }
            }
            _ => return Err(format!("the axes of '{name}' do not fit the inputs")),
        }
        if self.outputs.len() != padded.outputs.len() {
            return Err(format!("the axes of '{name}' do not fit the outputs"));
        }
        for variant in &self.variants {
            let (inputs, outputs) = (self.inputs_of(variant), self.outputs_of(variant));
            let least = padded.extent_in(&inputs).unwrap_or(0);
            let bound = padded.bound_in(&inputs, &outputs).unwrap_or(0);
            let extent = |(tensor, axis): (&TensorInfo, &Option<u32>)| {
                axis.map(|axis| tensor.shape.get(axis as usize).copied().unwrap_or(0))
            };
            let is_bound = |extent: Option<u64>| extent.is_none_or(|extent| extent == bound);
            let is_some = |extent: Option<u64>| extent.is_none_or(|extent| extent > 0);
            let fits = inputs.iter().zip(&padded.inputs).map(extent).all(is_some)
                && outputs.iter().zip(&padded.outputs).map(extent).all(is_bound);
            if least == 0 || i64::try_from(bound).is_err() || !fits || !variant.extents.is_empty() {
                return Err(format!("a variant has no bound of '{name}'"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_joined_to_the_dimension_comes_on_top() {
        let tensor = |name: &str, shape: Vec<u64>| TensorInfo::new(name, DataType::F32, shape);
        let inputs = [tensor("mask", vec![1, 66]).unwrap(), tensor("past", vec![64, 4]).unwrap()];
        let outputs = [tensor("all", vec![66, 4]).unwrap()];
        let padded = PaddedDimension {
            name: "past".to_owned(),
            inputs: vec![Some(1), Some(0)],
            outputs: vec![Some(0)],
        };
        assert_eq!(padded.extent_in(&inputs), Some(64));
        assert_eq!(padded.bound_in(&inputs, &outputs), Some(66));
        let at = |size| [0, 1].map(|place| padded.at_size(&inputs, place, size).unwrap().shape);
        assert_eq!(at(0), [vec![1, 2], vec![0, 4]]);
        assert_eq!(at(7), [vec![1, 9], vec![7, 4]]);
    }
}
