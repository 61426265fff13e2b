//! A dimension of any size: a model that maps over it is run at some sizes, one after the other, over consecutive
//! slices of its inputs and outputs.
//!
//! The dimension is the outermost axis, but for axes of extent 1, of every input and output that has it, so that slices
//! lie one behind the other. Inputs without it are read whole by every run, and outputs without it are the same in all.

use serde::{Deserialize, Serialize};

use crate::{Manifest, TensorInfo, Variant};

/// The dimension that may have any size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenDimension {
    /// Its name in the model, or `input[axis]` where it has none.
    pub name: String,
    /// The axis of each input that it is; none of an input without it.
    pub inputs: Vec<Option<u32>>,
    /// The axis of each output that it is; none of an output without it.
    pub outputs: Vec<Option<u32>>,
}

impl OpenDimension {
    /// The size of the dimension in shapes of the model's inputs; `None` where an input is too short.
    pub fn size_in<'a>(&self, mut inputs: impl Iterator<Item = &'a [u64]>) -> Option<u64> {
        let mut size = None;
        for axis in &self.inputs {
            let shape = inputs.next()?;
            let Some(axis) = axis else { continue };
            size = size.or(Some(*shape.get(*axis as usize)?));
        }
        size
    }

    /// A tensor at a size; `None` where its bytes do not fit 63 bits.
    pub fn at_size(tensor: &TensorInfo, axis: Option<u32>, size: u64) -> Option<TensorInfo> {
        let mut shape = tensor.shape.clone();
        if let Some(axis) = axis {
            *shape.get_mut(axis as usize)? = size;
        }
        TensorInfo::new(&tensor.name, tensor.dtype, shape)
    }
}

impl Manifest {
    /// The size that a variant has along the open dimension.
    pub fn open_size(&self, variant: &Variant) -> Option<u64> {
        let inputs = self.inputs_of(variant);
        self.open.as_ref()?.size_in(inputs.iter().map(|tensor| &tensor.shape[..]))
    }

    /// Checks what is said of an open dimension: its axes are there, one size has it everywhere in a variant, and for
    /// each combination of the other sizes there is a variant of size 1 of the same target.
    pub(crate) fn check_open(&self) -> Result<(), String> {
        let Some(open) = &self.open else { return Ok(()) };
        if open.name.is_empty() || open.name.contains('\0') {
            return Err("the open dimension has no name".to_owned());
        }
        axes("input", &self.inputs, &open.inputs)?;
        axes("output", &self.outputs, &open.outputs)?;
        for (index, variant) in self.variants.iter().enumerate() {
            let (inputs, outputs) = (self.inputs_of(variant), self.outputs_of(variant));
            let sizes =
                || variant.shapes.as_ref().map_or(String::new(), |own| format!(" for {own}"));
            let size = self.open_size(variant).unwrap_or(0);
            let same = |tensors: &[TensorInfo], axes: &[Option<u32>]| {
                let mut pairs = tensors.iter().zip(axes);
                pairs.all(|(own, axis)| axis.is_none_or(|axis| outermost(&own.shape, axis, size)))
            };
            let is_one_size = same(&inputs, &open.inputs) && same(&outputs, &open.outputs);
            if size == 0 || !is_one_size || !variant.extents.is_empty() {
                let name = &open.name;
                return Err(format!("the variant{} does not map over '{name}'", sizes()));
            }
            let apart = open.others(&inputs);
            // A run is composed of those that are loaded together.
            let is_single = |other: &usize| {
                let other = &self.variants[*other];
                open.others(&self.inputs_of(other)) == apart && self.open_size(other) == Some(1)
            };
            if !self.siblings(index).iter().any(is_single) {
                let name = &open.name;
                return Err(format!("there is no variant of {name}=1 beside that{}", sizes()));
            }
        }
        Ok(())
    }
}

impl OpenDimension {
    /// The shapes of inputs with 0 for the dimension.
    fn others(&self, inputs: &[TensorInfo]) -> Vec<Vec<u64>> {
        let shapes = inputs.iter().map(|tensor| tensor.shape.clone());
        let mut shapes: Vec<Vec<u64>> = shapes.collect();
        for (shape, axis) in shapes.iter_mut().zip(&self.inputs) {
            if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis as usize)) {
                *extent = 0;
            }
        }
        shapes
    }
}

/// Whether an axis of a shape has this size, and none before it has more than one position.
fn outermost(shape: &[u64], axis: u32, size: u64) -> bool {
    let axis = axis as usize;
    shape.get(axis) == Some(&size) && shape[..axis].iter().all(|extent| *extent == 1)
}

fn axes(role: &str, tensors: &[TensorInfo], axes: &[Option<u32>]) -> Result<(), String> {
    let is_there = |(tensor, axis): (&TensorInfo, &Option<u32>)| {
        axis.is_none_or(|axis| (axis as usize) < tensor.shape.len())
    };
    let fits = tensors.len() == axes.len() && tensors.iter().zip(axes).all(is_there);
    match fits && axes.iter().any(Option::is_some) {
        true => Ok(()),
        false => Err(format!("the open dimension does not fit the {role}s")),
    }
}
