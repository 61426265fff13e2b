//! Repetition of a whole tensor.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::shape::output_type;
use crate::strided::{copy_strided, row_major};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        // Each axis is read as an axis of repetitions and the axis itself.
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        let own = input.shape().iter().zip(row_major(input.shape()));
        for ((extent, stride), repeats) in own.zip(&self.repeats) {
            shape.extend([*repeats, *extent]);
            strides.extend([0, stride]);
        }
        let bytes = copy_strided(input.bytes(), output.dtype.bytes(), &shape, 0, &strides);
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
        Some(vec![builder.map("tile", &output, |point| {
            let read = point.iter().enumerate().map(|(axis, index)| match own.shape[axis] {
                _ if self.repeats[axis] == 1 => index.clone(),
                1 => Expr::Integer(0),
                extent => index.clone().modulo(extent.into()),
            });
            Expr::Load(x, read.collect())
        })])
    }
}
