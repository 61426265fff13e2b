//! Permutation of axes.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
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

    pending!();
}
