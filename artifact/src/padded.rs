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
//!
//! An output may have another number of positions than the size, which follows from it ([`PaddedLength`]): frames of a signal,
//! samples that are made of frames.

use serde::{Deserialize, Serialize};

use crate::{DataType, Manifest, OLDEST_SCHEMA_VERSION, TensorInfo, Variant};

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
    /// The number of positions that each output has along its axis; none where that is the size. Empty where none has
    /// another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<Option<PaddedLength>>,
    /// The smallest size, as users see it, where that is another one than 1, or than 0 where something is joined to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// Sizes, as variants count them, are multiples of it; absent where it is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiple: Option<u64>,
}

/// A number of positions that follows from the size, as variants count it: `multiplier · floor((size + shift) / divisor) +
/// extra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaddedLength {
    /// At least 1.
    pub multiplier: i64,
    /// At least 0.
    pub shift: i64,
    /// At least 1.
    pub divisor: i64,
    /// May be negative.
    pub extra: i64,
}

impl PaddedLength {
    /// At a size; 0 where there would be fewer.
    pub fn at(self, size: u64) -> u64 {
        let steps = i64::try_from(size).unwrap_or(i64::MAX).saturating_add(self.shift);
        let steps = steps.checked_div_euclid(self.divisor).unwrap_or(0);
        let length = steps.saturating_mul(self.multiplier).saturating_add(self.extra);
        u64::try_from(length).unwrap_or(0)
    }
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
        let of_size = outputs.iter().zip(&self.outputs).enumerate();
        let of_size = of_size.filter(|(place, _)| self.length(*place).is_none());
        let of_size = of_size.filter_map(|(_, (tensor, axis))| extent(tensor, *axis));
        extents(inputs, &self.inputs).chain(of_size).max()
    }

    /// The number of positions of an output, where that is not the size.
    pub fn length(&self, output: usize) -> Option<PaddedLength> {
        self.lengths.get(output).copied().flatten()
    }

    /// The extent of an output's axis at a size, of an output that has `compiled` at the bound; both sizes as variants
    /// count them.
    pub fn output_extent(&self, output: usize, compiled: u64, (bound, size): (u64, u64)) -> u64 {
        match self.length(output) {
            Some(length) => length.at(size),
            None => size.saturating_sub(bound.saturating_sub(compiled)),
        }
    }

    /// What sizes as variants count them are multiples of.
    pub fn multiple(&self) -> u64 {
        self.multiple.unwrap_or(1).max(1)
    }

    /// The size, as users see it, that a variant with these inputs and outputs takes and that is nearest below `size`, or the
    /// smallest one.
    pub fn taken(&self, inputs: &[TensorInfo], outputs: &[TensorInfo], size: u64) -> u64 {
        let most = self.extent_in(inputs).unwrap_or(0);
        let added = self.bound_in(inputs, outputs).unwrap_or(0).saturating_sub(most);
        let least = self.least.unwrap_or(u64::from(added == 0));
        let multiple = self.multiple();
        let below = size.min(most).saturating_add(added) / multiple * multiple;
        let smallest = least.saturating_add(added).next_multiple_of(multiple);
        below.max(smallest) - added
    }

    /// Checks numbers of positions, and that readers know of them.
    fn check_lengths(&self, version: u32) -> Result<(), String> {
        let name = &self.name;
        if version < self.version_needed() {
            return Err(format!("version {version} of the schema says no lengths of '{name}'"));
        }
        let is_function = |own: &PaddedLength| {
            own.multiplier >= 1 && own.divisor >= 1 && (0..own.divisor).contains(&own.shift)
        };
        match self.lengths.iter().flatten().all(is_function) && self.multiple != Some(0) {
            true => Ok(()),
            false => Err(format!("a length does not follow from '{name}'")),
        }
    }
    /// The first version of the schema that has what this says: a runtime that does not know it would give outputs
    /// other extents, and take sizes that the model does not.
    pub fn version_needed(&self) -> u32 {
        let is_plain = self.lengths.is_empty() && self.least.is_none() && self.multiple.is_none();
        if is_plain { OLDEST_SCHEMA_VERSION } else { 6 }
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
    tensors.iter().zip(axes).filter_map(|(tensor, axis)| extent(tensor, *axis))
}

fn extent(tensor: &TensorInfo, axis: Option<u32>) -> Option<u64> {
    tensor.shape.get(axis? as usize).copied()
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
        let of_each = |count: usize| count == self.outputs.len();
        if !of_each(padded.outputs.len())
            || !(padded.lengths.is_empty() || of_each(padded.lengths.len()))
        {
            return Err(format!("the axes of '{name}' do not fit the outputs"));
        }
        padded.check_lengths(self.schema_version)?;
        for variant in &self.variants {
            let (inputs, outputs) = (self.inputs_of(variant), self.outputs_of(variant));
            let least = padded.extent_in(&inputs).unwrap_or(0);
            let bound = padded.bound_in(&inputs, &outputs).unwrap_or(0);
            let extent = |(tensor, axis): (&TensorInfo, &Option<u32>)| {
                axis.map(|axis| tensor.shape.get(axis as usize).copied().unwrap_or(0))
            };
            let is_some = |extent: Option<u64>| extent.is_none_or(|extent| extent > 0);
            let is_whole = |(place, extent): (usize, Option<u64>)| {
                let length = padded.length(place).map_or(bound, |length| length.at(bound));
                extent.is_none_or(|extent| extent == length)
            };
            let fits = inputs.iter().zip(&padded.inputs).map(extent).all(is_some)
                && outputs.iter().zip(&padded.outputs).map(extent).enumerate().all(is_whole);
            let is_size = least >= padded.least.unwrap_or(1) && bound % padded.multiple() == 0;
            if !is_size || i64::try_from(bound).is_err() || !fits || !variant.extents.is_empty() {
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
            lengths: Vec::new(),
            least: None,
            multiple: None,
        };
        assert_eq!(padded.extent_in(&inputs), Some(64));
        assert_eq!(padded.bound_in(&inputs, &outputs), Some(66));
        let at = |size| [0, 1].map(|place| padded.at_size(&inputs, place, size).unwrap().shape);
        assert_eq!(at(0), [vec![1, 2], vec![0, 4]]);
        assert_eq!(at(7), [vec![1, 9], vec![7, 4]]);
    }

    #[test]
    fn lengths_follow_from_the_size() {
        let tensor = |shape: Vec<u64>| TensorInfo::new("x", DataType::F32, shape).unwrap();
        let (inputs, outputs) = ([tensor(vec![1, 900])], [tensor(vec![2, 4])]);
        let length = PaddedLength { multiplier: 1, shift: 240, divisor: 320, extra: 0 };
        let padded = PaddedDimension {
            name: "time".to_owned(),
            inputs: vec![Some(1)],
            outputs: vec![Some(0)],
            lengths: vec![Some(length)],
            least: Some(400),
            multiple: Some(4),
        };
        assert_eq!((length.at(79), length.at(400), length.at(900)), (0, 2, 3));
        assert_eq!(padded.bound_in(&inputs, &outputs), Some(900));
        assert_eq!(padded.output_extent(0, 3, (900, 720)), 3);
        assert_eq!(
            [5, 607, 9000].map(|size| padded.taken(&inputs, &outputs, size)),
            [400, 604, 900]
        );
        assert_eq!(padded.version_needed(), 6);
    }
}
