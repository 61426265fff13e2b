//! Checks of the sizes that variants are for: as many shapes as there are tensors, of their ranks, within the address
//! space, and none of them twice for one target.

use crate::manifest::{Manifest, TensorInfo, Variant};
use crate::validate::MAX_BYTES;

/// Most bytes of a dimension's name.
const LONGEST_NAME: usize = 256;

/// Most variants of an artifact for several sizes.
const MOST_VARIANTS: usize = 1024;

impl Manifest {
    /// Checks the shapes of the variant at a position.
    pub(crate) fn check_shapes(&self, position: usize) -> Result<(), String> {
        let variant = &self.variants[position];
        let Some(shapes) = &variant.shapes else { return Ok(()) };
        if self.schema_version < 3 {
            return Err(
                "it is for one of several sizes, which schema version 2 does not know".into()
            );
        }
        each("input", &self.inputs, &shapes.inputs)?;
        each("output", &self.outputs, &shapes.outputs)?;
        let is_name =
            |name: &str| !name.is_empty() && name.len() <= LONGEST_NAME && !name.contains('\0');
        match shapes.dimensions.iter().find(|dimension| !is_name(&dimension.name)) {
            Some(dimension) => Err(format!("'{}' is no name of a dimension", dimension.name)),
            None => Ok(()),
        }
    }

    /// Checks that the variants of each target are for different sizes, and that the first is for those of the
    /// manifest.
    pub(crate) fn check_siblings(&self, position: usize) -> Result<(), String> {
        let variant = &self.variants[position];
        let Some(shapes) = &variant.shapes else { return Ok(()) };
        // Each is compared with all others.
        if self.variants.len() > MOST_VARIANTS {
            return Err(format!("it is one of more than {MOST_VARIANTS} variants"));
        }
        let siblings = self.siblings(position);
        let inputs_of =
            |index: &usize| self.variants[*index].shapes.as_ref().map(|shapes| &shapes.inputs);
        let same = |index: &&usize| inputs_of(index) == Some(&shapes.inputs);
        if siblings.iter().filter(same).count() > 1 {
            return Err(format!("another variant of its target is for the same sizes ({shapes})"));
        }
        let is_first = siblings.first() == Some(&position);
        let declared = |tensors: &[TensorInfo], shapes: &[Vec<u64>]| {
            tensors.iter().map(|tensor| &tensor.shape).eq(shapes)
        };
        let is_declared =
            declared(&self.inputs, &shapes.inputs) && declared(&self.outputs, &shapes.outputs);
        match is_first && !is_declared {
            true => Err("it is the first of its target, and not for the manifest's shapes".into()),
            false => Ok(()),
        }
    }

    /// Size in bytes and alignment of a variant's input or output; `None` where there is none of this number.
    pub(crate) fn port(&self, variant: &Variant, output: bool, index: u32) -> Option<(u64, u64)> {
        let index = index as usize;
        let tensor = if output { self.outputs.get(index) } else { self.inputs.get(index) }?;
        let bytes = match &variant.shapes {
            None => tensor.bytes,
            Some(shapes) => {
                let shapes = if output { &shapes.outputs } else { &shapes.inputs };
                tensor.dtype.bytes_of(shapes.get(index)?)?
            }
        };
        Some((bytes, tensor.dtype.alignment()))
    }
}

fn each(role: &str, tensors: &[TensorInfo], shapes: &[Vec<u64>]) -> Result<(), String> {
    if tensors.len() != shapes.len() {
        let (found, expected) = (shapes.len(), tensors.len());
        return Err(format!("it has shapes of {found} {role}s where the model has {expected}"));
    }
    for (tensor, shape) in tensors.iter().zip(shapes) {
        let name = &tensor.name;
        if tensor.shape.len() != shape.len() {
            let rank = tensor.shape.len();
            return Err(format!("{role} '{name}' has {rank} axes, it says {shape:?}"));
        }
        if tensor.dtype.bytes_of(shape).is_none_or(|bytes| bytes > MAX_BYTES) {
            return Err(format!("{role} '{name}': shape {shape:?} fits no address space"));
        }
    }
    Ok(())
}
