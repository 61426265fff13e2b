//! Matrix products.

use crate::binary::broadcast_indices;
use crate::binary::broadcast_shapes;
use crate::express::{input, load_wide, only_output, reduce};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::output_type;
use crate::shape::{bounded, check_same_type};
use crate::strided::{Points, broadcast_strides};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner};
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

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (left, right) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let output = output_type(self, inputs)?;
        let Some(extents) = Extents::of(left.shape(), right.shape()) else {
            return Err(OpError::Value("operands have no matrix product".into()));
        };
        Ok(vec![with_number!(output.dtype, Own => {
            Own::write(&output, &extents.product(left.shape(), right.shape(), &Own::read(left), &Own::read(right)))?
        })])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (left, right) = (input(inputs, 0)?, input(inputs, 1)?);
        let output = only_output(self, builder, inputs)?;
        let types = [left, right].map(|buffer| builder.tensor_type(buffer));
        let extents = Extents::of(&types[0].shape, &types[1].shape)?;
        let batch = extents.batch.len();
        let sums =
            reduce(builder, "matmul", &output, &[extents.reduced], Combiner::Sum, |point, by| {
                let (left_batch, right_batch) = batches(&types[0].shape, &types[1].shape);
                let mut left_read = broadcast_indices(&point[..batch], left_batch);
                let mut right_read = broadcast_indices(&point[..batch], right_batch);
                if types[0].rank() > 1 {
                    left_read.push(point[batch].clone());
                }
                left_read.push(by[0].clone());
                right_read.push(by[0].clone());
                if types[1].rank() > 1 {
                    right_read.push(point[point.len() - 1].clone());
                }
                let dtype = output.dtype;
                load_wide(left, left_read, dtype) * load_wide(right, right_read, dtype)
            });
        Some(vec![sums])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let left = inputs.first().copied().flatten();
        let reduced = left.and_then(|left| left.shape.last()).map_or(0, |extent| *extent as u64);
        let elements = outputs.iter().map(|output| output.elements() as u64);
        elements.map(|elements| elements.saturating_mul(2).saturating_mul(reduced)).sum()
    }
}

/// The leading axes of both operands.
fn batches<'a>(left: &'a [usize], right: &'a [usize]) -> (&'a [usize], &'a [usize]) {
    let batch = |shape: &'a [usize]| &shape[..shape.len().saturating_sub(2)];
    (batch(left), batch(right))
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

    /// All products of the batch.
    fn product<N: Number>(
        &self,
        left_shape: &[usize],
        right_shape: &[usize],
        left: &[N],
        right: &[N],
    ) -> Vec<N> {
        let sizes = [self.rows * self.reduced, self.reduced * self.columns];
        let size = self.rows * self.columns;
        let count: usize = self.batch.iter().product();
        let mut output = vec![N::ZERO; count * size];
        if size == 0 {
            return output;
        }
        let (left_batch, right_batch) = batches(left_shape, right_shape);
        let strides =
            [left_batch, right_batch].map(|batch| broadcast_strides(batch, self.batch.len()));
        let mut points = Points::new(&self.batch);
        for output in output.chunks_exact_mut(size) {
            let places = [0, 1].map(|operand| points.place(&strides[operand]) * sizes[operand]);
            let (left, right) = (&left[places[0]..][..sizes[0]], &right[places[1]..][..sizes[1]]);
            self.one_product(left, right, output);
            points.advance();
        }
        output
    }

    /// One product. A block of rows and a panel of columns stay in the cache while the right operand
    /// passes by once.
    fn one_product<N: Number>(&self, left: &[N], right: &[N], output: &mut [N]) {
        const ROWS: usize = 16;
        const PANEL: usize = 256;
        if self.reduced == 0 {
            return;
        }
        let blocks = left.chunks(ROWS * self.reduced).zip(output.chunks_mut(ROWS * self.columns));
        for (left, output) in blocks {
            for first in (0..self.columns).step_by(PANEL) {
                let width = PANEL.min(self.columns - first);
                for (step, right) in right.chunks_exact(self.columns).enumerate() {
                    let right = &right[first..first + width];
                    let rows = left.chunks_exact(self.reduced);
                    for (left, sums) in rows.zip(output.chunks_exact_mut(self.columns)) {
                        let factor = left[step];
                        for (sum, value) in sums[first..first + width].iter_mut().zip(right) {
                            *sum = sum.plus(factor.times(*value));
                        }
                    }
                }
            }
        }
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
