//! Inputs one after another in memory, where what computes each of them writes it.

use crate::concat::Concat;
use crate::operator::{FusionClass, OpError, Operator, named};
use crate::shape::around;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// What [`Concat`] gives, where each input is a contiguous part of the result: all axes before `axis` have extent 1. It
/// costs nothing where the inputs are written into the result; its expression copies them where they cannot be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The axis that grows.
    pub axis: usize,
}

impl Join {
    /// Name in text forms.
    pub const NAME: &'static str = "join";

    /// Whether inputs that are joined along `axis` to a result of `shape` are contiguous parts of it.
    pub fn is_contiguous(shape: &[usize], axis: usize) -> bool {
        around(shape, axis).0 == 1
    }

    /// How many bytes from the beginning of the result each input begins.
    pub fn offsets<'a>(inputs: impl Iterator<Item = &'a TensorType>) -> Vec<usize> {
        let begin = inputs.scan(0, |end, input| {
            *end += input.bytes();
            Some(*end - input.bytes())
        });
        begin.collect()
    }
}

impl Operator for Join {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let outputs = Concat { axis: self.axis }.infer(inputs)?;
        match outputs.iter().all(|output| Self::is_contiguous(&output.shape, self.axis)) {
            true => Ok(outputs),
            false => Err(InferError::new(format!("axis {} is not the outermost one", self.axis))),
        }
    }

    /// A kernel that takes it in would write the result once more.
    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        Concat { axis: self.axis }.reference(inputs)
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        Concat { axis: self.axis }.expression(builder, inputs)
    }
}
