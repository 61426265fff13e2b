//! Conversion between element types.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[i] = input[i]` as another element type, by the rules of ONNX `Cast`: floats become
/// integers by cutting towards zero, integers keep their low bits, anything but zero is true.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cast {
    /// The element type of the output.
    #[serde(with = "crate::serde_forms::data_type_name")]
    pub to: DataType,
}

impl Cast {
    /// Name in text forms.
    pub const NAME: &'static str = "cast";
}

impl Operator for Cast {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        Ok(vec![crate::shape::bounded(self.to, input.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
