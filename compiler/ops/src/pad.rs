//! Elements added around a tensor, or cut off.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input with `begin` elements before and `end` after, per axis; negative numbers cut off.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pad {
    /// Elements added before, per axis.
    pub begin: Vec<i64>,
    /// Elements added after, per axis.
    pub end: Vec<i64>,
    /// What is added.
    pub mode: PadMode,
    /// The value of [`PadMode::Constant`].
    #[serde(with = "crate::serde_forms::any_number")]
    pub value: f64,
}

/// What stands outside the padded tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// One value.
    Constant,
    /// The tensor mirrored at its first and last element, which are not repeated.
    Reflect,
    /// The nearest element.
    Edge,
    /// The tensor again.
    Wrap,
}

impl Pad {
    /// Name in text forms.
    pub const NAME: &'static str = "pad";
}

impl Operator for Pad {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        let rank = input.rank();
        if [self.begin.len(), self.end.len()] != [rank; 2] {
            return Err(InferError::new(format!("pads of {input} need {rank} entries")));
        }
        let mut shape = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (begin, end, own) = (self.begin[axis], self.end[axis], input.shape[axis]);
            let extent = i64::try_from(own)
                .ok()
                .and_then(|own| own.checked_add(begin)?.checked_add(end))
                .and_then(|extent| usize::try_from(extent).ok())
                .filter(|extent| self.mode == PadMode::Constant || own > 0 || *extent == 0);
            shape.push(extent.ok_or_else(|| {
                InferError::new(format!("pads {begin} and {end} do not fit axis {axis} of {input}"))
            })?);
        }
        Ok(vec![bounded(input.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
