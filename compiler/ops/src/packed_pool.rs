//! Two-dimensional pooling on channel-packed operands.

use crate::convolution::Window;
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::pool::{Pool, PoolKind, check_kind};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// [`Pool`] on x `[N, C / c, H, W, c]`; the result is `[N, C / c, P, Q, c]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PackedPool {
    /// How a window's elements are combined.
    pub kind: PoolKind,
    /// Extents of the window.
    pub kernel: Vec<usize>,
    /// How the window slides.
    pub window: Window,
    /// Whether averages divide by the whole window, else by its elements inside the input.
    pub count_padding: bool,
}

impl PackedPool {
    /// Name in text forms.
    pub const NAME: &'static str = "packed_pool";
}

impl Operator for PackedPool {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        if x.rank() != 5 {
            return Err(InferError::new(format!("{x} is not packed")));
        }
        check_kind(self.kind, x)?;
        bounded(x.dtype, self.kernel.clone())?;
        let spatial = self.window.output(&x.shape[2..4], &self.kernel)?;
        let shape = [x.shape[0], x.shape[1], spatial[0], spatial[1], x.shape[4]];
        Ok(vec![bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
