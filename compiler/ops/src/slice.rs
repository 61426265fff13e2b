//! Every n-th element of a range, per axis.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::strided::{copy_strided, row_major};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let own = row_major(input.shape());
        let starts = self.starts.iter().zip(&own);
        let start: usize = match output.elements() {
            0 => 0,
            _ => starts.map(|(start, stride)| start * *stride as usize).sum(),
        };
        let strides: Vec<isize> = own
            .iter()
            .zip(&self.steps)
            .zip(&self.extents)
            .map(|((stride, step), extent)| if *extent > 1 { stride * *step as isize } else { 0 })
            .collect();
        let width = output.dtype.bytes();
        let bytes = copy_strided(input.bytes(), width, &output.shape, start, &strides);
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        Some(vec![builder.map("slice", &output, |point| {
            let read = point.iter().enumerate().map(|(axis, index)| {
                let scaled = match self.steps[axis] {
                    _ if self.extents[axis] == 1 => Expr::Integer(0),
                    1 => index.clone(),
                    step => index.clone() * step,
                };
                match self.starts[axis] {
                    0 => scaled,
                    start => scaled + start,
                }
            });
            Expr::Load(x, read.collect())
        })])
    }
}
