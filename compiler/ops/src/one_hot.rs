//! Indices as vectors with one entry set.

use crate::express::{input, only_output};
use crate::gather::checked_place;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::shape::{around, output_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::DataType;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// A new axis of extent `depth`, which holds `values[1]` where its index equals the input's element
/// and `values[0]` elsewhere. Inputs: indices (any numbers; negative ones count from the end, those
/// out of range match nothing), values `[off, on]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneHot {
    /// Extent of the new axis.
    pub depth: usize,
    /// Place of the new axis in the output.
    pub axis: usize,
}

impl OneHot {
    /// Name in text forms.
    pub const NAME: &'static str = "one_hot";
}

impl Operator for OneHot {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (indices, values) =
            (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        if self.axis > indices.rank() || values.shape != [2] {
            let axis = self.axis;
            return Err(InferError::new(format!(
                "axis {axis} of indices {indices} or values {values} do not fit"
            )));
        }
        let mut shape = indices.shape.clone();
        shape.insert(self.axis, self.depth);
        Ok(vec![bounded(values.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (indices, values) =
            (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let width = output.dtype.bytes();
        let (off, on) = values.bytes().split_at(width);
        let (outer, depth, inner) = around(&output.shape, self.axis);
        let indices = indices.to_i64();
        let mut bytes = off.repeat(output.elements());
        for (place, index) in indices.into_iter().enumerate().filter(|_| outer * depth > 0) {
            let Ok(index) = checked_place(index, depth) else { continue };
            let place = (place / inner * depth + index) * inner + place % inner;
            bytes[place * width..][..width].copy_from_slice(on);
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (indices, values) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        Some(vec![builder.map("one_hot", &output, |point| {
            let mut at = point.to_vec();
            let own = at.remove(self.axis);
            let index = Expr::Load(indices, at).cast(DataType::I64);
            let from_end = index.clone() + self.depth;
            let index = index.clone().less(0.into()).select(from_end, index);
            let value = |place: i64| Expr::Load(values, vec![place.into()]);
            index.equal(own).select(value(1), value(0))
        })])
    }
}
