//! Slices chosen by index tuples.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_indices};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[b..., i..., s...] = data[b..., indices[b..., i..., :]..., s...]`: the last axis of
/// `indices` holds tuples of indices into `data`, after the leading batch axes both share. Inputs:
/// data, indices (`i32` or `i64`; negative ones count from the end). Compiled code moves indices out
/// of range to the nearest one inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatherNd {
    /// Number of leading axes that both inputs share.
    pub batch_axes: usize,
}

impl GatherNd {
    /// Name in text forms.
    pub const NAME: &'static str = "gather_nd";
}

impl Operator for GatherNd {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_indices(indices)?;
        let refuse = || InferError::new(format!("index tuples {indices} do not fit {data}"));
        let batch = self.batch_axes;
        let Some((tuple, points)) = indices.shape.split_last() else { return Err(refuse()) };
        let sliced = batch.checked_add(*tuple).filter(|sliced| *sliced <= data.rank());
        let Some(sliced) = sliced.filter(|_| batch <= points.len()) else { return Err(refuse()) };
        if data.shape[..batch] != points[..batch] {
            return Err(refuse());
        }
        let shape = [points, &data.shape[sliced..]].concat();
        let output = bounded(data.dtype, shape)?;
        if data.shape[batch..sliced].contains(&0) && output.elements() > 0 {
            return Err(refuse());
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
