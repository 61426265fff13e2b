//! Permutation of axes.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::strided::{copy_strided, row_major};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Axis `i` of the output is axis `permutation[i]` of the input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transpose {
    /// For each output axis, the input axis.
    pub permutation: Vec<usize>,
}

impl Transpose {
    /// Name in text forms.
    pub const NAME: &'static str = "transpose";
}

impl Operator for Transpose {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let mut sorted = self.permutation.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..input.rank()) {
            let permutation = &self.permutation;
            return Err(InferError::new(format!("{permutation:?} does not permute {input}")));
        }
        let shape: Vec<usize> = self.permutation.iter().map(|axis| input.shape[*axis]).collect();
        Ok(vec![TensorType::new(input.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let own = row_major(input.shape());
        let strides: Vec<isize> = self.permutation.iter().map(|axis| own[*axis]).collect();
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
        Some(vec![builder.map("transpose", &output, |point| {
            let mut read = point.to_vec();
            for (index, axis) in point.iter().zip(&self.permutation) {
                read[*axis] = index.clone();
            }
            Expr::Load(x, read)
        })])
    }
}
