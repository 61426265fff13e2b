//! Repetition of axes of extent 1.

use crate::binary::{broadcast_indices, broadcast_shapes};
use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::shape::output_type;
use crate::strided::{broadcast_strides, copy_strided};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input broadcast together with `shape`, by NumPy's rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expand {
    /// The shape that the input's shape is broadcast with.
    pub shape: Vec<usize>,
}

impl Expand {
    /// Name in text forms.
    pub const NAME: &'static str = "expand";
}

impl Operator for Expand {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let shape = broadcast_shapes(&input.shape, &self.shape).ok_or_else(|| {
            InferError::new(format!("{input} does not broadcast with shape {:?}", self.shape))
        })?;
        Ok(vec![bounded(input.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let strides = broadcast_strides(input.shape(), output.rank());
        let bytes = copy_strided(input.bytes(), output.dtype.bytes(), &output.shape, 0, &strides);
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        Some(vec![
            builder.map("expand", &output, |point| {
                Expr::Load(x, broadcast_indices(point, &own.shape))
            }),
        ])
    }
}
