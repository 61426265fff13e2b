//! The place of the largest or smallest element.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::check_axis;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The index (`i64`) of the largest or smallest element along an axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArgReduce {
    /// Whether the largest is looked for, else the smallest.
    pub maximum: bool,
    /// The axis.
    pub axis: usize,
    /// Whether the axis stays, with extent 1.
    pub keep_axis: bool,
    /// Whether the last of several equal elements counts, else the first.
    pub select_last: bool,
}

impl ArgReduce {
    /// Name in text forms.
    pub const NAME: &'static str = "arg_reduce";
}

impl Operator for ArgReduce {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        let mut shape = input.shape.clone();
        if shape[self.axis] == 0 {
            return Err(InferError::new(format!("axis {} of {input} is empty", self.axis)));
        }
        if self.keep_axis {
            shape[self.axis] = 1;
        } else {
            shape.remove(self.axis);
        }
        Ok(vec![crate::shape::bounded(DataType::I64, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    pending!();
}
