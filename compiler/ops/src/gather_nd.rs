//! Slices chosen by index tuples.

use crate::express::{input, only_output};
use crate::gather::{checked_place, place};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let tuple = indices.shape()[indices.shape().len() - 1];
        let batch: usize = data.shape()[..self.batch_axes].iter().product();
        let indexed = &data.shape()[self.batch_axes..self.batch_axes + tuple];
        let slice: usize = data.shape()[self.batch_axes + tuple..].iter().product();
        let points: usize = indices.shape()[..indices.shape().len() - 1].iter().product();
        let (length, slices) = (slice * output.dtype.bytes(), indexed.iter().product::<usize>());
        let flat = indices.to_i64();
        let mut bytes = Vec::with_capacity(output.bytes());
        for point in (0..points).filter(|_| length > 0) {
            let place = flat_place(&flat[point * tuple..][..tuple], indexed)?;
            let place = point / (points / batch) * slices + place;
            bytes.extend_from_slice(&data.bytes()[place * length..][..length]);
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
        let (own, batch) = (builder.tensor_type(data), self.batch_axes);
        let index_shape = builder.tensor_type(indices).shape;
        let (tuple, points) = index_shape.split_last()?;
        Some(vec![builder.map("gather_nd", &output, |point| {
            let mut read = point[..batch].to_vec();
            for entry in 0..*tuple {
                let mut at = point[..points.len()].to_vec();
                at.push(entry.into());
                read.push(place(Expr::Load(indices, at), own.shape[batch + entry]));
            }
            read.extend_from_slice(&point[points.len()..]);
            Expr::Load(data, read)
        })])
    }
}

/// Row-major place of an index tuple in axes of the given extents.
pub(crate) fn flat_place(tuple: &[i64], extents: &[usize]) -> Result<usize, OpError> {
    tuple
        .iter()
        .zip(extents)
        .try_fold(0, |flat, (index, extent)| Ok(flat * extent + checked_place(*index, *extent)?))
}
