//! The upper or lower triangle of matrices.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The elements `[..., row, column]` with `column - row >= diagonal` (upper) or `<= diagonal`
/// (lower); zeros elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trilu {
    /// Whether the upper triangle is kept, else the lower.
    pub upper: bool,
    /// The diagonal up to which elements are kept; 0 is the main one, positive ones are above it.
    pub diagonal: i64,
}

impl Trilu {
    /// Name in text forms.
    pub const NAME: &'static str = "trilu";
}

impl Operator for Trilu {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        if input.rank() < 2 {
            return Err(InferError::new(format!("{input} is no matrix")));
        }
        Ok(vec![input.clone()])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
