//! Pooling on channel-packed operands, over any number of axes.

use crate::convolution::Window;
use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::packing::Pack;
use crate::pool::{Pool, PoolKind, check_kind};
use crate::shape::bounded;
use crate::transpose::Transpose;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// [`Pool`] on x `[N, C / c, X.., c]`; the result is `[N, C / c, Y.., c]`.
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

    fn plain(&self) -> Pool {
        let Self { kind, kernel, window, count_padding } = self.clone();
        Pool { kind, kernel, window, count_padding }
    }
}

impl Operator for PackedPool {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let axes = self.kernel.len();
        if x.rank() != 3 + axes {
            return Err(InferError::new(format!("{x} is not packed")));
        }
        check_kind(self.kind, x)?;
        bounded(x.dtype, self.kernel.clone())?;
        let spatial = self.window.output(&x.shape[2..2 + axes], &self.kernel)?;
        let shape = [&x.shape[..2], &spatial[..], &x.shape[2 + axes..]].concat();
        Ok(vec![bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    /// Unpacks, pools plainly, and packs again.
    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let (shape, axes) = (input.shape(), self.kernel.len());
        let block = shape[2 + axes];
        let permutation = [&[0, 1, 2 + axes], &(2..2 + axes).collect::<Vec<_>>()[..]].concat();
        let apart = Transpose { permutation }.reference(inputs)?.remove(0);
        let channels = [shape[0], shape[1] * block];
        let plain = apart.reshaped([&channels, &shape[2..2 + axes]].concat())?;
        let pooled = self.plain().reference(&[Some(&plain)])?.remove(0);
        Pack { axis: 1, block }.reference(&[Some(&pooled)])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        Some(vec![self.plain().blocks(builder, x, &output)])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        self.plain().flops(inputs, outputs)
    }
}
