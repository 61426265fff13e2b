//! Single elements along one axis, chosen by indices.

use crate::express::{input, only_output};
use crate::gather::{checked_place, place};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::shape::{bounded, check_axis, check_indices};
use crate::strided::{Points, row_major};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `output[a..., i, b...] = data[a..., indices[a..., i, b...], b...]`. Inputs: data, indices (`i32`
/// or `i64`; negative ones count from the end). Compiled code moves indices out of range to the
/// nearest one inside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatherElements {
    /// The axis of `data` that is indexed.
    pub axis: usize,
}

impl GatherElements {
    /// Name in text forms.
    pub const NAME: &'static str = "gather_elements";
}

impl Operator for GatherElements {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        let output = bounded(data.dtype, indices.shape.clone())?;
        let inside = indices.rank() == data.rank()
            && (0..data.rank())
                .all(|axis| axis == self.axis || indices.shape[axis] <= data.shape[axis]);
        if !inside || (data.shape[self.axis] == 0 && output.elements() > 0) {
            return Err(InferError::new(format!("indices {indices} do not fit {data}")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let extent = data.shape()[self.axis];
        let (strides, width) = (row_major(data.shape()), output.dtype.bytes());
        let mut bytes = Vec::with_capacity(output.bytes());
        let mut points = Points::new(&output.shape);
        for index in indices.to_i64() {
            let place = checked_place(index, extent)?;
            let flat = points.flat(&strides, self.axis, place);
            bytes.extend_from_slice(&data.bytes()[flat * width..][..width]);
            points.advance();
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
        let extent = builder.tensor_type(data).shape[self.axis];
        Some(vec![builder.map("gather_elements", &output, |point| {
            let mut read = point.to_vec();
            read[self.axis] = place(Expr::Load(indices, point.to_vec()), extent);
            Expr::Load(data, read)
        })])
    }
}
