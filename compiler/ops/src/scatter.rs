//! Elements or slices replaced at given indices.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_axis, check_indices, check_same_type};
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

    pending!();
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

    pending!();
}
