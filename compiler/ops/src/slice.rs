//! Every n-th element of a range, per axis.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[i...] = input[starts + i * steps ...]`; one entry per axis in each list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slice {
    /// First index read, per axis.
    pub starts: Vec<usize>,
    /// Distance between indices read, per axis; negative goes backwards.
    pub steps: Vec<i64>,
    /// Extents of the output.
    pub extents: Vec<usize>,
}

impl Slice {
    /// Name in text forms.
    pub const NAME: &'static str = "slice";

    /// Whether every index read along `axis` is inside `extent`.
    fn fits(&self, axis: usize, extent: usize) -> bool {
        let Some(steps) = self.extents[axis].checked_sub(1) else { return true };
        let start = self.starts[axis];
        let last = i64::try_from(steps)
            .ok()
            .and_then(|steps| steps.checked_mul(self.steps[axis]))
            .zip(i64::try_from(start).ok())
            .and_then(|(distance, start)| start.checked_add(distance))
            .and_then(|last| usize::try_from(last).ok());
        start < extent && last.is_some_and(|last| last < extent)
    }
}

impl Operator for Slice {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let rank = input.rank();
        if [self.starts.len(), self.steps.len(), self.extents.len()] != [rank; 3] {
            return Err(InferError::new(format!(
                "starts, steps and extents of {input} need {rank} entries"
            )));
        }
        if let Some(axis) = (0..rank).find(|axis| !self.fits(*axis, input.shape[*axis])) {
            let (start, step, extent) = (self.starts[axis], self.steps[axis], self.extents[axis]);
            return Err(InferError::new(format!(
                "{extent} elements from {start} by {step} leave axis {axis} of {input}"
            )));
        }
        Ok(vec![crate::shape::bounded(input.dtype, self.extents.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
