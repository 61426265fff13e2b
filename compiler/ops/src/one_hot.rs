//! Indices as vectors with one entry set.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// A new axis of extent `depth`, which holds `values[1]` where its index equals the input's element
/// and `values[0]` elsewhere. Inputs: indices (any numbers; negative ones count from the end, those
/// out of range match nothing), values `[off, on]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneHot {
    /// Extent of the new axis.
    pub depth: usize,
    /// Place of the new axis in the output.
    pub axis: usize,
}

impl OneHot {
    /// Name in text forms.
    pub const NAME: &'static str = "one_hot";
}

impl Operator for OneHot {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (indices, values) =
            (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if self.axis > indices.rank() || values.shape != [2] {
            let axis = self.axis;
            return Err(InferError::new(format!(
                "axis {axis} of indices {indices} or values {values} do not fit"
            )));
        }
        let mut shape = indices.shape.clone();
        shape.insert(self.axis, self.depth);
        Ok(vec![bounded(values.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
