//! Variants of one target for several sizes of a model's open dimensions.
//!
//! Such variants have the same code and weights sections: equal kernels and equal packed constants are there once. The
//! first of them is for the largest sizes, and the tensors of the manifest are its tensors.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Manifest, TensorInfo, Variant};

/// The sizes that a variant is for, where its artifact has variants for others too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shapes {
    /// The open dimensions that differ between the variants, in the order of the model's inputs.
    pub dimensions: Vec<DimensionSize>,
    /// The shape of each input, in the model's order.
    pub inputs: Vec<Vec<u64>>,
    /// The shape of each output, in the model's order.
    pub outputs: Vec<Vec<u64>>,
}

/// A size of an open dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DimensionSize {
    /// The dimension's name in the model, or `input[axis]` for one that has none.
    pub name: String,
    /// Its size in elements.
    pub size: u64,
}

/// `batch=4, seq=128`.
impl fmt::Display for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, DimensionSize { name, size }) in self.dimensions.iter().enumerate() {
            write!(f, "{}{name}={size}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Manifest {
    /// Inputs as a variant takes them, in the model's order.
    pub fn inputs_of(&self, variant: &Variant) -> Vec<TensorInfo> {
        sized(&self.inputs, variant.shapes.as_ref().map(|shapes| &shapes.inputs))
    }

    /// Outputs as a variant gives them, in the model's order.
    pub fn outputs_of(&self, variant: &Variant) -> Vec<TensorInfo> {
        sized(&self.outputs, variant.shapes.as_ref().map(|shapes| &shapes.outputs))
    }

    /// Positions of the variants that a loaded variant may be exchanged for, itself among them: those for other sizes,
    /// of the same target, code and weights. In the order of the manifest.
    pub fn siblings(&self, variant: usize) -> Vec<usize> {
        let Some(loaded) = self.variants.get(variant) else { return Vec::new() };
        if loaded.shapes.is_none() {
            return vec![variant];
        }
        let same = |other: &Variant| {
            let sections = (other.code, other.weights) == (loaded.code, loaded.weights);
            sections && other.shapes.is_some() && other.target == loaded.target
        };
        (0..self.variants.len()).filter(|index| same(&self.variants[*index])).collect()
    }
}

/// Tensors in other shapes. The manifest was validated: there is a shape for each, and its size fits.
fn sized(tensors: &[TensorInfo], shapes: Option<&Vec<Vec<u64>>>) -> Vec<TensorInfo> {
    let Some(shapes) = shapes else { return tensors.to_vec() };
    let resize = |(tensor, shape): (&TensorInfo, &Vec<u64>)| {
        let bytes = tensor.dtype.bytes_of(shape).unwrap_or(tensor.bytes);
        TensorInfo { shape: shape.clone(), bytes, ..tensor.clone() }
    };
    tensors.iter().zip(shapes).map(resize).collect()
}
