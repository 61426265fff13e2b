//! Matrix products.

use crate::binary::broadcast_shapes;
use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_same_type};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `[..., M, K] x [..., K, N] -> [..., M, N]`, with NumPy's rules: leading axes broadcast; a vector
/// on the left is a row, on the right a column, and that axis does not appear in the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatMul {}

impl MatMul {
    /// Name in text forms.
    pub const NAME: &'static str = "matmul";
}

impl Operator for MatMul {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        check_same_type(left, &[right])?;
        let refuse = || InferError::new(format!("{left} and {right} have no matrix product"));
        let extents = Extents::of(&left.shape, &right.shape).ok_or_else(refuse)?;
        Ok(vec![bounded(left.dtype, extents.output(left.rank(), right.rank()))?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    pending!();
}

/// Extents of a product.
struct Extents {
    batch: Vec<usize>,
    rows: usize,
    reduced: usize,
    columns: usize,
}

impl Extents {
    /// `None` where the operands do not match.
    fn of(left: &[usize], right: &[usize]) -> Option<Self> {
        let (rows, left_reduced, left_batch) = match left {
            [] => return None,
            [reduced] => (1, *reduced, &[][..]),
            [batch @ .., rows, reduced] => (*rows, *reduced, batch),
        };
        let (right_reduced, columns, right_batch) = match right {
            [] => return None,
            [reduced] => (*reduced, 1, &[][..]),
            [batch @ .., reduced, columns] => (*reduced, *columns, batch),
        };
        let batch = broadcast_shapes(left_batch, right_batch)?;
        (left_reduced == right_reduced).then_some(Self {
            batch,
            rows,
            reduced: left_reduced,
            columns,
        })
    }

    fn output(&self, left_rank: usize, right_rank: usize) -> Vec<usize> {
        let mut shape = self.batch.clone();
        if left_rank > 1 {
            shape.push(self.rows);
        }
        if right_rank > 1 {
            shape.push(self.columns);
        }
        shape
    }
}
