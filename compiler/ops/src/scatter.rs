//! Elements or slices replaced at given indices.

use crate::gather::checked_place;
use crate::gather_nd::flat_place;
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::shape::{bounded, check_axis, check_indices, check_same_type};
use crate::strided::{Points, row_major};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// How an update meets the element already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterReduction {
    /// The update replaces it; which of several updates of one element wins is the last.
    None,
    /// Sum.
    Add,
    /// Product.
    Multiply,
    /// The larger.
    Maximum,
    /// The smaller.
    Minimum,
}

impl ScatterReduction {
    /// A copy of `data` with slices of `length` elements updated at `places` (in slices).
    fn apply(
        self,
        output: &TensorType,
        data: &Tensor,
        updates: &Tensor,
        places: &[usize],
        length: usize,
    ) -> Result<Tensor, OpError> {
        with_number!(output.dtype, Own => {
            let (mut values, updates) = (Own::read(data), Own::read(updates));
            for (place, update) in places.iter().zip(updates.chunks_exact(length.max(1))) {
                let slice = &mut values[place * length..][..length];
                slice.iter_mut().zip(update).for_each(|(old, new)| *old = self.combine(*old, *new));
            }
            Own::write(output, &values)
        })
    }

    fn combine<N: Number>(self, old: N, new: N) -> N {
        match self {
            ScatterReduction::None => new,
            ScatterReduction::Add => old.plus(new),
            ScatterReduction::Multiply => old.times(new),
            ScatterReduction::Maximum => old.larger(new),
            ScatterReduction::Minimum => old.smaller(new),
        }
    }
}

/// A copy of `data` with `data[a..., indices[a..., i, b...], b...] = updates[a..., i, b...]`.
/// Inputs: data, indices (`i32` or `i64`; negative ones count from the end), updates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScatterElements {
    /// The axis of `data` that is indexed.
    pub axis: usize,
    /// How updates meet what is there.
    pub reduction: ScatterReduction,
}

impl ScatterElements {
    /// Name in text forms.
    pub const NAME: &'static str = "scatter_elements";
}

impl Operator for ScatterElements {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        check_same_type(data, &[updates])?;
        let inside = indices.rank() == data.rank()
            && indices.shape == updates.shape
            && (0..data.rank())
                .all(|axis| axis == self.axis || indices.shape[axis] <= data.shape[axis]);
        bounded(indices.dtype, indices.shape.clone())?;
        if !inside || (data.shape[self.axis] == 0 && indices.elements() > 0) {
            return Err(InferError::new(format!(
                "indices {indices} and updates {updates} do not fit {data}"
            )));
        }
        Ok(vec![bounded(data.dtype, data.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        let output = output_type(self, inputs)?;
        let (extent, strides) = (data.shape()[self.axis], row_major(data.shape()));
        let mut points = Points::new(indices.shape());
        let mut places = Vec::new();
        for index in indices.to_i64() {
            places.push(points.flat(&strides, self.axis, checked_place(index, extent)?));
            points.advance();
        }
        Ok(vec![self.reduction.apply(&output, data, updates, &places, 1)?])
    }

    /// Only folded: updates may meet in one element, which blocks cannot express.
    fn expression(&self, _: &mut Builder, _: &[Option<BufferId>]) -> Option<Vec<BufferId>> {
        None
    }
}

/// A copy of `data` with `data[indices[i..., :]..., s...] = updates[i..., s...]`: the last axis of
/// `indices` holds tuples of indices into `data`. Inputs: data, indices (`i32` or `i64`; negative
/// ones count from the end), updates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScatterNd {
    /// How updates meet what is there.
    pub reduction: ScatterReduction,
}

impl ScatterNd {
    /// Name in text forms.
    pub const NAME: &'static str = "scatter_nd";
}

impl Operator for ScatterNd {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        check_indices(indices)?;
        check_same_type(data, &[updates])?;
        bounded(indices.dtype, indices.shape.clone())?;
        let fits = indices.shape.split_last().is_some_and(|(tuple, points)| {
            *tuple <= data.rank() && updates.shape == [points, &data.shape[*tuple..]].concat()
        });
        if !fits {
            return Err(InferError::new(format!(
                "index tuples {indices} and updates {updates} do not fit {data}"
            )));
        }
        Ok(vec![bounded(data.dtype, data.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        let output = output_type(self, inputs)?;
        let tuple = indices.shape()[indices.shape().len() - 1];
        let points: usize = indices.shape()[..indices.shape().len() - 1].iter().product();
        let (indexed, slice) = data.shape().split_at(tuple);
        let flat = indices.to_i64();
        let places: Result<Vec<usize>, OpError> =
            (0..points).map(|point| flat_place(&flat[point * tuple..][..tuple], indexed)).collect();
        let slice: usize = slice.iter().product();
        Ok(vec![self.reduction.apply(&output, data, updates, &places?, slice)?])
    }

    /// Only folded: updates may meet in one element, which blocks cannot express.
    fn expression(&self, _: &mut Builder, _: &[Option<BufferId>]) -> Option<Vec<BufferId>> {
        None
    }
}
