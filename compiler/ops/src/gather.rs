//! Whole slices along one axis, chosen by indices.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_axis, check_indices};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[a..., i..., b...] = data[a..., indices[i...], b...]`. Inputs: data, indices (`i32` or
/// `i64`; negative ones count from the end). Compiled code moves indices out of range to the
/// nearest one inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gather {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

impl Gather {
    /// Name in text forms.
    pub const NAME: &'static str = "gather";
}

impl Operator for Gather {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        let mut shape = data.shape[..self.axis].to_vec();
        shape.extend(&indices.shape);
        shape.extend(&data.shape[self.axis + 1..]);
        let output = bounded(data.dtype, shape)?;
        if data.shape[self.axis] == 0 && output.elements() > 0 {
            return Err(InferError::new(format!("axis {} of {data} is empty", self.axis)));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
