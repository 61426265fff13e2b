//! Element-wise choice between two values.

use crate::binary::{broadcast_indices, broadcast_shapes};
use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{bounded, check_same_type, output_type};
use crate::strided::{broadcast_strides, copy_strided};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let output = output_type(self, inputs)?;
        let condition = required(Self::NAME, inputs, 0)?;
        let (then, otherwise) =
            (required(Self::NAME, inputs, 1)?, required(Self::NAME, inputs, 2)?);
        let spread = |tensor: &Tensor| {
            let strides = broadcast_strides(tensor.shape(), output.rank());
            copy_strided(tensor.bytes(), tensor.dtype().bytes(), &output.shape, 0, &strides)
        };
        let mut bytes = spread(otherwise);
        let (then, width) = (spread(then), output.dtype.bytes());
        let elements = bytes.chunks_exact_mut(width).zip(then.chunks_exact(width));
        for ((element, then), chosen) in elements.zip(spread(condition)) {
            if chosen != 0 {
                element.copy_from_slice(then);
            }
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (condition, then) = (input(inputs, 0)?, input(inputs, 1)?);
        let otherwise = input(inputs, 2)?;
        let output = only_output(self, builder, inputs)?;
        let types = [condition, then, otherwise].map(|buffer| builder.tensor_type(buffer));
        Some(vec![builder.map("select", &output, |point| {
            let load = |buffer: BufferId, own: &TensorType| {
                Expr::Load(buffer, broadcast_indices(point, &own.shape))
            };
            load(condition, &types[0]).select(load(then, &types[1]), load(otherwise, &types[2]))
        })])
    }
}
