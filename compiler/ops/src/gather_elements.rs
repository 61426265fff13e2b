//! Single elements along one axis, chosen by indices.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_axis, check_indices};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[a..., i, b...] = data[a..., indices[a..., i, b...], b...]`. Inputs: data, indices (`i32`
/// or `i64`; negative ones count from the end). Compiled code moves indices out of range to the
/// nearest one inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatherElements {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

impl GatherElements {
    /// Name in text forms.
    pub const NAME: &'static str = "gather_elements";
}

impl Operator for GatherElements {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        let output = bounded(data.dtype, indices.shape.clone())?;
        let inside = indices.rank() == data.rank()
            && (0..data.rank())
                .all(|axis| axis == self.axis || indices.shape[axis] <= data.shape[axis]);
        if !inside || (data.shape[self.axis] == 0 && output.elements() > 0) {
            return Err(InferError::new(format!("indices {indices} do not fit {data}")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
