//! Whole slices along one axis, chosen by indices.

use crate::express::{input, only_output};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{around, output_type};
use crate::shape::{bounded, check_axis, check_indices};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::DataType;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[a..., i..., b...] = data[a..., indices[i...], b...]`. Inputs: data, indices (`i32` or
/// `i64`; negative ones count from the end). Compiled code moves indices out of range to the
/// nearest one inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gather {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

impl Gather {
    /// Name in text forms.
    pub const NAME: &'static str = "gather";
}

impl Operator for Gather {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        let mut shape = data.shape[..self.axis].to_vec();
        shape.extend(&indices.shape);
        shape.extend(&data.shape[self.axis + 1..]);
        let output = bounded(data.dtype, shape)?;
        if data.shape[self.axis] == 0 && output.elements() > 0 {
            return Err(InferError::new(format!("axis {} of {data} is empty", self.axis)));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let (outer, extent, inner) = around(data.shape(), self.axis);
        let length = inner * output.dtype.bytes();
        let places = places(indices, extent)?;
        let mut bytes = Vec::with_capacity(output.bytes());
        for slice in (0..outer).filter(|_| length > 0) {
            for place in &places {
                bytes.extend_from_slice(
                    &data.bytes()[(slice * extent + place) * length..][..length],
                );
            }
        }
        Ok(vec![Tensor::from_bytes(output, bytes)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (data, indices) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(data);
        let (axis, rank) = (self.axis, builder.tensor_type(indices).rank());
        Some(vec![builder.map("gather", &output, |point| {
            let index = Expr::Load(indices, point[axis..axis + rank].to_vec());
            let mut read = point[..axis].to_vec();
            read.push(place(index, own.shape[axis]));
            read.extend_from_slice(&point[axis + rank..]);
            Expr::Load(data, read)
        })])
    }
}

/// Indices into an axis of `extent`, with negative ones counted from the end.
pub(crate) fn places(indices: &Tensor, extent: usize) -> Result<Vec<usize>, OpError> {
    indices.to_i64().into_iter().map(|index| checked_place(index, extent)).collect()
}

/// An index into an axis of `extent`; negative counts from the end.
pub(crate) fn checked_place(index: i64, extent: usize) -> Result<usize, OpError> {
    let place = if index < 0 { index.saturating_add_unsigned(extent as u64) } else { index };
    let place = usize::try_from(place).ok().filter(|place| *place < extent);
    place.ok_or_else(|| OpError::Value(format!("index {index} is outside an axis of {extent}")))
}

/// As [`checked_place`], of a loaded index; moved inside where it is not.
pub(crate) fn place(index: Expr, extent: usize) -> Expr {
    let index = index.cast(DataType::I64);
    let from_end = index.clone() + extent;
    let place = index.clone().less(0.into()).select(from_end, index);
    place.maximum(0.into()).minimum((extent as i64 - 1).into()).cast(DataType::I64)
}
