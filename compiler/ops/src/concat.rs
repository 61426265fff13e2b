//! Inputs one after another along an axis.

use crate::express::only_output;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{around, output_type};
use crate::shape::{bounded, check_axis, check_same_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// All inputs, one after another along `axis`; their other extents are equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Concat {
    /// The axis that grows.
    pub axis: usize,
}

impl Concat {
    /// Name in text forms.
    pub const NAME: &'static str = "concat";

    /// The element at `point`: each part is read where the index is before its end.
    fn chosen(&self, parts: &[BufferId], extents: &[usize], point: &[Expr]) -> Expr {
        let mut begin: usize = extents.iter().sum();
        let mut value: Option<Expr> = None;
        for (part, extent) in parts.iter().zip(extents).rev() {
            let end = begin;
            begin -= extent;
            if *extent == 0 {
                continue;
            }
            let mut read = point.to_vec();
            if begin > 0 {
                read[self.axis] = point[self.axis].clone() - begin;
            }
            let own = Expr::Load(*part, read);
            value = Some(match value {
                None => own,
                Some(later) => point[self.axis].clone().less(end.into()).select(own, later),
            });
        }
        // Nothing is read of an output that has no elements.
        value.unwrap_or_else(|| Expr::Load(parts[0], point.to_vec()))
    }
}

impl Operator for Concat {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let first = required(Self::NAME, inputs, 0)?;
        check_axis(first, self.axis)?;
        let mut shape = first.shape.clone();
        for place in 1..inputs.len() {
            let other = required(Self::NAME, inputs, place)?;
            check_same_type(first, &[other])?;
            let fits = other.rank() == first.rank()
                && (0..first.rank())
                    .all(|axis| axis == self.axis || other.shape[axis] == first.shape[axis]);
            let extent = fits.then(|| shape[self.axis].checked_add(other.shape[self.axis]));
            shape[self.axis] = extent.flatten().ok_or_else(|| {
                let axis = self.axis;
                InferError::new(format!("{first} and {other} do not join along axis {axis}"))
            })?;
        }
        Ok(vec![bounded(first.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let output = output_type(self, inputs)?;
        let (outer, _, inner) = around(&output.shape, self.axis);
        let width = output.dtype.bytes();
        let mut bytes = Vec::with_capacity(output.bytes());
        for place in 0..outer {
            for input in inputs.iter().flatten() {
                let length = input.shape()[self.axis] * inner * width;
                bytes.extend_from_slice(&input.bytes()[place * length..][..length]);
            }
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let output = only_output(self, builder, inputs)?;
        let parts: Option<Vec<BufferId>> = inputs.iter().copied().collect();
        let parts = parts?;
        let extents: Vec<usize> =
            parts.iter().map(|part| builder.tensor_type(*part).shape[self.axis]).collect();
        Some(vec![builder.map("concat", &output, |point| self.chosen(&parts, &extents, point))])
    }
}
