//! Repetition of a whole tensor.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input repeated `repeats` times along each axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tile {
    /// Repetitions, per axis.
    pub repeats: Vec<usize>,
}

impl Tile {
    /// Name in text forms.
    pub const NAME: &'static str = "tile";
}

impl Operator for Tile {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let extents = input.shape.iter().zip(&self.repeats);
        let shape: Option<Vec<usize>> =
            extents.map(|(extent, repeats)| extent.checked_mul(*repeats)).collect();
        match shape {
            Some(shape) if self.repeats.len() == input.rank() => {
                Ok(vec![bounded(input.dtype, shape)?])
            }
            _ => {
                Err(InferError::new(format!("{input} cannot be repeated {:?} times", self.repeats)))
            }
        }
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
