//! Inputs one after another along an axis.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_axis, check_same_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// All inputs, one after another along `axis`; their other extents are equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Concat {
    /// The axis that grows.
    pub axis: usize,
}

impl Concat {
    /// Name in text forms.
    pub const NAME: &'static str = "concat";
}

impl Operator for Concat {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let first = required(Self::NAME, inputs, 0)?;
        check_axis(first, self.axis)?;
        let mut shape = first.shape.clone();
        for place in 1..inputs.len() {
            let other = required(Self::NAME, inputs, place)?;
            check_same_type(first, &[other])?;
            let fits = other.rank() == first.rank()
                && (0..first.rank())
                    .all(|axis| axis == self.axis || other.shape[axis] == first.shape[axis]);
            let extent = fits.then(|| shape[self.axis].checked_add(other.shape[self.axis]));
            shape[self.axis] = extent.flatten().ok_or_else(|| {
                let axis = self.axis;
                InferError::new(format!("{first} and {other} do not join along axis {axis}"))
            })?;
        }
        Ok(vec![bounded(first.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
