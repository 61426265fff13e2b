//! Element-wise choice between two values.

use crate::binary::{broadcast_indices, broadcast_shapes};
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_same_type, output_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[i] = if condition[i] { then[i] } else { otherwise[i] }`. Inputs: condition (truth
/// values), then, otherwise; their shapes broadcast.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Select {}

impl Select {
    /// Name in text forms.
    pub const NAME: &'static str = "select";
}

impl Operator for Select {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let condition = required(Self::NAME, inputs, 0)?;
        let (then, otherwise) =
            (required(Self::NAME, inputs, 1)?, required(Self::NAME, inputs, 2)?);
        if condition.dtype != DataType::Bool {
            return Err(InferError::new(format!("condition {condition} is not of truth values")));
        }
        check_same_type(then, &[otherwise])?;
        let shape = broadcast_shapes(&then.shape, &otherwise.shape)
            .and_then(|shape| broadcast_shapes(&shape, &condition.shape))
            .ok_or_else(|| {
                InferError::new(format!("{condition}, {then} and {otherwise} do not broadcast"))
            })?;
        Ok(vec![bounded(then.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
