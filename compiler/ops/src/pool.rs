//! Pooling over windows.

use crate::convolution::Window;
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Each window of the spatial axes combined into one element. Input: `[batch, channels,
/// spatial...]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// How a window's elements are combined.
    pub kind: PoolKind,
    /// Extents of the window.
    pub kernel: Vec<usize>,
    /// How the window slides.
    pub window: Window,
    /// Whether averages divide by the whole window, else by its elements inside the input.
    pub count_padding: bool,
}

/// How the elements of a window are combined; padding counts as nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The largest.
    Maximum,
    /// The mean.
    Average,
    /// The p-norm.
    Lp(u32),
}

impl Pool {
    /// Name in text forms.
    pub const NAME: &'static str = "pool";
}

impl Operator for Pool {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        if x.rank() < 3 {
            return Err(InferError::new(format!("{x} has no spatial axes")));
        }
        check_kind(self.kind, x)?;
        bounded(x.dtype, self.kernel.clone())?;
        let mut shape = x.shape[..2].to_vec();
        shape.extend(self.window.output(&x.shape[2..], &self.kernel)?);
        Ok(vec![bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}

/// Refuses kinds that the element type has no meaning for.
pub(crate) fn check_kind(kind: PoolKind, x: &TensorType) -> Result<(), InferError> {
    match kind {
        PoolKind::Lp(0) => Err(InferError::new("a norm of order 0 cannot be pooled")),
        PoolKind::Average | PoolKind::Lp(_) => crate::shape::check_float(x),
        PoolKind::Maximum => Ok(()),
    }
}
